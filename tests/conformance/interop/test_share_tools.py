"""Kafka's own share consumers and tools work with an Ottla node as they are."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.harness.kafka_jars import java, kafka_libs
from confluent_kafka import Producer

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 90
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
CONFIGS = "kafka.admin.ConfigCommand"
FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
RECORDS = 200


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path, {**SETTINGS, "auto.create.topics.enable": "true"})
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def tool(node: OttlaNode, name: str, *arguments: str) -> str:
    """What one of Kafka's tools says when it is done."""
    command = [str(java()), *FAST, "-cp", f"{kafka_libs()}/*", name, "--bootstrap-server", node.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(node: OttlaNode) -> list[str]:
    values = [f"value {number}" for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": node.address})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(TIMEOUT_S) == 0
    return values


def test_share_consumers_read_and_tools_look_and_reset(node: OttlaNode) -> None:
    values = produce(node)
    earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    tool(node, CONFIGS, "--entity-type", "groups", "--entity-name", "g", *earliest)
    how = ("--topic", "orders", "--group", "g", "--timeout-ms", "10000")
    read = tool(node, CONSUMER, *how, "--max-messages", str(RECORDS)).splitlines()
    assert sorted(read) == sorted(values)
    assert tool(node, GROUPS, "--list").split() == ["g"]
    assert "Empty" in tool(node, GROUPS, "--describe", "--group", "g", "--state")
    told = tool(node, GROUPS, "--describe", "--group", "g").splitlines()
    (row,) = [line.split() for line in told if line.startswith("g ")]
    assert row[1:3] == ["orders", "0"]
    assert row[-1] == "0", "nothing is left to read"
    reset = ("--reset-offsets", "--group", "g", "--topic", "orders", "--to-earliest", "--execute")
    tool(node, GROUPS, *reset)
    measured = tool(node, PERFORMANCE, "--topic", "orders", "--group", "g", "--num-records", str(RECORDS))
    assert f" {RECORDS}," in measured.splitlines()[-1]
    tool(node, GROUPS, "--delete-offsets", "--group", "g", "--topic", "orders")
    assert "successful" in tool(node, GROUPS, "--delete", "--group", "g")
    assert tool(node, GROUPS, "--list").split() == []
