"""Ottla and Apache Kafka as operators start them, with the same `server.properties`, in clusters of any size.

Apache Kafka runs as `kafka-server-start.sh` runs it: the same heap, collector, GC log and JMX agent, in KRaft's
combined mode. It logs nothing (the jars have no logging back end), which favours Kafka;
`KAFKA_OPTS=-Dottla.log.level=warn` turns its log on. Ottla runs as `ottla serve FILE`.

Each server runs in its own session, as a service does, so that Linux shares the cores between servers and clients. In a
common session, Linux shares them among all threads: a server with one thread gets the least beside a client with
twenty, and the benchmark would measure the number of threads.
"""

import base64
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from bench.harness import tls_listener
from bench.harness.figures import KAFKA, OTTLA
from bench.harness.kafka_jars import class_path, java, kafka_libs
from bench.harness.node_requests import NoResponse, count_known_brokers, fetch_served_apis
from bench.harness.ports import free_ports

T = TypeVar("T")

CLUSTER_ID = "b3R0bGEtYmVuY2gtMDAwMA"
META = "meta.properties"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
POLL_S = 0.005
MAX_PARTITIONS_A_REQUEST = 5_000
"""Partitions that one request creates: a controller writes at most 10,000 records for a request."""

# The defaults of kafka-run-class.sh and kafka-server-start.sh of Kafka 4.3.1.
SERVER_HEAP = ("-Xmx1G", "-Xms1G")
PERFORMANCE = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
JMX = (
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
# config/server.properties of Kafka 4.3.1, without addresses and folders.
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    # Not from there: the data of one round must be deleted before the next round.
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
}


class ServerFailed(Exception):
    """A server did not start or stop. The message ends with the last lines of its log."""


@dataclass(frozen=True)
class System:
    """One of the two systems, with its commands to format a directory and to serve."""

    name: str
    title: Callable[[], str]
    format: Callable[[Path], list[str]]
    serve: Callable[[Path], list[str]]


def _kafka(*arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    extra = os.environ.get("KAFKA_OPTS", "").split()
    return [str(java()), *options, *extra, "-cp", class_path(), *arguments]


def java_tool(name: str, *arguments: str) -> list[str]:
    """Return the command line of a tool of Kafka, as its script builds it."""
    return _kafka(f"org.apache.kafka.tools.{name}", *arguments, options=("-Xmx512M", *PERFORMANCE))


def _serve_kafka(properties: Path) -> list[str]:
    log = f"-Xlog:gc*:file={properties.parent}/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M"
    return _kafka("kafka.Kafka", str(properties), options=(*SERVER_HEAP, *PERFORMANCE, log, *JMX))


def _format_kafka(properties: Path) -> list[str]:
    return _kafka("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))


def kafka_version() -> str:
    """Return the release of the jars."""
    (jar,) = kafka_libs().glob("kafka-clients-*.jar")
    return jar.stem.rpartition("-")[2]


def ottla_version() -> str:
    from ottla import __version__

    return __version__


def _ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


SYSTEMS = {
    OTTLA: System(
        OTTLA,
        lambda: f"Ottla {ottla_version()}",
        lambda properties: _ottla("format", "-t", CLUSTER_ID, "-c", str(properties)),
        lambda properties: _ottla("serve", str(properties)),
    ),
    KAFKA: System(KAFKA, lambda: f"Apache Kafka {kafka_version()}", _format_kafka, _serve_kafka),
}


@functools.cache
def _formatted_files(name: str) -> dict[str, bytes]:
    """Return the files of a formatted directory, formatted once per system because a JVM takes seconds for it."""
    system = SYSTEMS[name]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-format-") as folder:
        properties = Path(folder) / "server.properties"
        values = {
            **SETTINGS,
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:9",
            "listeners": "PLAINTEXT://127.0.0.1:9,CONTROLLER://127.0.0.1:10",
            "log.dirs": f"{folder}/logs",
        }
        _write(properties, values)
        command = system.format(properties)
        result = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        if result.returncode:
            raise ServerFailed(
                f"{system.title()} could not format its directory: {(result.stdout + result.stderr)[-2000:]}"
            )
        return {file.name: file.read_bytes() for file in (Path(folder) / "logs").iterdir() if file.is_file()}


def _write(properties: Path, values: Mapping[str, str]) -> None:
    properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def _replace_ids(meta: bytes, number: int) -> bytes:
    """Return `meta.properties` with the id of another node and a new directory id."""
    directory = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
    text = re.sub("(?m)^node.id=.*$", f"node.id={number}", meta.decode())
    return re.sub("(?m)^directory.id=.*$", f"directory.id={directory}", text).encode()


class Node:
    """One server process: its folder, ports and settings."""

    def __init__(self, system: System, number: int, folder: Path) -> None:
        self.system = system
        self.number = number
        self.folder = folder
        self.port, self.controller_port, self.secured_port = free_ports(3)
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node does not run"
        return self.process.pid

    def configure(self, settings: Mapping[str, str], voters: str) -> None:
        """Write `server.properties` and a formatted directory."""
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller_port}"
        if tls_listener.LISTENER in settings.get("listener.security.protocol.map", ""):
            listeners += f",{tls_listener.LISTENER}://127.0.0.1:{self.secured_port}"
        values = {
            **SETTINGS,
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "listeners": listeners,
            "log.dirs": str(self.folder / "logs"),
            **settings,
        }
        _write(self._properties, values)
        logs = self.folder / "logs"
        logs.mkdir()
        for name, content in _formatted_files(self.system.name).items():
            (logs / name).write_bytes(_replace_ids(content, self.number) if name == META else content)

    def launch(self) -> None:
        """Start the process without waiting until it serves."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.system.serve(self._properties),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def wait_for_brokers(self, count: int) -> None:
        """Wait until a Metadata response of this node has this many brokers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.system.title()} ended with {self.process.returncode}: {self.log_tail()}")
            try:
                if count_known_brokers("127.0.0.1", self.port) >= count:
                    return
            except (OSError, NoResponse):
                pass  # the node does not listen yet, or has just begun to
            time.sleep(POLL_S)
        raise ServerFailed(f"{self.system.title()} is not ready after {START_TIMEOUT_S} s: {self.log_tail()}")

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process with a signal, and wait for its end."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(stop_signal)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(f"{self.system.title()} does not stop: {self.log_tail()}") from None

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:].strip() or "(its log is empty)"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"


class Cluster:
    """A cluster of one system."""

    def __init__(self, system: System, folder: Path, nodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.system = system
        self.folder = folder
        self.nodes = [Node(system, number, folder / f"node-{number}") for number in range(1, nodes + 1)]
        self._shared_data: dict[str, object] = {}
        replicas = str(min(3, nodes))
        common = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, nodes)),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, nodes)),
            **(settings or {}),
        }
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in self.nodes)
        for node in self.nodes:
            node.configure(common, voters)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def secured_bootstrap(self) -> str:
        """The bootstrap servers of the TLS listener, for cases with `secured=True`."""
        return ",".join(f"127.0.0.1:{node.secured_port}" for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes if node.process is not None]

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self) -> float:
        """Start all nodes. Return the seconds until the Metadata response of each node has all brokers."""
        began = time.perf_counter()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_for_brokers(len(self.nodes))
        return time.perf_counter() - began

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        for node in self.nodes:
            node.stop(stop_signal)

    def serves(self, keys: frozenset[int]) -> bool:
        """Whether the nodes serve these APIs."""
        return keys <= fetch_served_apis("127.0.0.1", self.nodes[0].port)

    def make_once(self, name: str, make: Callable[[], T]) -> T:
        """Call `make` once in the life of this cluster, and return its result: data that several rounds read."""
        if name not in self._shared_data:
            self._shared_data[name] = make()
        return self._shared_data[name]  # type: ignore[return-value]

    def create_topics(self, names: list[str], partitions: int = 1, **configs: str) -> None:
        """Create topics with one request, on all nodes up to three, and wait until all partitions have leaders."""
        settings = {re.sub("_", ".", name): value for name, value in configs.items()}
        first = min(partitions, MAX_PARTITIONS_A_REQUEST)
        new_topics = [NewTopic(name, first, min(3, len(self.nodes)), config=settings) for name in names]
        for future in self.admin.create_topics(new_topics, operation_timeout=60, request_timeout=90).values():
            future.result(120)
        for created in range(first, partitions, MAX_PARTITIONS_A_REQUEST):
            more = [NewPartitions(name, min(created + MAX_PARTITIONS_A_REQUEST, partitions)) for name in names]
            for future in self.admin.create_partitions(more, operation_timeout=60, request_timeout=90).values():
                future.result(120)

    def delete_topics(self, names: list[str]) -> None:
        for future in self.admin.delete_topics(names, operation_timeout=60, request_timeout=90).values():
            future.result(120)


@contextmanager
def running_cluster(
    system: System, folder: Path, *, nodes: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Start a cluster, and kill it at the end, because its data are not needed any more."""
    cluster = Cluster(system, folder, nodes, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop(signal.SIGKILL)
