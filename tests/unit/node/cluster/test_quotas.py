"""Quotas in a cluster of several nodes: replication is exempt, and forwarded requests are charged to the client."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from bench.harness.ports import free_ports

from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.harness import ASKED_ALONE, Side, decode_response, frame_of, produce_request
from tests.conformance.differential.requests import batch
from tests.support.kafka_member import KafkaMember
from tests.support.ottla_cluster import ClusterNode, OttlaCluster, eventually

BROKER = "PLAINTEXT"
ROLES = {1: "controller", 2: "broker", 3: "broker"}
EXEMPT_TIME = "kafka_server_request_exempt_request_time"
WINDOW_S = 1.0
THROTTLING_QUOTA_EXCEEDED = 89


@contextmanager
def client_of(cluster: OttlaCluster, node: int) -> Iterator[Side]:
    """A connection to a broker."""
    its = cluster.nodes[node]
    side = Side(f"node {node}", its.ports, its.log_tail)
    try:
        yield side
    finally:
        side.close_all()


def ask(cluster: OttlaCluster, node: int, request: Any, version: int, client_id: str = "admin") -> Any:
    """Ask a broker over a new connection, and return the answer."""
    with client_of(cluster, node) as side:
        side.send(frame_of(request, version, ASKED_ALONE, client_id), BROKER)
        answer = side.require_answer(side.receive(BROKER, 15.0))
        return decode_response(schema_of(type(request)).key, version, answer)[1]


def set_quota(cluster: OttlaCluster, entity: dict[str, str | None], key: str, value: float) -> None:
    """Set a quota, and wait until both brokers have it."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value)],
    )
    assert not ask(cluster, 2, AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code
    for node in (2, 3):
        eventually(
            lambda node=node: bool(ask(cluster, node, DescribeClientQuotasRequest(), 1).entries),  # type: ignore[misc]
            "the quota is in force",
        )


def exempt_time(port: int) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        (line,) = (line for line in answer.read().decode().splitlines() if line.startswith(f"{EXEMPT_TIME} "))
    return float(line.split()[1])


def test_a_request_quota_does_not_slow_down_replication(tmp_path: Path) -> None:
    """Each acks=all waits for a follower's fetch, which would come once a second if its connection were muted."""
    cluster = OttlaCluster(tmp_path, roles=ROLES, settings={"min.insync.replicas": "2"})
    ports = dict(zip(ROLES, free_ports(len(ROLES)), strict=True))
    for number, port in ports.items():
        cluster.reconfigure({"ottla.metrics.listener": f"127.0.0.1:{port}"}, number)
    with cluster.running():
        cluster.ask(lambda admin: admin.create_topic("t", partitions=1, replicas=2))
        leader = cluster.ask(lambda admin: admin.topic("t")).partitions[0].leader
        assert not produced(cluster, leader).error_code
        assert [exempt_time(port) for port in ports.values()] == [0, 0, 0]  # counted only where there are quotas
        set_quota(cluster, {"user": None}, "request_percentage", 0.0001)
        time.sleep(2 * WINDOW_S)
        before = time.monotonic()
        for _ in range(5):
            assert not produced(cluster, leader).error_code
        took_s = time.monotonic() - before
        assert took_s < 2 * WINDOW_S, f"five produces took {took_s:.1f} s"
        # The leader counts the fetches of its follower, and the controller those of the metadata.
        for number in (leader, 1):
            assert exempt_time(ports[number]) > 0, number


def produced(cluster: OttlaCluster, leader: int) -> Any:
    answer = ask(cluster, leader, produce_request("t", batch()), 9, "producer")
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("controller", [ClusterNode, KafkaMember], ids=["Ottla", "Kafka"])
def test_automatic_topic_creation_is_charged_to_the_client(tmp_path: Path, controller: type[ClusterNode]) -> None:
    settings = {"auto.create.topics.enable": "true", "num.partitions": "8", "default.replication.factor": "1"}
    with OttlaCluster(tmp_path, roles=ROLES, settings=settings, node_classes={1: controller}).running() as cluster:
        set_quota(cluster, {"client-id": "curious"}, "controller_mutation_rate", 1.0)
        names = [f"named-{number}" for number in range(10)]
        topics = [MetadataRequestTopic(name=name) for name in names]
        answer = ask(cluster, 3, MetadataRequest(topics=topics), 9, "curious")
        assert answer.throttle_time_ms == 0
        time.sleep(1)
        found = ask(cluster, 3, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert sum(not topic.error_code for topic in found.topics) == 2  # the second is the one that is too much

        def created(name: str, client_id: str) -> int:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            (result,) = ask(cluster, 2, CreateTopicsRequest(topics=[topic]), 6, client_id).topics
            return int(result.error_code)

        assert created("refused", "curious") == THROTTLING_QUOTA_EXCEEDED
        assert created("granted", "somebody else") == 0
