"""The Spark Connect server of a project: started once, kept warm between runs, found again, stopped.

A lock file says whether it runs: the server's process holds the lock from its first moment to its last, however it
ends. Beside it stands what a client must know. The server listens on this machine alone, and to nobody who does not
know its token.
"""

import contextlib
import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark

from ottla.spark.connector.spark_home import make_spark_home
from ottla.spark.pipelines.failures import plain
from ottla.spark.pipelines.java import find_java_home
from ottla.spark.pipelines.locks import end_holder, held, is_held
from ottla.spark.pipelines.project import Project

_START_S: Final = 120.0
_STOP_S: Final = 30.0
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 (the name of a variable)
_LOGGING: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class ServerFailed(Exception):
    """The server did not start; with its last words."""


class Server(NamedTuple):
    """A server that runs, and how to reach it."""

    pid: int
    port: int
    token: str
    digest: str
    spark: str
    ui: str | None
    started_s: float

    @property
    def address(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"


class ServerHome:
    """A project's folder for its server."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.folder = project.home
        self.conf = self.folder / "conf"
        self.log = self.folder / "server.log"
        self._record = self.folder / "server.json"
        self._lock = self.folder / "server.lock"

    def find(self) -> Server | None:
        """The server, if it runs."""
        if not is_held(self._lock):
            return None
        try:
            return Server(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None  # it was started this very moment

    def ensure(self, tell: Callable[[str], None]) -> Server:
        """A server with the project's settings: the one that runs, or a new one. Raises ServerFailed or NoJava."""
        settings = server_settings(self._project)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        found = self.find()
        if found is not None and found.digest == digest:
            return found
        if found is not None:
            tell("settings have changed: Spark is started anew")
            self.stop()
        return self._start(settings, digest, tell)

    def stop(self) -> bool:
        """End the server, in order if it can; whether there was one."""
        found = self.find()
        if found is None:
            return False
        for how in (signal.SIGTERM, signal.SIGKILL):
            if end_holder(self._lock, found.pid, how, _STOP_S):
                self._record.unlink(missing_ok=True)
                return True
        raise ServerFailed(f"process {found.pid} does not end")

    def _start(self, settings: Mapping[str, str], digest: str, tell: Callable[[str], None]) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.conf.mkdir(exist_ok=True)
        java = find_java_home(self.folder / "java")
        tell("starting Spark; it stays warm for the next run")
        port, ui_port = _free_ports(2)
        ports = {"spark.connect.grpc.binding.port": str(port), "spark.ui.port": str(ui_port)}
        written = {**ports, **settings}
        lines = (f"{_escaped(name)} {_escaped(value)}\n" for name, value in sorted(written.items()))
        (self.conf / "spark-defaults.conf").write_text("".join(lines))
        (self.conf / "log4j2.properties").write_text(_LOGGING)
        token = secrets.token_urlsafe(24)
        with held(self._lock) as lock:
            process = self._launch(java, token, lock)
            server = Server(
                pid=process.pid,
                port=port,
                token=token,
                digest=digest,
                spark=self._project.spark,
                ui=None if written.get("spark.ui.enabled") == "false" else f"http://localhost:{ui_port}",
                started_s=time.time(),
            )
            self._record.touch(mode=0o600)
            self._record.write_text(json.dumps(server._asdict()) + "\n")
        try:
            self._wait(process, port)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return server

    def _launch(self, java: Path, token: str, lock: int) -> "subprocess.Popen[bytes]":
        package = Path(pyspark.__file__).parent
        spark_home = make_spark_home(self.folder / "spark") if self._project.is_local else package
        path = os.pathsep.join(filter(None, [str(self._project.folder), os.environ.get("PYTHONPATH")]))
        environment = {
            **os.environ,
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(self.conf),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "PYTHONPATH": path,
            _TOKEN: token,
        }
        environment.pop("SPARK_REMOTE", None)
        with self.log.open("wb") as log:
            # In a session of its own: what ends the run that started it leaves it alone.
            return subprocess.Popen(  # noqa: S603 (Spark's own script)
                [spark_home / "bin" / "spark-submit", "--class", _CLASS, "spark-internal"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )

    def _wait(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
                return
            if process.poll() is not None:
                raise ServerFailed(f"Spark did not start: {self._last_words()} (see {self.log})")
            if time.monotonic() > deadline:
                raise ServerFailed(f"Spark is not ready after {_START_S:g} s; see {self.log}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        telling = [line for line in lines if line and not line.startswith(("at ", "..."))]
        causes = [line for line in telling if "Exception" in line or "Error" in line]
        return plain((causes or telling or ["it said nothing"])[-1])


def server_settings(project: Project) -> dict[str, str]:
    """What the server is started with; what the project says goes before what Ottla would choose."""
    home = project.home
    chosen = {
        "spark.master": project.spark,
        "spark.app.name": project.name,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        # The catalog of memory forgets its tables, and a second run would find their folders in its way.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'catalog'};create=true",
        # A view whose definition has changed gets other columns.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        "spark.sql.pipelines.maxFlowRetryAttempts": "0",
    }
    if project.is_local:
        chosen |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.bindAddress": "127.0.0.1",
            "spark.local.dir": str(home / "local"),
            # Spark's 200 are meant for a cluster; here each would be a task, and files of its own.
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        }
    own = {name: value for name, value in project.configuration.items() if name.startswith("spark.")}
    options = own.pop("spark.driver.extraJavaOptions", "")
    derby = f'"-Dderby.system.home={home / "derby"}"'
    return {**chosen, **own, "spark.driver.extraJavaOptions": f"{options} {derby}".strip()}


def _escaped(text: str) -> str:
    """A name or value as a properties file has it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(" ", "\\ ").replace(":", "\\:").replace("=", "\\=")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets: list[Any] = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
