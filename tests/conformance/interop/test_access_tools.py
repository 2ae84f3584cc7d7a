"""Kafka's own tools set rules, quotas and levels of loggers on an Ottla node, and take them away: felt at once."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.harness.kafka_jars import java, kafka_libs
from confluent_kafka import KafkaError, Producer

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60
ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    made = OttlaNode(
        tmp_path,
        {
            **SETTINGS,
            "auto.create.topics.enable": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def tool(node: OttlaNode, name: str, *arguments: str) -> str:
    """What one of Kafka's tools says when it is done."""
    command = [str(java()), "-cp", f"{kafka_libs()}/*", name, "--bootstrap-server", node.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def send(node: OttlaNode, topic: str) -> KafkaError | None:
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.address, "client.id": "writer"})
    producer.produce(topic, b"x" * 20_000, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = outcome
    return error


def test_kafka_acls(node: OttlaNode) -> None:
    assert send(node, "orders") is None
    tool(node, ACLS, "--add", "--allow-principal", "User:ANONYMOUS", "--operation", "Read", "--topic", "orders")
    told = tool(node, ACLS, "--list", "--topic", "orders")
    assert "principal=User:ANONYMOUS, host=*, operation=READ, permissionType=ALLOW" in told
    error = send(node, "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    tool(node, ACLS, "--remove", "--force", "--topic", "orders")
    assert "orders" not in tool(node, ACLS, "--list")
    assert send(node, "orders") is None


def test_kafka_configs_of_clients(node: OttlaNode) -> None:
    who = ("--entity-type", "clients", "--entity-name", "writer")
    tool(node, CONFIGS, "--alter", *who, "--add-config", "producer_byte_rate=1000,request_percentage=200")
    told = tool(node, CONFIGS, "--describe", *who)
    assert "producer_byte_rate=1000.0" in told
    assert "request_percentage=200.0" in told
    throttled: list[object] = []
    producer = Producer({"bootstrap.servers": node.address, "client.id": "writer", "linger.ms": 0})
    producer.produce("slow", b"x" * 20_000)
    producer.flush(TIMEOUT_S)
    slowed = Producer(
        {"bootstrap.servers": node.address, "client.id": "writer", "throttle_cb": throttled.append, "linger.ms": 0}
    )
    slowed.produce("slow", b"x" * 20_000)
    slowed.flush(TIMEOUT_S)
    slowed.poll(1)
    assert throttled
    tool(node, CONFIGS, "--alter", *who, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in tool(node, CONFIGS, "--describe", *who)


def test_kafka_configs_of_loggers(node: OttlaNode) -> None:
    """The request log is there while its logger takes DEBUG."""
    requests = ("--entity-type", "broker-loggers", "--entity-name", "1", "--alter")
    tool(node, CONFIGS, *requests, "--add-config", "kafka.request.logger=DEBUG")
    assert send(node, "orders") is None
    tool(node, CONFIGS, *requests, "--delete-config", "kafka.request.logger")
    written = node.log_path.read_text()
    assert '"requestApiKeyName":"Produce"' in written
    assert send(node, "orders") is None
    assert node.log_path.read_text() == written
