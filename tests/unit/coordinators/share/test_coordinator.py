"""The share coordinator: its records, its fencing, and the part of its log that it needs."""

from collections.abc import Iterable
from typing import Any

import pytest
from immutables import Map

from ottla.coordinators.share.batches import StateBatch
from ottla.coordinators.share.behaviour import COLD, PRUNE, ShareStatesBehaviour
from ottla.coordinators.share.context import Context
from ottla.coordinators.share.coordinator import delete, initialize, read, write
from ottla.coordinators.share.state import SharePartitionKey, ShareStates
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, UnknownTopicOrPartition
from ottla.protocol.messages.records.share_state_records import ShareSnapshotValue, ShareUpdateValue
from ottla.protocol.messages.rpc import delete_share_group_state as deleting
from ottla.protocol.messages.rpc import initialize_share_group_state as initializing
from ottla.protocol.messages.rpc import read_share_group_state as reading
from ottla.protocol.messages.rpc import write_share_group_state as writing
from ottla.protocol.wire.batch import read_batches
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import batch_of, entries_of

TOPIC_ID = bytes(range(16))
PARTITION = Partition((1,), (1,), (), (), 1, 0, 0, (bytes(16),), 0, (), ())
TOPIC = Topic("t", TOPIC_ID, (PARTITION, PARTITION))
IMAGE = Image(topics=Map({"t": TOPIC}), topics_by_id=Map({TOPIC_ID: TOPIC}))
KEY, OTHER = SharePartitionKey("g", TOPIC_ID, 0), SharePartitionKey("g", TOPIC_ID, 1)


class Pruned:
    """A ticket that remembers its response."""

    def __init__(self) -> None:
        self.responses: list[Any] = []

    def answer(self, response: Any, /) -> None:
        self.responses.append(response)

    def fail(self, error: Exception, /) -> None:
        raise AssertionError(error)


class World:
    """One coordinator and its log, which stores encoded records."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.pruned = Pruned()
        self.behaviour = ShareStatesBehaviour(self.context)
        self.log: list[tuple[int, bytes]] = []
        self.end = 0
        self.state = self.behaviour.empty_state()

    def context(self) -> Context:
        return Context(
            now_ms=self.now_ms, image=IMAGE, prune=self.pruned, updates_per_snapshot=3, cold_ms=500, prune_ms=100
        )

    def apply(self, decision: Decision[Any]) -> Any:
        if decision.records:
            data = bytes(batch_of(list(decision.records), timestamp=self.now_ms))
            self.log.append((self.end, data))
            self.state = self.replayed(self.state, [(self.end, data)])
            self.end += len(decision.records)
        for ticket, response in decision.answers:
            ticket.answer(response)
        assert self.replayed(ShareStates(), self.log) == self.state, "who loads the log knows the same"
        return decision.reply

    def replayed(self, state: ShareStates, log: Iterable[tuple[int, bytes]]) -> ShareStates:
        for offset, data in log:
            for pos, header in read_batches(data):
                entries = entries_of(self.behaviour.kinds, data, pos, header)
                state = self.behaviour.replay(state, entries, self.now_ms, offset)
        return state

    def initialize(self, key: SharePartitionKey = KEY, epoch: int = 1, start: int = 0) -> None:
        asked = initializing.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
        self.apply(initialize(self.state, key, asked, self.context()))

    def write(
        self, *runs: StateBatch, key: SharePartitionKey = KEY, epoch: int = 1, leader_epoch: int = 0, start: int = -1
    ) -> Any:
        asked = writing.PartitionData(
            partition=key.partition,
            state_epoch=epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=times)
                for first, last, state, times in runs
            ],
        )
        decision = write(self.state, key, asked, self.context())
        self.apply(decision)
        (record,) = decision.records
        return record.value

    def read(self, leader_epoch: int) -> Any:
        asked = reading.PartitionData(partition=0, leader_epoch=leader_epoch)
        return self.apply(read(self.state, KEY, asked, self.context()))


def test_a_number_of_updates_causes_a_snapshot() -> None:
    world = World()
    world.initialize()
    kinds = [type(world.write(StateBatch(number, number, 2, 1))) for number in range(9)]
    assert kinds == [ShareUpdateValue] * 3 + [ShareSnapshotValue] + [ShareUpdateValue] * 3 + [ShareSnapshotValue] + [
        ShareUpdateValue
    ]
    assert world.state.partitions[KEY].batches == (StateBatch(0, 8, 2, 1),)


def test_leaders_with_older_leader_or_state_epochs_are_fenced() -> None:
    world = World()
    world.initialize(epoch=2)
    world.read(5)
    with pytest.raises(FencedLeaderEpoch):
        world.read(4)
    with pytest.raises(FencedLeaderEpoch):
        world.write(leader_epoch=4, epoch=2)
    with pytest.raises(FencedStateEpoch):
        world.write(leader_epoch=5, epoch=1)
    with pytest.raises(FencedStateEpoch):
        world.initialize(epoch=1)
    world.write(StateBatch(0, 3, 2, 1), leader_epoch=5, epoch=2)
    world.initialize(epoch=3, start=7)
    assert (world.read(6).start_offset, world.read(6).state_batches) == (7, [])


def test_missing_share_partitions_are_rejected() -> None:
    world = World()
    with pytest.raises(InvalidRequest):
        world.read(0)
    with pytest.raises(InvalidRequest):
        world.write()
    with pytest.raises(UnknownTopicOrPartition):
        world.initialize(SharePartitionKey("g", TOPIC_ID, 9))
    asked = deleting.PartitionData(partition=0)
    assert not delete(world.state, KEY, asked, world.context()).records


def test_the_log_is_needed_from_the_oldest_snapshot_on() -> None:
    world = World()
    world.initialize(KEY)
    world.initialize(OTHER)
    for number in range(4):
        world.write(StateBatch(number, number, 2, 1))
    world.apply(world.behaviour.on_timer(world.state, PRUNE, world.now_ms))
    assert world.pruned.responses.pop()[1] == 1, "the other has its first snapshot there"
    world.now_ms += 500
    world.apply(world.behaviour.on_timer(world.state, COLD, world.now_ms))
    world.apply(world.behaviour.on_timer(world.state, PRUNE, world.now_ms))
    (_, needed) = world.pruned.responses.pop()
    kept = [(offset, data) for offset, data in world.log if offset >= needed]
    assert len(kept) == 1
    assert world.replayed(ShareStates(), kept).partitions[OTHER].start_offset == 0
    world.apply(world.behaviour.on_timer(world.state, COLD, world.now_ms + 100))
    assert len(world.log) == 7, "what did not change needs no other one"


def test_a_deleted_topic_loses_its_share_partitions() -> None:
    world = World()
    world.initialize(KEY)
    world.initialize(OTHER)
    decision = world.behaviour.on_metadata_changed(world.state, Changes.between(IMAGE, Image()))
    assert decision is not None
    world.apply(decision)
    assert not world.state.partitions
    world.apply(world.behaviour.on_timer(world.state, PRUNE, world.now_ms))
    assert not world.pruned.responses
