"""Kafka's unmodified tools for topics, records and clusters (the classes of `bin/kafka-*.sh`) work with a node.

Tools for groups are in `tests/conformance/interop`, beside clients in groups; tools for transactions are in
`tests/unit/coordinators/transactions`. Each tool runs once here: `tests/conformance/suite` runs Kafka's own tests of
the tools.
"""

import json
import re
import subprocess
from pathlib import Path

from bench.harness.kafka_jars import class_path, java
from confluent_kafka.admin import AdminClient

from tests.conformance.clients.topics import create_topic
from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_node import CLUSTER_ID, OttlaNode

TOOL_TIMEOUT_S = 90
TOOLS = "org.apache.kafka.tools"


def run_tool(name: str, *arguments: str, typed: str = "") -> str:
    """Run one of Kafka's tools, which must succeed, and return its output."""
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), name, *arguments]
    finished = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False, encoding="utf-8"
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def bootstrap_option(node: OttlaNode) -> tuple[str, str]:
    return ("--bootstrap-server", node.address)


def test_kafka_topics_creates_describes_and_deletes(node: OttlaNode) -> None:
    topics = f"{TOOLS}.TopicCommand"
    created = run_tool(
        topics,
        *bootstrap_option(node),
        "--create",
        "--topic",
        "made",
        "--partitions",
        "2",
        "--config",
        "retention.ms=7000",
    )
    assert "Created topic made." in created
    described = run_tool(topics, *bootstrap_option(node), "--describe", "--topic", "made")
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=7000", described)
    assert described.count("Leader: 1") == 2
    run_tool(topics, *bootstrap_option(node), "--delete", "--topic", "made")
    assert "made" not in AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=TOOL_TIMEOUT_S).topics


def test_kafka_configs_alters_topics(node: OttlaNode) -> None:
    create_topic(node, "configured")
    configs, entity = "kafka.admin.ConfigCommand", ("--entity-type", "topics", "--entity-name", "configured")
    run_tool(
        configs,
        *bootstrap_option(node),
        "--alter",
        *entity,
        "--add-config",
        "cleanup.policy=[compact,delete],segment.bytes=2000000",
    )
    described = run_tool(configs, *bootstrap_option(node), "--describe", *entity)
    assert "cleanup.policy=compact,delete" in described
    assert "segment.bytes=2000000" in described


def test_console_tools_write_read_and_delete_records(node: OttlaNode, tmp_path: Path) -> None:
    create_topic(node, "spoken")
    lines = [f"h{n}:{n}\tkey {n}\tvalue {n}" for n in range(10)]
    run_tool(
        f"{TOOLS}.ConsoleProducer",
        *(*bootstrap_option(node), "--topic", "spoken"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        typed="".join(f"{line}\n" for line in lines),
    )
    read = run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *(*bootstrap_option(node), "--topic", "spoken", "--partition", "0", "--from-beginning", "--max-messages", "10"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    assert read.splitlines() == lines
    offsets = tmp_path / "wanted.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": "spoken", "partition": 0, "offset": 4}], "version": 1}))
    deleted = run_tool(f"{TOOLS}.DeleteRecordsCommand", *bootstrap_option(node), "--offset-json-file", str(offsets))
    assert re.search(r"partition: spoken-0\s+low_watermark: 4", deleted)
    earliest = run_tool(f"{TOOLS}.GetOffsetShell", *bootstrap_option(node), "--topic", "spoken", "--time", "earliest")
    assert earliest.split() == ["spoken:0:4"]


def test_verifiable_producer_writes_records(node: OttlaNode) -> None:
    create_topic(node, "verified", 2)
    printed = run_tool(
        f"{TOOLS}.VerifiableProducer", *bootstrap_option(node), "--topic", "verified", "--max-messages", "500"
    )
    events = [json.loads(line) for line in printed.splitlines()]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert sorted(int(event["value"]) for event in sent) == list(range(500))
    assert {event["partition"] for event in sent} <= {0, 1}


def test_performance_tools_write_and_read_records(node: OttlaNode) -> None:
    create_topic(node, "performed", 2)
    produced = run_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "performed", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *(*bootstrap_option(node), "--command-property", "compression.type=lz4"),
    )
    assert "20000 records sent" in produced
    consumed = run_tool(
        f"{TOOLS}.ConsumerPerformance", *bootstrap_option(node), "--topic", "performed", "--num-records", "20000"
    )
    header, figures = (line.split(", ") for line in consumed.strip().splitlines()[-2:])
    assert int(figures[header.index("data.consumed.in.nMsg")]) >= 20_000


def test_tools_describe_the_cluster(node: OttlaNode) -> None:
    assert CLUSTER_ID in run_tool(f"{TOOLS}.ClusterTool", "cluster-id", *bootstrap_option(node))
    features = run_tool(f"{TOOLS}.FeatureCommand", *bootstrap_option(node), "describe")
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", features)
    status = run_tool(f"{TOOLS}.MetadataQuorumCommand", *bootstrap_option(node), "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", status)


def test_kafka_log_dirs_describes_replicas(node: OttlaNode) -> None:
    create_topic(node, "stored", 2)
    printed = run_tool(f"{TOOLS}.LogDirsCommand", *bootstrap_option(node), "--describe", "--topic-list", "stored")
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(node.directory)
    assert sorted(part["partition"] for part in directory["partitions"]) == ["stored-0", "stored-1"]


def test_kafka_broker_api_versions_lists_apis(node: OttlaNode) -> None:
    printed = run_tool(f"{TOOLS}.BrokerApiVersionsCommand", *bootstrap_option(node))
    assert {"Produce(0): 0 to 13", "Fetch(1): 4 to 18", "ApiVersions(18): 0 to 4"} <= {
        line.strip().partition(" [")[0] for line in printed.splitlines()
    }
