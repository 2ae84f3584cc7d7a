"""Nodes authenticate to each other over TLS: Ottla's alone, and together with Apache Kafka's."""

import asyncio
import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.harness.certificates import Authority
from confluent_kafka import Producer

from ottla.client.connection import Connection
from ottla.protocol.errors import AuthenticationError
from ottla.protocol.messages.rpc.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.security.settings import parse_security
from tests.support.kafka_member import KafkaMember
from tests.support.ottla_cluster import BOTH, ClusterNode, OttlaCluster, eventually
from tests.unit.node.cluster.test_mixed import LIGHT, creation, in_service, round_trip
from tests.unit.security.secured_node import login

SECRET = "between nodes"


def secured_cluster(folder: Path, kinds: Mapping[int, type[ClusterNode]] | None = None) -> OttlaCluster:
    """Three nodes: controllers by PLAIN, replicas by SCRAM, both over TLS with certificates on both sides."""
    authority = Authority(folder)
    identity = authority.sign("CN=node", "127.0.0.1")
    plain = login("plain.PlainLoginModule", username="node", password=SECRET, user_node=SECRET)
    scram = login("scram.ScramLoginModule", username="replica", password=SECRET)
    cluster = OttlaCluster(
        folder,
        roles=dict.fromkeys((1, 2, 3), BOTH),
        node_classes=kinds,
        broker_listeners=["REPLICATION"],
        settings={
            **LIGHT,
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "REPLICATION",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.replication.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.replication.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.file("node", identity)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.trusted),
            "ssl.client.auth": "required",
            "delegation.token.secret.key": SECRET,
        },
    )
    for node in cluster.nodes.values():
        node.format("--add-scram", f"SCRAM-SHA-256=[name=replica,password={SECRET}]")
    return cluster


@pytest.mark.parametrize("kafka", [None, 1], ids=["Ottla alone", "one Apache of three"])
def test_nodes_replicate_and_fail_over(tmp_path: Path, kafka: int | None) -> None:
    cluster = secured_cluster(tmp_path, {} if kafka is None else {kafka: KafkaMember})
    with cluster.running():
        eventually(lambda: in_service(cluster) == {1, 2, 3}, "all brokers are in service")
        cluster.ask(creation("orders", partitions=6, replicas=3), timeout_s=60)
        round_trip(cluster, "orders", 6)
        cluster.kill(cluster.controller())
        alive = set(cluster.alive)
        eventually(lambda: in_service(cluster) == alive, "the node that died is fenced")
        cluster.ask(creation("payments", partitions=2, replicas=2), timeout_s=60)
        producer = Producer({"bootstrap.servers": cluster.address, "acks": "all", "log_level": 0})
        for number in range(100):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0


@pytest.mark.parametrize("kafka", [1, 2])
def test_a_token_of_one_node_is_valid_on_all_nodes(tmp_path: Path, kafka: int) -> None:
    cluster = secured_cluster(tmp_path, {kafka: KafkaMember})
    with cluster.running():
        eventually(lambda: in_service(cluster) == {1, 2, 3}, "all brokers are in service")
        for maker in (kafka, 3):
            created = asked(cluster, maker, "replica", SECRET, CreateDelegationTokenRequest(max_lifetime_ms=-1))
            assert (created.error_code, created.principal_name) == (0, "replica")
            proof = base64.b64encode(bytes(created.hmac)).decode()
            for number in cluster.nodes:
                eventually(
                    partial(comes_in, cluster, number, created.token_id, proof),
                    f"node {number} knows the token of node {maker}",
                )
                describing = DescribeDelegationTokenRequest(owners=None)
                refused = asked(cluster, number, created.token_id, proof, describing, tokenauth="true")
                assert refused.error_code == 64, "who came with a token gets none"


def comes_in(cluster: OttlaCluster, at: int, token_id: str, proof: str) -> bool:
    try:
        asked(cluster, at, token_id, proof, MetadataRequest(topics=[]), tokenauth="true")
    except AuthenticationError:
        return False
    return True


def asked(cluster: OttlaCluster, at: int, user: str, password: str, request: Any, **options: str) -> Any:
    """Return a node's response to a client that uses SCRAM over TLS with the nodes' certificate."""
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": login("scram.ScramLoginModule", username=user, password=password, **options),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": cluster.settings["ssl.keystore.location"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cluster.settings["ssl.truststore.location"],
    }

    async def ask() -> Any:
        port = cluster.nodes[at].ports["REPLICATION"]
        connection = await Connection.connect("127.0.0.1", port, security=parse_security(given))
        try:
            return await connection.send(request)
        finally:
            connection.close()

    return asyncio.run(ask())


def test_a_node_with_a_wrong_secret_is_rejected(tmp_path: Path) -> None:
    cluster = secured_cluster(tmp_path)
    stranger = cluster.nodes[3]
    with cluster.running():
        eventually(lambda: in_service(cluster) == {1, 2, 3}, "all brokers are in service")
        cluster.kill(3)
        wrong = login("plain.PlainLoginModule", username="node", password="guessed", user_node=SECRET)
        cluster.reconfigure({"listener.name.controller.plain.sasl.jaas.config": wrong}, 3)
        stranger.launch()
        eventually(lambda: "Invalid username or password" in stranger.log_tail(), "the node logs the reason")
        # It listens again where it was before it was noticed to be gone: then its session has to end first.
        eventually(lambda: in_service(cluster) == {1, 2}, "the node is out of service")
        cluster.kill(3)
