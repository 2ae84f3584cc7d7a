"""An Apache Kafka node in a cluster of Ottla nodes, with the same files and settings."""

import os
import socket
import subprocess
import time

from bench.harness.kafka_jars import class_path, java

from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_cluster import START_TIMEOUT_S, ClusterNode
from tests.support.ottla_node import NodeFailed


class KafkaMember(ClusterNode):
    """A node that Ottla formats and Kafka runs."""

    stops_without_controller = False

    def launch(self) -> None:
        assert self.process is None, "the node is already running"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self.command_prefix,
                    str(java()),
                    *JVM_OPTIONS,
                    "-cp",
                    class_path(),
                    "kafka.Kafka",
                    str(self.properties),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8"},
            )

    def wait_until_ready(self) -> None:
        """Wait until each port accepts connections: Kafka logs nothing when it is ready."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for port in self.ports.values():
            while not _accepts(self.host, port):
                assert self.process is not None, "the node was not started"
                if self.process.poll() is not None:
                    raise NodeFailed(f"Kafka exited with {self.process.returncode}: {self.log_tail()}")
                if time.monotonic() > deadline:
                    raise NodeFailed(f"Kafka is not ready after {START_TIMEOUT_S} s: {self.log_tail()}")
                time.sleep(0.1)

    @property
    def clean_exit_codes(self) -> tuple[int, ...]:
        return (0, 143)  # Java exits with 128 plus the signal after a clean shutdown

    def logged_errors(self) -> str:
        """Return nothing: Kafka logs as errors much that is harmless."""
        return ""


def _accepts(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
