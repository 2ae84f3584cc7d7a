"""Kafka's share consumers and tools work with an Ottla node."""

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
    node = OttlaNode(tmp_path, {**SETTINGS, "auto.create.topics.enable": "true"})
    node.format()
    with node.running():
        yield node
    assert not node.logged_errors()


def run_tool(node: OttlaNode, name: str, *arguments: str) -> str:
    """Run one of Kafka's tools, and return its output."""
    command = [str(java()), *FAST, "-cp", f"{kafka_libs()}/*", name, "--bootstrap-server", node.address, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def produce(node: OttlaNode) -> list[str]:
    values = [f"value {number}" for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": node.address})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(TIMEOUT_S) == 0
    return values


def test_share_consumers_read_and_tools_describe_and_reset(node: OttlaNode) -> None:
    values = produce(node)
    earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    run_tool(node, CONFIGS, "--entity-type", "groups", "--entity-name", "g", *earliest)
    options = ("--topic", "orders", "--group", "g", "--timeout-ms", "10000")
    read = run_tool(node, CONSUMER, *options, "--max-messages", str(RECORDS)).splitlines()
    assert sorted(read) == sorted(values)
    assert run_tool(node, GROUPS, "--list").split() == ["g"]
    assert "Empty" in run_tool(node, GROUPS, "--describe", "--group", "g", "--state")
    output = run_tool(node, GROUPS, "--describe", "--group", "g").splitlines()
    (row,) = [line.split() for line in output if line.startswith("g ")]
    assert row[1:3] == ["orders", "0"]
    assert row[-1] == "0", "the lag is not 0"
    reset = ("--reset-offsets", "--group", "g", "--topic", "orders", "--to-earliest", "--execute")
    run_tool(node, GROUPS, *reset)
    measured = run_tool(node, PERFORMANCE, "--topic", "orders", "--group", "g", "--num-records", str(RECORDS))
    assert f" {RECORDS}," in measured.splitlines()[-1]
    run_tool(node, GROUPS, "--delete-offsets", "--group", "g", "--topic", "orders")
    assert "successful" in run_tool(node, GROUPS, "--delete", "--group", "g")
    assert run_tool(node, GROUPS, "--list").split() == []
