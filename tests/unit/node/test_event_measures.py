"""The durations of coordinator and controller events on a real node."""

import time

import pytest
from confluent_kafka import Producer

from ottla.storage.state_machine.times import SPANS
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_forwarded_requests import metrics, node  # noqa: F401 (a fixture)
from tests.unit.node.test_heavy_batches import create


@pytest.mark.parametrize("transactional_id", ["mover"])
def test_events_of_coordinators_and_controller_are_measured(
    node: OttlaNode,  # noqa: F811 (the fixture)
    transactional_id: str,
) -> None:
    create(node, "t")
    before = metrics(node)
    producer = Producer({"bootstrap.servers": node.address, "transactional.id": transactional_id})
    producer.init_transactions(30)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction(30)
    after = metrics(node)
    prefix = "kafka_server_transaction_coordinator_metrics_"
    for name in SPANS:
        assert after[f"{prefix}{name}_count"] > before[f"{prefix}{name}_count"], name
        if name != "event_purgatory_time_ms":  # alone in sync, a node has committed what it has written
            assert after[f"{prefix}{name}_sum"] > before[f"{prefix}{name}_sum"], name
    assert after[f'{prefix}event_processing_time_ms{{quantile="0.99"}}'] > 0
    assert after[f'{prefix}num_partitions{{state="active"}}'] > 0
    assert after[f'{prefix}num_partitions{{state="loading"}}'] == 0
    assert after[f'{prefix}num_partitions{{state="failed"}}'] == 0
    assert after[f"{prefix}event_queue_size"] == 0
    assert 0 < after[f"{prefix}thread_idle_ratio_avg"] < 1
    for kind in ("group", "share"):
        assert after[f"kafka_server_{kind}_coordinator_metrics_event_queue_time_ms_count"] >= 0

    prefix = "kafka_controller_controllereventmanager_"
    time.sleep(1.5)
    later = metrics(node)
    for name in ("eventqueuetimems", "eventqueueprocessingtimems"):
        assert later[f"{prefix}{name}_count"] > after[f"{prefix}{name}_count"] > 0
        assert later[f"{prefix}{name}_sum"] > after[f"{prefix}{name}_sum"] > 0
    started = f"{prefix}eventqueueoperationsstartedcount_total"
    assert later[started] > after[started] > 0
    assert later[f"{prefix}eventqueueoperationstimedoutcount_total"] == 0
    assert 0 < later[f"{prefix}avgidleratio"] < 1
