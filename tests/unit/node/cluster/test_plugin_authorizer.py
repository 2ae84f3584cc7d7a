"""The same authorizer on a separate broker and controller: both authorize a forwarded request."""

from pathlib import Path

import pytest

from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from tests.conformance.differential.harness import Side
from tests.support.ottla_cluster import OttlaCluster

CONFIGS = "DESCRIBE_CONFIGS:TOPIC"
ROOT = Path(__file__).parents[4]


def test_a_forwarded_request_is_authorized_on_both_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")
    settings = {"authorizer.class.name": "tests.unit.plugins.rules:Rights"}
    cluster = OttlaCluster(tmp_path, roles={1: "controller", 2: "broker"}, settings=settings)
    with cluster.running():
        broker = cluster.nodes[2]
        side = Side("Ottla", broker.ports, broker.log_tail)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("open", "plain")]
        answer = side.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert [topic.error_code for topic in answer.topics] == [0, 0], answer
        side.close_all()
        for node in cluster.nodes.values():
            words = node.log_path.read_text()
            asked = [line for line in words.splitlines() if " CreateTopics v7: " in line]
            assert asked == [
                "asked by User:ANONYMOUS differential CreateTopics v7: CREATE:CLUSTER:kafka-cluster:1",
                f"asked by User:ANONYMOUS differential CreateTopics v7: {CONFIGS}:open:1 {CONFIGS}:plain:1",
            ], node.id
        of_controller = cluster.nodes[1].log_path.read_text()
        assert "Envelope v0: CLUSTER_ACTION:CLUSTER:kafka-cluster:1" in of_controller
        assert "BrokerHeartbeat" in of_controller
