"""A real Apache Kafka node, broker and controller at once, of the release whose jars the tests have.

`KafkaNode` owns a log directory and two ports; `running()` starts Kafka on them, and shuts it down or kills it.
The log keeps Kafka's warnings, so a test can check whether Kafka complained about files that Ottla wrote.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness.kafka_jars import class_path, java
from bench.harness.ports import free_ports
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dottla.log.level=WARN")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMA"
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # After a kill, the new process can register only when the old session has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
    # Otherwise one of the two nodes might expire a group that is empty for a moment, and the other not.
    "offsets.retention.check.interval.ms": "3600000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "500",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
}


class BrokerFailed(Exception):
    """The broker failed to start or stop; the message has the end of its log."""


class KafkaNode:
    """A Kafka node: its log directory, ports and settings."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        more_listeners: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
    ) -> None:
        self._jvm_options = (*JVM_OPTIONS, *jvm_options)
        self.directory = folder / "logs"
        self.log_path = folder / "kafka.err"
        names = ("PLAINTEXT", "CONTROLLER", *more_listeners)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.port = self.ports["PLAINTEXT"]
        self._properties = folder / "server.properties"
        values = {
            **SETTINGS,
            **(settings or {}),
            "log.dirs": str(self.directory),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self, *more: str) -> None:
        """Format the log directory, as an operator does."""
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties)]
        finished = subprocess.run(
            self._command(*tool, *more), capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr

    @contextmanager
    def running(self, *, end: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """Run Kafka: it is ready in the block, and gets the signal `end` after it. No process outlives the block."""
        with self.log_path.open("wb") as log:
            process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8"},
            )
        try:
            self._wait_until_ready(process)
            yield
            process.send_signal(end)
            code = process.wait(STOP_TIMEOUT_S)
            # A killed process has the negative signal; Java exits with 128 plus the signal after a clean shutdown.
            if code not in (-end, 128 + end):
                raise BrokerFailed(f"Kafka exited with {code}: {self.log_tail()}")
        except subprocess.TimeoutExpired as error:
            raise BrokerFailed(f"Kafka did not stop: {self.log_tail()}") from error
        finally:
            process.kill()
            process.wait()

    def log_tail(self) -> str:
        """Return the end of the last process's log: warnings, errors, and why it exited."""
        return self.log_path.read_text(errors="replace")[-8000:]

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise BrokerFailed(f"Kafka exited with {process.returncode}: {self.log_tail()}")
            if self._leads_all(admin):
                return
            time.sleep(0.1)
        raise BrokerFailed(f"Kafka is not ready after {START_TIMEOUT_S} s: {self.log_tail()}")

    def _leads_all(self, admin: AdminClient) -> bool:
        try:
            metadata = admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return bool(metadata.brokers) and all(
            partition.leader == 1 for topic in metadata.topics.values() for partition in topic.partitions.values()
        )

    def _command(self, *arguments: str) -> list[str]:
        return [str(java()), *self._jvm_options, "-cp", class_path(), *arguments]
