"""Kafka's own tools for topics, records and clusters, unmodified, on a node: what `bin/kafka-*.sh` starts.

Those for groups are in `tests/conformance/interop`, with the clients whose groups they look at; those for transactions
in `tests/unit/coordinators/transactions`. Each runs once here: Kafka's own tests of them are in
`tests/conformance/suite`.
"""

import json
import re
import subprocess
from pathlib import Path

from bench.harness.kafka_jars import class_path, java
from confluent_kafka.admin import AdminClient

from tests.conformance.clients.topics import create
from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_node import CLUSTER_ID, OttlaNode

TOOL_TIMEOUT_S = 90
TOOLS = "org.apache.kafka.tools"


def tool(name: str, *words: str, told: str = "") -> str:
    """What one of Kafka's tools prints; it must succeed."""
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), name, *words]
    done = subprocess.run(
        command, input=told, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def at(node: OttlaNode) -> tuple[str, str]:
    return ("--bootstrap-server", node.address)


def test_kafka_topics(node: OttlaNode) -> None:
    topics = f"{TOOLS}.TopicCommand"
    made = tool(topics, *at(node), "--create", "--topic", "made", "--partitions", "2", "--config", "retention.ms=7000")
    assert "Created topic made." in made
    described = tool(topics, *at(node), "--describe", "--topic", "made")
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=7000", described)
    assert described.count("Leader: 1") == 2
    tool(topics, *at(node), "--delete", "--topic", "made")
    assert "made" not in AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=TOOL_TIMEOUT_S).topics


def test_kafka_configs_of_topics(node: OttlaNode) -> None:
    create(node, "configured")
    configs, which = "kafka.admin.ConfigCommand", ("--entity-type", "topics", "--entity-name", "configured")
    tool(configs, *at(node), "--alter", *which, "--add-config", "cleanup.policy=[compact,delete],segment.bytes=2000000")
    described = tool(configs, *at(node), "--describe", *which)
    assert "cleanup.policy=compact,delete" in described
    assert "segment.bytes=2000000" in described


def test_console_producer_get_offsets_and_delete_records(node: OttlaNode, tmp_path: Path) -> None:
    create(node, "spoken")
    lines = [f"h{n}:{n}\tkey {n}\tvalue {n}" for n in range(10)]
    tool(
        f"{TOOLS}.ConsoleProducer",
        *(*at(node), "--topic", "spoken"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        told="".join(f"{line}\n" for line in lines),
    )
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *(*at(node), "--topic", "spoken", "--partition", "0", "--from-beginning", "--max-messages", "10"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    assert read.splitlines() == lines
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": "spoken", "partition": 0, "offset": 4}], "version": 1}))
    deleted = tool(f"{TOOLS}.DeleteRecordsCommand", *at(node), "--offset-json-file", str(wanted))
    assert re.search(r"partition: spoken-0\s+low_watermark: 4", deleted)
    earliest = tool(f"{TOOLS}.GetOffsetShell", *at(node), "--topic", "spoken", "--time", "earliest")
    assert earliest.split() == ["spoken:0:4"]


def test_verifiable_producer(node: OttlaNode) -> None:
    create(node, "verified", 2)
    printed = tool(f"{TOOLS}.VerifiableProducer", *at(node), "--topic", "verified", "--max-messages", "500")
    told = [json.loads(line) for line in printed.splitlines()]
    sent = [each for each in told if each["name"] == "producer_send_success"]
    assert sorted(int(each["value"]) for each in sent) == list(range(500))
    assert {each["partition"] for each in sent} <= {0, 1}


def test_producer_and_consumer_performance(node: OttlaNode) -> None:
    create(node, "performed", 2)
    produced = tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "performed", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *(*at(node), "--command-property", "compression.type=lz4"),
    )
    assert "20000 records sent" in produced
    consumed = tool(f"{TOOLS}.ConsumerPerformance", *at(node), "--topic", "performed", "--num-records", "20000")
    header, figures = (line.split(", ") for line in consumed.strip().splitlines()[-2:])
    assert int(figures[header.index("data.consumed.in.nMsg")]) >= 20_000


def test_tools_for_the_cluster(node: OttlaNode) -> None:
    assert CLUSTER_ID in tool(f"{TOOLS}.ClusterTool", "cluster-id", *at(node))
    features = tool(f"{TOOLS}.FeatureCommand", *at(node), "describe")
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", features)
    status = tool(f"{TOOLS}.MetadataQuorumCommand", *at(node), "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", status)


def test_kafka_log_dirs(node: OttlaNode) -> None:
    create(node, "stored", 2)
    printed = tool(f"{TOOLS}.LogDirsCommand", *at(node), "--describe", "--topic-list", "stored")
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(node.directory)
    assert sorted(each["partition"] for each in directory["partitions"]) == ["stored-0", "stored-1"]


def test_kafka_broker_api_versions(node: OttlaNode) -> None:
    printed = tool(f"{TOOLS}.BrokerApiVersionsCommand", *at(node))
    assert {"Produce(0): 0 to 13", "Fetch(1): 4 to 18", "ApiVersions(18): 0 to 4"} <= {
        line.strip().partition(" [")[0] for line in printed.splitlines()
    }
