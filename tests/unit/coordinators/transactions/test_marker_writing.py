"""The marker of a transaction needs the same in-sync replicas as a produce with acks=all."""

from collections.abc import Iterator

import pytest

from ottla.coordinators.runtime.transactions.marker_writing import append_marker
from ottla.protocol.errors import NotEnoughReplicas
from ottla.protocol.messages.records.metadata_records import ConfigRecord
from ottla.storage.state_machine.entries import Marker
from tests.support.broker import Broker
from tests.support.logs_in_memory import batch

COMMIT = Marker(producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    broker.register(2)
    broker.register(3)
    yield broker
    broker.close()


def create_topic(broker: Broker, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
    broker.create_topic("t", replicas=replicas, isr=isr)
    broker.apply(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"))


def test_a_partition_below_its_minimum_takes_no_marker(broker: Broker) -> None:
    create_topic(broker, replicas=(1, 2, 3), isr=(1,))
    with pytest.raises(NotEnoughReplicas):
        append_marker(broker.partition("t"), COMMIT, broker.clock.ms)


@pytest.mark.parametrize(("replicas", "isr"), [((1,), (1,)), ((1, 2), (1, 2)), ((1, 2, 3), (1, 2))])
def test_a_marker_needs_no_more_replicas_than_the_partition_has(
    broker: Broker, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    create_topic(broker, replicas, isr)
    partition = broker.partition("t")
    partition.append(batch(b"v"), acks=-1, now_ms=broker.clock.ms)
    assert append_marker(partition, COMMIT, broker.clock.ms) == 2
