"""High watermarks are checkpointed while a node runs, not only when it stops."""

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS

TIMEOUT_S = 20.0


def test_high_watermarks_are_checkpointed_at_their_interval(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "replica.high.watermark.checkpoint.interval.ms": "100"})
    node.format()
    checkpoint = node.directory / "replication-offset-checkpoint"
    with node.running():
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": node.address}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        producer = Producer(client)
        for count in (3, 5):
            for _ in range(count):
                producer.produce("t", b"v", partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            expected = "t 0 3" if count == 3 else "t 0 8"
            deadline = time.monotonic() + TIMEOUT_S
            while expected not in (checkpoint.read_text() if checkpoint.exists() else "").splitlines():
                assert time.monotonic() < deadline, f"{expected!r} is not in the checkpoint"
                time.sleep(0.02)
    assert not node.logged_errors()
