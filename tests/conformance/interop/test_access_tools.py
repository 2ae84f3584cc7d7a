"""Kafka's tools set and remove ACLs, quotas and log levels of an Ottla node, which take effect at once."""

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
    node = OttlaNode(
        tmp_path,
        {
            **SETTINGS,
            "auto.create.topics.enable": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    node.format()
    with node.running():
        yield node
    assert not node.logged_errors()


def run_tool(node: OttlaNode, name: str, *arguments: str) -> str:
    """Run one of Kafka's tools, and return its output."""
    command = [str(java()), "-cp", f"{kafka_libs()}/*", name, "--bootstrap-server", node.address, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def send(node: OttlaNode, topic: str) -> KafkaError | None:
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.address, "client.id": "writer"})
    producer.produce(topic, b"x" * 20_000, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = outcome
    return error


def test_kafka_acls_sets_and_removes_acls(node: OttlaNode) -> None:
    assert send(node, "orders") is None
    run_tool(node, ACLS, "--add", "--allow-principal", "User:ANONYMOUS", "--operation", "Read", "--topic", "orders")
    output = run_tool(node, ACLS, "--list", "--topic", "orders")
    assert "principal=User:ANONYMOUS, host=*, operation=READ, permissionType=ALLOW" in output
    error = send(node, "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    run_tool(node, ACLS, "--remove", "--force", "--topic", "orders")
    assert "orders" not in run_tool(node, ACLS, "--list")
    assert send(node, "orders") is None


def test_kafka_configs_sets_and_removes_quotas(node: OttlaNode) -> None:
    entity = ("--entity-type", "clients", "--entity-name", "writer")
    run_tool(node, CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1000,request_percentage=200")
    output = run_tool(node, CONFIGS, "--describe", *entity)
    assert "producer_byte_rate=1000.0" in output
    assert "request_percentage=200.0" in output
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
    run_tool(node, CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in run_tool(node, CONFIGS, "--describe", *entity)


def test_kafka_configs_sets_log_levels(node: OttlaNode) -> None:
    """Requests are logged while their logger has level DEBUG."""
    requests = ("--entity-type", "broker-loggers", "--entity-name", "1", "--alter")
    run_tool(node, CONFIGS, *requests, "--add-config", "kafka.request.logger=DEBUG")
    assert send(node, "orders") is None
    run_tool(node, CONFIGS, *requests, "--delete-config", "kafka.request.logger")
    written = node.log_path.read_text()
    assert '"requestApiKeyName":"Produce"' in written
    assert send(node, "orders") is None
    assert node.log_path.read_text() == written
