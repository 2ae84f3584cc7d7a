"""A node of Apache Kafka among Ottla's: the same files and settings, another program."""

import os
import socket
import subprocess
import time

from bench.harness.kafka_jars import class_path, java

from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_cluster import START_TIMEOUT_S, ClusterNode
from tests.support.ottla_node import NodeFailed


class KafkaMember(ClusterNode):
    """Formatted by Ottla and run by Kafka."""

    stops_without_controller = False

    def launch(self) -> None:
        assert self.process is None, "it runs already"
        with self.words.open("ab") as words:
            self.process = subprocess.Popen(
                [*self.within, str(java()), *JVM_OPTIONS, "-cp", class_path(), "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8"},
            )

    def wait_until_ready(self) -> None:
        """Kafka says nothing when it is ready: a connection to each of its ports must do."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for port in self.ports.values():
            while not _accepts(self.host, port):
                assert self.process is not None, "it was not started"
                if self.process.poll() is not None:
                    raise NodeFailed(f"Kafka ended with {self.process.returncode}: {self.last_words()}")
                if time.monotonic() > deadline:
                    raise NodeFailed(f"Kafka is not ready after {START_TIMEOUT_S} s: {self.last_words()}")
                time.sleep(0.1)

    @property
    def good_codes(self) -> tuple[int, ...]:
        return (0, 143)  # Java, having stopped in order, ends with 128 and the signal

    def complaints(self) -> str:
        """What Kafka logs as an error is not for these tests to judge: it does so for much that passes."""
        return ""


def _accepts(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
