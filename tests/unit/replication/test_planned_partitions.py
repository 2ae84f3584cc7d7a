"""Many new partitions are created a few at a time, and each before its first use."""

from collections.abc import Callable

import pytest

from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.messages.records.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.storage.log.settings import LogSettings
from tests.support.clock import Clock, runtime_on
from tests.support.logs_in_memory import NOW_MS, make_logs
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.replication.applying import Applied

ME, OTHER = 1, 2
MANY = 250
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


class Broker(Applied):
    """The replicas of a broker whose event loop runs on demand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.placed: list[Partition] = []
        partitions = Partitions(
            ME,
            make_logs(SimulatedDisk(1), "/data"),
            runtime_on(Clock(NOW_MS)),
            settings_of=lambda image, topic: LogSettings(),
        )
        super().__init__(partitions)
        self.partitions.call_later = lambda delay, action: self.due.append(action)
        self.partitions.on_placed = self.placed.append

    def create(self, count: int, topic_id: bytes = ID) -> None:
        self.apply(TopicRecord(name="t", topic_id=topic_id), *(new(number, topic_id) for number in range(count)))

    def run(self) -> int:
        """Do what is due, and what becomes due by that; returns how often something was."""
        steps = 0
        while self.due:
            self.due.pop(0)()
            steps += 1
        return steps

    def made(self) -> list[int]:
        return sorted(partition.index for partition in self.partitions)


def new(number: int, topic_id: bytes) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        leader_epoch=0,
        partition_epoch=0,
        replicas=[ME, OTHER],
        isr=[ME, OTHER],
        leader=ME,
        directories=[ID, ID],
    )


def change(number: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=ID, leader=leader)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_many_are_made_a_few_at_a_time_and_few_at_once(broker: Broker) -> None:
    broker.create(MANY)
    assert broker.made() == []
    assert broker.run() == 3
    assert broker.made() == list(range(MANY))
    assert all(partition.is_leader for partition in broker.partitions)
    assert [partition.index for partition in broker.placed] == list(range(MANY))

    few = Broker()
    few.create(10)
    assert few.made() == list(range(10))
    assert not few.due


def test_a_planned_partition_is_created_on_first_use(broker: Broker) -> None:
    broker.create(MANY)
    partitions = broker.partitions
    found = [partitions.get("t", 7), partitions.get_by_id(ID, 8), partitions.find("t", 9), partitions.find_by_id(ID, 6)]
    assert [each.index for each in found if each is not None and each.is_leader] == [7, 8, 9, 6]
    assert broker.made() == [6, 7, 8, 9]
    broker.run()
    assert broker.made() == list(range(MANY))
    assert partitions.get("t", 7) is found[0]
    assert len(broker.placed) == MANY
    assert partitions.find("t", MANY) is None
    assert partitions.find_by_id(OTHER_ID, 0) is None


def test_a_planned_partition_with_a_new_leader_follows(broker: Broker) -> None:
    broker.create(MANY)
    broker.apply(change(3, OTHER), change(4, ME))
    broker.run()
    assert [broker.partitions.get("t", number).is_leader for number in (2, 3, 4)] == [True, False, True]
    assert [broker.partitions.get("t", number).leader_epoch for number in (2, 3, 4)] == [0, 1, 1]


def test_planned_partitions_of_a_deleted_topic_are_never_created(broker: Broker) -> None:
    broker.create(MANY)
    broker.apply(RemoveTopicRecord(topic_id=ID))
    broker.run()
    assert broker.made() == []
    assert not list(broker.partitions.logs)
    with pytest.raises(UnknownTopicOrPartition):
        broker.partitions.get("t", 0)


def test_a_recreated_topic_replaces_the_old_log(broker: Broker) -> None:
    broker.create(MANY)
    broker.apply(
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER_ID),
        *(new(number, OTHER_ID) for number in range(MANY)),
    )
    broker.run()
    assert {partition.topic_id for partition in broker.partitions} == {OTHER_ID}
    assert broker.made() == list(range(MANY))


def test_a_broker_that_stops_makes_no_more(broker: Broker) -> None:
    broker.create(MANY)
    broker.partitions.stop()
    broker.run()
    assert broker.made() == []
