"""Share partitions under random members, expiring locks, failing writes and changing leaders.

No record is with two members at once. An accepted record is never delivered again; any other record is, up to the
delivery limit. The next leader loads what the last one wrote.
"""

import random

import pytest

from ottla.coordinators.share.acknowledging import AcknowledgementBatch, AcknowledgeType, acknowledge
from ottla.coordinators.share.acquiring import AcquiredRecords, AcquireRequest, BatchRange, acquire
from ottla.coordinators.share.batches import StateBatch, combine
from ottla.coordinators.share.delivery import RecordState
from ottla.coordinators.share.partition import ShareLimits, SharePartition, StateChange
from ottla.protocol.errors import ApiError

MEMBERS = ("a", "b", "c")


class World:
    """A log, the written state of its share partition, and an observer's view of each record."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.limits = ShareLimits(
            max_locks=self.chance.choice([4, 15, 100]), max_deliveries=self.chance.choice([2, 3, 5]), lock_ms=100
        )
        self.spans: list[BatchRange] = []
        self.end = 0
        self.now_ms = 1000
        self.start = 0
        self.batches: tuple[StateBatch, ...] = ()
        self.share = SharePartition(0)
        self.held: dict[int, tuple[str, int]] = {}
        """The member and lock deadline of each acquired record."""
        self.done: dict[int, AcknowledgeType] = {}
        self.delivery_count: dict[int, int] = {}
        self.writing: list[tuple[list[StateChange], dict[int, AcknowledgeType]]] = []

    def produce(self) -> None:
        size = self.chance.randrange(1, 7)
        self.spans.append(BatchRange(self.end, self.end + size - 1))
        self.end += size

    def fetch(self) -> None:
        member = self.chance.choice(MEMBERS)
        if not self.share.can_acquire(self.limits):
            return
        offset = self.share.next_offset()
        spans = [span for span in self.spans if span.last >= offset][: self.chance.randrange(1, 4)]
        asked = AcquireRequest(
            member, self.chance.randrange(1, 12), self.chance.randrange(1, 12), self.chance.choice([False, True])
        )
        found = acquire(self.share, asked, offset, spans, self.limits, self.now_ms)
        count = 0
        for run in found:
            self.check_run(run, member)
            count += run.last - run.first + 1
        if asked.is_strict:
            assert count <= asked.max_records

    def check_run(self, run: AcquiredRecords, member: str) -> None:
        for offset in range(run.first, run.last + 1):
            assert offset < self.end
            assert offset not in self.held, f"{offset} is with {self.held[offset]}, and goes to {member}"
            assert offset not in self.done, f"{offset} was {self.done[offset]}, and is delivered again"
            assert run.delivery_count <= self.limits.max_deliveries
            assert (
                run.delivery_count >= self.delivery_count.get(offset, 0)
                or self.delivery_count[offset] >= run.delivery_count
            )
            self.delivery_count[offset] = run.delivery_count
            self.held[offset] = member, self.now_ms + self.limits.lock_ms

    def answer(self) -> None:
        """Let a member acknowledge some of its records, with random types."""
        member = self.chance.choice(MEMBERS)
        pending = {offset for _, kinds in self.writing for offset in kinds}
        mine = sorted(offset for offset, (holder, _) in self.held.items() if holder == member and offset not in pending)
        if not mine:
            return
        first = self.chance.choice(mine)
        last = first
        while last + 1 in mine and self.chance.random() < 0.7:
            last += 1
        kinds = [
            self.chance.choice(
                [AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
            )
            for _ in range(first, last + 1)
        ]
        if self.chance.random() < 0.5:
            kinds = kinds[:1]
        changes = acknowledge(self.share, member, [AcknowledgementBatch(first, last, kinds)], self.limits, self.now_ms)
        said = {offset: AcknowledgementBatch(first, last, kinds).type_of(offset) for offset in range(first, last + 1)}
        self.writing.append((changes, said))

    def answer_wrongly(self) -> None:
        """Acknowledge records that the member does not own: that fails and changes nothing."""
        member = self.chance.choice(MEMBERS)
        others = [offset for offset, (holder, _) in self.held.items() if holder != member]
        if others:
            before = (self.share.start, self.share.complete_count)
            with pytest.raises(ApiError):
                acknowledge(
                    self.share, member, [AcknowledgementBatch(others[0], others[0], [1])], self.limits, self.now_ms
                )
            assert (self.share.start, self.share.complete_count) == before

    def write(self) -> None:
        """Complete the oldest write, with success or failure."""
        if not self.writing:
            return
        changes, said = self.writing.pop(0)
        written = self.chance.random() < 0.8
        if written:
            self.persist([change.batch for change in changes])
        self.share.settle(changes, self.now_ms, written=written)
        for offset, kind in said.items():
            if written:
                self.held.pop(offset, None)
                is_over = kind is AcknowledgeType.RELEASE and self.delivery_count[offset] >= self.limits.max_deliveries
                if kind is not AcknowledgeType.RELEASE or is_over:
                    self.done[offset] = kind
            elif offset in self.held and self.held[offset][1] <= self.now_ms:
                self.expired(offset)

    def persist(self, batches: list[StateBatch]) -> None:
        self.start = self.share.start
        self.batches = combine((*self.batches, *batches), self.start)

    def wait(self) -> None:
        self.now_ms += self.chance.randrange(80)
        found = self.share.expire(self.now_ms, self.limits)
        pending = {offset for _, kinds in self.writing for offset in kinds}
        late = {offset for offset, (_, until) in self.held.items() if until <= self.now_ms and offset not in pending}
        assert late == {offset for first, last, *_ in found for offset in range(first, last + 1)}
        for offset in late:
            self.expired(offset)
        if found:
            self.persist(found)
        self.share.advance()

    def expired(self, offset: int) -> None:
        del self.held[offset]
        if self.delivery_count[offset] >= self.limits.max_deliveries:
            self.done[offset] = AcknowledgeType.REJECT

    def leave(self) -> None:
        member = self.chance.choice(MEMBERS)
        changes = self.share.release(member, self.limits)
        said = {
            offset: AcknowledgeType.RELEASE for _, batch in changes for offset in range(batch.first, batch.last + 1)
        }
        if changes:
            self.writing.append((changes, said))

    def move(self) -> None:
        """Change the leader: unwritten changes are lost, and their records delivered again."""
        self.share = SharePartition(self.start, self.batches)
        self.held.clear()
        self.writing.clear()
        written = {offset: state for first, last, state, _ in self.batches for offset in range(first, last + 1)}
        for offset in list(self.done):
            if offset >= self.start and written.get(offset) not in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
                assert self.done[offset] is AcknowledgeType.REJECT, "what was accepted is written down"
                del self.done[offset]
        self.delivery_count = {}

    def check(self) -> None:
        share = self.share
        finished = 0
        for batch in share.in_flight_batches:
            for first, last, delivery in batch.deliveries():
                assert 0 <= delivery.count <= self.limits.max_deliveries
                if delivery.state.is_final:
                    finished += share.counted(first, last)
        assert share.complete_count == finished
        assert all(offset in self.done for offset in range(share.start)), "the start passes what is not done with"


@pytest.mark.parametrize("seed", range(60))
def test_a_record_is_with_one_member_and_delivered_until_finished(seed: int) -> None:
    world = World(seed)
    steps = [
        *[world.produce, world.fetch, world.answer] * 4,
        *[world.write, world.wait] * 3,
        world.leave,
        world.answer_wrongly,
        world.move,
    ]
    for _ in range(300):
        world.chance.choice(steps)()
        world.check()
    _drain(world)
    assert world.share.start == world.end
    assert sorted(world.done) == list(range(world.end))


def _drain(world: World) -> None:
    """Let all members continue until every record is finished."""
    for _ in range(3000):
        if world.share.start >= world.end:
            return
        for step in (world.fetch, world.answer, world.write, world.write, world.wait):
            step()
            world.check()
    raise AssertionError(f"stuck at {world.share.start} of {world.end}: {list(world.share.in_flight_batches)}")


def test_a_gap_left_by_an_earlier_leader_is_delivered() -> None:
    share = SharePartition(
        0, [StateBatch(2, 3, RecordState.ACKNOWLEDGED, 1), StateBatch(6, 7, RecordState.AVAILABLE, 1)]
    )
    asked = AcquireRequest("a", 100, 100)
    found: list[AcquiredRecords] = []
    while share.next_offset() < 10:
        offset = share.next_offset()
        spans = [span for span in (BatchRange(0, 4), BatchRange(5, 9)) if span.last >= offset]
        found += acquire(share, asked, offset, spans, ShareLimits(), 0)
    times = {offset: run.delivery_count for run in found for offset in range(run.first, run.last + 1)}
    assert times == {**dict.fromkeys((0, 1, 4, 5, 8, 9), 1), 6: 2, 7: 2}


def test_a_record_that_keeps_failing_is_finally_delivered_alone() -> None:
    share, limits = SharePartition(0), ShareLimits(max_deliveries=5)
    sizes = []
    for _ in range(40):
        if share.start == 8:
            break
        found = acquire(share, AcquireRequest("a", 100, 100), share.next_offset(), [BatchRange(0, 7)], limits, 0)
        sizes.append(sum(run.last - run.first + 1 for run in found))
        changes = share.release("a", limits)
        share.settle(changes, 0, written=True)
    assert share.start == 8
    assert sizes == [8, 8, 8, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1]


def test_records_before_a_new_log_start_offset_are_archived() -> None:
    share, limits = SharePartition(0), ShareLimits()
    acquire(share, AcquireRequest("a", 6, 100), 0, [BatchRange(0, 2), BatchRange(3, 5), BatchRange(6, 9)], limits, 0)
    share.settle(share.release("a", limits), 0, written=True)
    share.move_start(4)
    assert share.next_offset() == 4
    assert [
        run[:2]
        for run in acquire(share, AcquireRequest("b", 100, 100), 4, [BatchRange(3, 5), BatchRange(6, 9)], limits, 0)
    ] == [
        (4, 5),
        (6, 9),
    ]


def test_a_lock_can_be_renewed() -> None:
    share, limits = SharePartition(0), ShareLimits(lock_ms=100)
    acquire(share, AcquireRequest("a", 100, 100), 0, [BatchRange(0, 3)], limits, 0)
    assert not acknowledge(share, "a", [AcknowledgementBatch(1, 2, [AcknowledgeType.RENEW])], limits, 50)
    assert [(batch.first, batch.last) for batch in share.expire(100, limits)] == [(0, 0), (3, 3)]
    assert [(batch.first, batch.last) for batch in share.expire(150, limits)] == [(1, 1), (2, 2)]
    acquire(share, AcquireRequest("a", 100, 100), 0, [BatchRange(0, 3)], limits, 200)
    with pytest.raises(ApiError, match="not enabled"):
        acknowledge(
            share, "a", [AcknowledgementBatch(0, 0, [AcknowledgeType.RENEW])], limits._replace(may_renew=False), 200
        )
