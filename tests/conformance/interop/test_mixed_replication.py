"""An Apache Kafka broker in an Ottla cluster: each replicates the other, and their logs are equal byte for byte."""

from pathlib import Path

from tests.support.acknowledged import Acknowledged
from tests.support.kafka_member import KafkaMember
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.unit.node.cluster.test_replication import TOPIC, in_sync, leaders, wait_until_in_sync

KAFKA = 9
ROLES = {1: "controller", 2: "broker", 3: "broker", KAFKA: "broker"}
LAG = {"replica.lag.time.max.ms": "3000"}


def test_kafka_and_ottla_brokers_replicate_each_other(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, roles=ROLES, node_classes={KAFKA: KafkaMember}, settings=LAG).running() as cluster:
        eventually(lambda: _unfenced_brokers(cluster) == {2, 3, KAFKA}, "Kafka's broker is in service")
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
        cluster.kill(KAFKA)
        eventually(
            lambda: all(KAFKA not in isr for isr in in_sync(cluster).values()), "Kafka's broker is out of the ISR"
        )
        cluster.start(KAFKA)
        wait_until_in_sync(cluster)
        cluster.ask(lambda admin: admin.elect_leaders())
        eventually(lambda: leaders(cluster) == {0: 2, 1: KAFKA}, "each broker leads its partition")
        with Acknowledged(cluster.address, TOPIC, partitions=2) as more:
            more.wait_for(500)
        wait_until_in_sync(cluster)
        cluster.stop(KAFKA, 2, 3)
    for partition in range(2):
        name = f"{TOPIC}-{partition}"
        first = _read_segments(cluster.nodes[KAFKA].directory / name)
        assert first
        assert _read_segments(cluster.nodes[2].directory / name) == first
        assert _read_segments(cluster.nodes[3].directory / name) == first


def _unfenced_brokers(cluster: OttlaCluster) -> set[int]:
    brokers = cluster.ask(lambda admin: admin.describe_cluster()).brokers
    return {broker.id for broker in brokers if not broker.is_fenced}


def _read_segments(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
