"""Leader epochs and partition epochs rise: older assignments are rejected, counted and logged."""

import logging
from collections.abc import Iterator

import pytest

from ottla.broker.metrics.broker_metrics import watch_broker
from ottla.broker.metrics.registry import Registry
from ottla.metadata.image.values import DIRECTORY_UNASSIGNED
from ottla.protocol.messages.records.metadata_records import PartitionRecord
from ottla.replication.partition import Partition
from tests.support.broker import ME, Broker
from tests.support.exposition import Exposition
from tests.support.logs_in_memory import batch

OTHER = 2
TERMS = [(4, 8), (4, 10), (5, 8)]
"""Leader epochs and partition epochs of which at least one is older than 5 and 9."""
REFUSED = "ottla_replica_stale_assignments_total"


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


class Fetching:
    """Records what is fetched."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def follow(self, partition: Partition) -> None:
        self.calls.append(("follow", partition.leader_epoch))

    def leave(self, partition: Partition) -> None:
        self.calls.append(("leave", partition.leader_epoch))

    def settle(self) -> None:
        """Nothing is to be closed."""


class Bench:
    """A partition of brokers 1 and 2 in leader epoch 5 and partition epoch 9."""

    def __init__(self, broker: Broker, leader: int) -> None:
        self.broker = broker
        broker.register(OTHER)
        self.topic_id = broker.create_topic("t", replicas=(ME, OTHER))
        self.fetching = broker.partitions.fetching = Fetching()
        self.assign(leader=leader, leader_epoch=5, partition_epoch=9)
        self.fetching.calls.clear()

    @property
    def partition(self) -> Partition:
        return self.broker.partition("t")

    def assign(self, *, leader: int, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...] = (1, 2)) -> None:
        self.broker.apply(
            PartitionRecord(
                partition_id=0,
                topic_id=self.topic_id,
                replicas=[ME, OTHER],
                isr=list(isr),
                leader=leader,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                directories=[DIRECTORY_UNASSIGNED] * 2,
            )
        )

    def refused(self) -> float:
        registry = Registry()
        watch_broker(registry, self.broker.node)
        return Exposition(registry.render())[REFUSED]


@pytest.mark.parametrize(
    ("was_leader", "leads", "epochs"),
    [
        (was_leader, leads, epochs)
        for was_leader in (True, False)
        for leads in (True, False)
        for epochs in TERMS
        if not (was_leader and leads and epochs[0] == 5)  # within its term a leader may know more than the metadata
    ],
)
def test_an_earlier_term_is_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, was_leader: bool, leads: bool, epochs: tuple[int, int]
) -> None:
    bench = Bench(broker, ME if was_leader else OTHER)
    with caplog.at_level(logging.WARNING, "ottla.replication.partitions"):
        bench.assign(leader=ME if leads else OTHER, leader_epoch=epochs[0], partition_epoch=epochs[1])
    partition = bench.partition
    assert (partition.is_leader, partition.leader_epoch) == (was_leader, 5)
    assert partition.assignment.partition_epoch == 9
    assert bench.fetching.calls == []
    assert bench.refused() == 1
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"t-0 does not {'lead' if leads else 'follow'} because of stale metadata: it is at leader epoch 5 and "
        f"partition epoch 9, the metadata at leader epoch {epochs[0]} and partition epoch {epochs[1]}"
    )


def test_a_leader_records_its_epochs_in_its_log(broker: Broker) -> None:
    """An epoch that falls would be written behind a larger one, and followers could not find where logs part."""
    bench = Bench(broker, ME)
    broker.append("t", 0, batch(b"1"))
    bench.assign(leader=ME, leader_epoch=3, partition_epoch=10)
    broker.append("t", 0, batch(b"2"))
    assert [entry.epoch for entry in bench.partition.log.epochs.entries] == [5]


def test_a_leader_ahead_of_the_metadata_is_not_stale(broker: Broker) -> None:
    """The answer to AlterPartition is often ahead of the metadata log."""
    bench = Bench(broker, ME)
    bench.assign(leader=ME, leader_epoch=5, partition_epoch=8, isr=(1,))
    assert bench.partition.isr == (1, 2)
    assert bench.refused() == 0


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_later_epochs_are_taken(broker: Broker, leader: int) -> None:
    bench = Bench(broker, leader)
    bench.assign(leader=leader, leader_epoch=5, partition_epoch=10, isr=(leader,))
    assert bench.partition.isr == (leader,)
    other = ME + OTHER - leader
    bench.assign(leader=other, leader_epoch=6, partition_epoch=11)
    assert (bench.partition.leader_epoch, bench.partition.is_leader) == (6, other == ME)
    assert bench.refused() == 0
