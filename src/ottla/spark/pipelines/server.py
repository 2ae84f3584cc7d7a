"""The Spark Connect server of a project, which keeps running between the runs of its pipeline.

The server's process holds a lock file as long as it lives, so the lock shows whether it is running. A file beside the
lock has the address and the token. The server listens only on this machine, and only to clients with the token.
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
from ottla.spark.pipelines.failures import summarize_error
from ottla.spark.pipelines.java import find_java_home
from ottla.spark.pipelines.locks import hold_lock, is_held, stop_holder
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
    """The server did not start or did not stop."""


class Server(NamedTuple):
    """A running server and its address."""

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
    """The files of a project's server, and the operations on it."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.folder = project.home
        self.conf = self.folder / "conf"
        self.log = self.folder / "server.log"
        self._record = self.folder / "server.json"
        self._lock = self.folder / "server.lock"

    def find(self) -> Server | None:
        """Return the server if it is running."""
        if not is_held(self._lock):
            return None
        try:
            return Server(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None  # it has just been started

    def ensure(self, show: Callable[[str], None]) -> Server:
        """Return a server with the project's settings, started if necessary; raise ServerFailed or NoJava."""
        settings = server_settings(self._project)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        running = self.find()
        if running is not None and running.digest == digest:
            return running
        if running is not None:
            show("restarting Spark, because its settings have changed")
            self.stop()
        return self._start(settings, digest, show)

    def stop(self) -> bool:
        """Stop the server by SIGTERM, or by SIGKILL if necessary; return whether there was one."""
        running = self.find()
        if running is None:
            return False
        for how in (signal.SIGTERM, signal.SIGKILL):
            if stop_holder(self._lock, running.pid, how, _STOP_S):
                self._record.unlink(missing_ok=True)
                return True
        raise ServerFailed(f"process {running.pid} of the Spark server did not end within {_STOP_S:g} s of SIGKILL")

    def _start(self, settings: Mapping[str, str], digest: str, show: Callable[[str], None]) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.conf.mkdir(exist_ok=True)
        java = find_java_home(self.folder / "java")
        show("starting Spark; it keeps running for the next run")
        port, ui_port = _free_ports(2)
        ports = {"spark.connect.grpc.binding.port": str(port), "spark.ui.port": str(ui_port)}
        written = {**ports, **settings}
        lines = (f"{_escape(name)} {_escape(value)}\n" for name, value in sorted(written.items()))
        (self.conf / "spark-defaults.conf").write_text("".join(lines))
        (self.conf / "log4j2.properties").write_text(_LOGGING)
        token = secrets.token_urlsafe(24)
        with hold_lock(self._lock) as lock:
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
            # In its own session, so that signals to the run that started it do not reach it.
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
                raise ServerFailed(f"Spark did not start: {self._last_error()} (see {self.log})")
            if time.monotonic() > deadline:
                raise ServerFailed(f"Spark is not ready after {_START_S:g} s; see {self.log}")
            time.sleep(0.1)

    def _last_error(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        messages = [line for line in lines if line and not line.startswith(("at ", "..."))]
        errors = [line for line in messages if "Exception" in line or "Error" in line]
        return summarize_error((errors or messages or ["its log is empty"])[-1])


def server_settings(project: Project) -> dict[str, str]:
    """Return the server's settings. The project's settings override Ottla's."""
    home = project.home
    chosen = {
        "spark.master": project.spark,
        "spark.app.name": project.name,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        # An in-memory catalog would forget tables whose folders exist, and the next run would fail on them.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'catalog'};create=true",
        # A materialized view may change its columns with its definition.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        "spark.sql.pipelines.maxFlowRetryAttempts": "0",
    }
    if project.is_local:
        chosen |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.bindAddress": "127.0.0.1",
            "spark.local.dir": str(home / "local"),
            # Spark's default of 200 is for clusters; on one machine it means 200 tiny tasks and files.
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        }
    own = {name: value for name, value in project.configuration.items() if name.startswith("spark.")}
    options = own.pop("spark.driver.extraJavaOptions", "")
    derby = f'"-Dderby.system.home={home / "derby"}"'
    return {**chosen, **own, "spark.driver.extraJavaOptions": f"{options} {derby}".strip()}


def _escape(text: str) -> str:
    """Escape a name or value for a properties file."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(" ", "\\ ").replace(":", "\\:").replace("=", "\\=")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets: list[Any] = [opened.enter_context(socket.socket()) for _ in range(count)]
        for opened_socket in sockets:
            opened_socket.bind(("127.0.0.1", 0))
        return [opened_socket.getsockname()[1] for opened_socket in sockets]
