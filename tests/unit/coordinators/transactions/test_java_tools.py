"""Kafka's Java clients and tools, which use transaction.version 2, with Ottla."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.harness.kafka_jars import class_path, java

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_node import OttlaNode
from tests.unit.coordinators.transactions.clients import Address, read
from tests.unit.coordinators.transactions.leaving import leave_open
from tests.unit.coordinators.transactions.test_real_clients import create

TOOL_TIMEOUT_S = 120
OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dottla.log.level=WARN")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("java"), SETTINGS)
    node.format()
    with node.running():
        yield node


def tool(name: str, *arguments: str) -> str:
    """Run a tool of Kafka's, which must succeed, and return its output."""
    command = [str(java()), *OPTIONS, "-cp", class_path(), f"org.apache.kafka.tools.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def transactions(node: OttlaNode, *arguments: str) -> list[list[str]]:
    """Return the rows of `kafka-transactions` without the header."""
    printed = tool("TransactionsCommand", "--bootstrap-server", node.address, *arguments)
    return [line.split() for line in printed.splitlines()[1:] if line.strip()]


def perform(address: str, topic: str, records: int, transactional_id: str = "performer") -> None:
    tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", "20", "--throughput", "-1"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={address}", "batch.size=1000"),
    )


def test_a_java_producer_commits_many_transactions(node: OttlaNode) -> None:
    create(node, "performed")
    perform(node.address, "performed", 5000)
    assert len(read(node, "performed")) == 5000
    rows = transactions(node, "list")
    assert [row[0] for row in rows if row[0] == "performer"] == ["performer"]
    (row,) = [row for row in rows if row[0] == "performer"]
    assert row[3] == "CompleteCommit"


def test_a_java_producer_uses_several_brokers(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic("t", partitions=6, replicas=2))
        for number in range(3):
            perform(cluster.address, "t", 2000, f"performer-{number}")
        assert len(read(Address(cluster.address), "t", range(6))) == 6000


def test_records_are_copied_once_with_random_aborts(node: OttlaNode) -> None:
    create(node, "from", "to", partitions=1)
    perform(node.address, "from", 400, "filler")
    printed = tool(
        "TransactionalMessageCopier",
        *("--broker-list", node.address, "--input-topic", "from", "--input-partition", "0", "--output-topic", "to"),
        *("--max-messages", "400", "--consumer-group", "copiers", "--transaction-size", "30"),
        *("--transactional-id", "copier", "--enable-random-aborts", "--use-group-metadata"),
    )
    last = json.loads(printed.splitlines()[-1])
    assert int(last["remaining"]) == 0, last
    assert len(read(node, "to", [0])) == 400


def test_the_tools_find_and_abort_a_hanging_transaction(node: OttlaNode) -> None:
    """A producer died with an open transaction, which an administrator lists, describes and aborts."""
    create(node, "hung", partitions=1)
    leave_open(node.address, "hung", "leaver")
    (listed,) = [row for row in transactions(node, "list") if row[0] == "leaver"]
    assert listed[3] == "Ongoing"
    (described,) = transactions(node, "describe", "--transactional-id", "leaver")
    assert described[1] == "leaver"
    assert described[4] == "Ongoing"
    assert described[-1] == "hung-0"
    producers = transactions(node, "describe-producers", "--topic", "hung", "--partition", "0")
    assert [row[0] for row in producers] == [listed[2]]
    assert not transactions(node, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15")
    assert read(node, "hung", [0]) == []
    tool(
        "TransactionsCommand",
        *("--bootstrap-server", node.address, "abort", "--topic", "hung", "--partition", "0", "--start-offset", "0"),
    )
    assert transactions(node, "describe-producers", "--topic", "hung", "--partition", "0")[0][-1] == "None"
    assert read(node, "hung", [0]) == []
