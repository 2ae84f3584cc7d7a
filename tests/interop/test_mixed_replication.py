"""An Apache Kafka broker in an Ottla cluster: each follows the other, and their logs are the same, byte for byte."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.acknowledged import Acknowledged
from tests.cluster.ottla_cluster import OttlaCluster, eventually
from tests.cluster.test_replication import TOPIC, in_sync, leaders, wait_until_in_sync
from tests.interop.kafka_broker import CLUSTER_ID, JVM_OPTIONS, START_TIMEOUT_S, STOP_TIMEOUT_S, free_port
from tests.interop.kafka_jars import class_path, java

KAFKA = 9
ROLES = {1: "controller", 2: "broker", 3: "broker"}
LAG = {"replica.lag.time.max.ms": "3000"}


class KafkaBroker:
    """A broker of Kafka's own, without a controller, that knows the controllers of an Ottla cluster."""

    def __init__(self, folder: Path, voters: str) -> None:
        folder.mkdir()
        self.directory = folder / "logs"
        self._words = folder / "kafka.err"
        self._properties = folder / "server.properties"
        values = {
            "process.roles": "broker",
            "node.id": str(KAFKA),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "controller.quorum.voters": voters,
            **LAG,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        tool = ("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties))
        done = subprocess.run(
            self._command(*tool), capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def running(self, *, end: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """The process is there inside, and registered some time; it is gone at the end."""
        with self._words.open("ab") as words:
            process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LANG": "C.UTF-8"},
            )
        try:
            yield
            process.send_signal(end)
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()

    def _command(self, *arguments: str) -> list[str]:
        return [str(java()), *JVM_OPTIONS, "-cp", class_path(), *arguments]


def test_kafka_and_ottla_brokers_replicate_each_other(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, roles=ROLES, settings=LAG).running() as cluster:
        kafka = KafkaBroker(tmp_path / "kafka", cluster.settings["controller.quorum.voters"])
        with kafka.running(end=signal.SIGKILL):
            eventually(lambda: _in_service(cluster) == {2, 3, KAFKA}, "Kafka's broker is in service")
            cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3, KAFKA], [KAFKA, 2, 3]]))
            wait_until_in_sync(cluster)
            with Acknowledged(cluster.address, TOPIC, partitions=2) as producing:
                producing.wait_for(1000)
                cluster.kill(2)
                producing.wait_for(500)
                cluster.start(2)
                wait_until_in_sync(cluster)
                producing.wait_for(500)
            producing.check()
        eventually(lambda: all(KAFKA not in isr for isr in in_sync(cluster).values()), "Kafka's broker is missed")
        with kafka.running():
            wait_until_in_sync(cluster)
            cluster.ask(lambda admin: admin.elect_leaders())
            eventually(lambda: leaders(cluster) == {0: 2, 1: KAFKA}, "each leads what it should")
            with Acknowledged(cluster.address, TOPIC, partitions=2) as more:
                more.wait_for(500)
            wait_until_in_sync(cluster)
        cluster.stop(2, 3)
    for partition in range(2):
        name = f"{TOPIC}-{partition}"
        first = _stored(kafka.directory / name)
        assert first
        assert _stored(cluster.nodes[2].directory / name) == first
        assert _stored(cluster.nodes[3].directory / name) == first


def _in_service(cluster: OttlaCluster) -> set[int]:
    found = cluster.ask(lambda admin: admin.describe_cluster()).brokers
    return {broker.id for broker in found if not broker.is_fenced}


def _stored(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
