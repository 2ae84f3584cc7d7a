"""Ottla and Apache Kafka in one cluster: brokers of one with controllers of the other, and mixed quorums."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin import Admin
from ottla.client.topic_calls import CreatedTopic
from tests.support.kafka_broker import SETTINGS as KAFKA_SETTINGS
from tests.support.kafka_member import KafkaMember
from tests.support.ottla_cluster import BOTH, OttlaCluster, eventually

LIGHT = {name: KAFKA_SETTINGS[name] for name in ("num.network.threads", "num.io.threads", "background.threads")}


def in_service(cluster: OttlaCluster) -> set[int]:
    found = cluster.ask(lambda admin: admin.describe_cluster(), timeout_s=60)
    return {each.id for each in found.brokers if not each.is_fenced}


def is_fenced(cluster: OttlaCluster, node: int) -> bool:
    return node not in in_service(cluster)


def creation(name: str, *, partitions: int = 1, replicas: int = 1) -> Callable[[Admin], Awaitable[CreatedTopic]]:
    return lambda admin: admin.create_topic(name, partitions=partitions, replicas=replicas)


def round_trip(cluster: OttlaCluster, topic: str, partitions: int) -> None:
    """Produce to each partition, and check that all messages are consumed."""
    producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": False})
    for partition in range(partitions):
        producer.produce(topic, b"%d" % partition, partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: set[bytes] = set()
    for _ in range(60):
        found |= {message.value() or b"" for message in consumer.consume(partitions, 1.0) if message.error() is None}
        if len(found) == partitions:
            break
    consumer.close()
    assert found == {b"%d" % partition for partition in range(partitions)}


@pytest.mark.parametrize("kafka", [1, 2], ids=["an Apache controller", "an Apache broker"])
def test_brokers_register_with_controllers_of_the_other_implementation(tmp_path: Path, kafka: int) -> None:
    cluster = OttlaCluster(
        tmp_path, roles={1: "controller", 2: "broker", 3: "broker"}, node_classes={kafka: KafkaMember}, settings=LIGHT
    )
    with cluster.running():
        eventually(lambda: in_service(cluster) == {2, 3}, "both brokers are in service")
        for node in (2, 3):
            cluster.ask(creation(f"t{node}", partitions=4), node=node)
        eventually(
            lambda: {"t2", "t3"} <= {each.name for each in cluster.ask(lambda admin: admin.topics(), node=3)}, ""
        )
        round_trip(cluster, "t2", 4)
        cluster.kill(2)
        eventually(lambda: in_service(cluster) == {3}, "the broker that died is fenced")
        cluster.start(2)
        eventually(lambda: in_service(cluster) == {2, 3}, "it is back in service")


@pytest.mark.parametrize("apaches", [(1,), (1, 2)], ids=["one Apache of three", "two Apaches of three"])
def test_a_mixed_quorum_elects_and_fails_over(tmp_path: Path, apaches: tuple[int, ...]) -> None:
    cluster = OttlaCluster(
        tmp_path,
        roles=dict.fromkeys((1, 2, 3), BOTH),
        node_classes=dict.fromkeys(apaches, KafkaMember),
        settings={**LIGHT, "broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"},
    )
    with cluster.running():
        eventually(lambda: in_service(cluster) == {1, 2, 3}, "all brokers are in service")
        led: set[int] = set()
        for number in range(4):
            leader = cluster.controller()
            led.add(leader)
            cluster.ask(creation(f"t{number}", partitions=3, replicas=1), timeout_s=60)
            cluster.kill(leader)
            eventually(partial(is_fenced, cluster, leader), f"broker {leader} is fenced")
            assert cluster.controller() != leader
            cluster.start(leader)
            eventually(lambda: in_service(cluster) == {1, 2, 3}, f"broker {leader} is back")
        assert len(led) > 1
        topics = {each.name for each in cluster.ask(lambda admin: admin.topics())}
        assert {"t0", "t1", "t2", "t3"} <= topics


def test_every_member_of_a_mixed_quorum_can_lead(tmp_path: Path) -> None:
    """Stop leaders until each member has led; metadata written under one exists under the next."""
    cluster = OttlaCluster(
        tmp_path, roles={1: BOTH, 2: BOTH, 3: "controller"}, node_classes={1: KafkaMember}, settings=LIGHT
    )
    with cluster.running():
        eventually(lambda: in_service(cluster) == {1, 2}, "all brokers are in service")
        kinds: set[type] = set()
        for number in range(8):
            leader = cluster.controller()
            kinds.add(type(cluster.nodes[leader]))
            cluster.ask(creation(f"t{number}", replicas=2), timeout_s=60)
            if len(kinds) > 1:
                break
            cluster.restart(leader)
            eventually(lambda: in_service(cluster) == {1, 2}, f"node {leader} is back")
        assert len(kinds) == 2, "both kinds of controllers have been active"
