"""A share partition at its leader: which records are in flight, with whom, and where it starts and ends.

    start ≤ all that is in flight ≤ end

Everything before the start is done with; what lies behind the end was never delivered. In between, each record is
available, acquired by one member, acknowledged or archived. Nothing here reads, writes or waits: what is decided is
given back, with what must be written down before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.coordinators.share.batches import StateBatch
from ottla.coordinators.share.delivery import Delivery, InFlightBatch, RecordState
from ottla.coordinators.share.in_flight_batches import InFlightBatches


class ShareLimits(NamedTuple):
    """The settings in force for a share partition."""

    max_locks: int = 2000
    """So many records may be in flight."""
    max_deliveries: int = 5
    lock_ms: int = 30_000
    may_renew: bool = True


class StateChange(NamedTuple):
    """A change that was begun, and what is to be written of it."""

    delivery: Delivery
    batch: StateBatch


class GapWindow:
    """Offsets between batches that were loaded: they were fetched by an earlier leader, and never acknowledged."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class SharePartition:
    """The records of a partition as one group reads them."""

    def __init__(self, start: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start = start
        """Before it all is done with."""
        self.end = start
        """The last offset in flight; where the next fetch begins if there is none."""
        self.in_flight_batches = InFlightBatches()
        self.complete_count = 0
        """How many of the records in flight are done with."""
        self.may_have_free = False
        """Whether records in flight may be available again, so that the next fetch begins there."""
        self.gap: GapWindow | None = None
        self._load(batches)

    def _load(self, batches: Sequence[StateBatch]) -> None:
        gap_start, expected = -1, self.start
        for first, last, state, count in batches:
            if first < self.start or last < first:
                raise ValueError(f"a share partition that starts at {self.start} has a batch from {first} to {last}")
            if gap_start < 0 and first > expected:
                gap_start = expected
            expected = last + 1
            loaded = RecordState(state)
            self.in_flight_batches.add(InFlightBatch(first, last, Delivery(loaded, count)))
            if loaded.is_final:
                self.complete_count += last - first + 1
        if batches:
            self.may_have_free = True
            self.end = self.in_flight_batches.last.last
            if gap_start >= 0:
                self.gap = GapWindow(gap_start, self.end)
            self.advance()

    # -- what can be asked --

    @property
    def in_flight_count(self) -> int:
        return self.end - self.start + 1 if self.in_flight_batches else 0

    @property
    def active_gap(self) -> GapWindow | None:
        """The gap among what was loaded, until something behind that was acquired."""
        return self.gap if self.gap is not None and self.gap.end == self.end else None

    def next_offset(self) -> int:
        """Where the next fetch begins: at a record that is available again, or behind all that is in flight."""
        if not self.in_flight_batches or self.start > self.in_flight_batches.last.last:
            self.may_have_free = False
            return self.end
        if self.may_have_free:
            gap = self.active_gap
            gap_start = gap.start if gap is not None else -1
            for batch in self.in_flight_batches:
                if gap is not None:
                    if batch.first > gap_start:
                        return gap_start
                    gap_start = max(batch.last + 1, gap_start)
                for offset, _, delivery in batch.deliveries():
                    if delivery.is_free:
                        return offset
            self.may_have_free = False
        return self.end + 1

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether a fetch could bring anything."""
        return self.next_offset() != self.end + 1 or self.in_flight_count < limits.max_locks

    def next_deadline_ms(self) -> int | None:
        """When the first lock ends; a record that is just being changed is not waited for."""
        return min(
            (
                delivery.until_ms
                for batch in self.in_flight_batches
                for _, _, delivery in batch.deliveries()
                if delivery.until_ms is not None and not delivery.is_changing
            ),
            default=None,
        )

    # -- what happens --

    def settle(self, changes: Iterable[StateChange], now_ms: int, *, written: bool) -> bool:
        """Changes that were begun are written down, or cannot be; whether the start moved by that."""
        for delivery, batch in changes:
            wanted = RecordState(batch.state)
            delivery.settle(now_ms, written=written)
            if delivery.state is RecordState.AVAILABLE:
                self.may_have_free = True
            if not written and wanted.is_final and not delivery.state.is_final:
                self.complete_count -= self.counted(batch.first, batch.last)
        return written and self.advance()

    def release(self, member: str, limits: ShareLimits) -> list[StateChange]:
        """Take back everything that a member has acquired."""
        changes: list[StateChange] = []
        for batch in self.in_flight_batches:
            if batch.whole is not None and batch.whole.member == member and self.starts_within(batch):
                batch.split()
            for first, last, delivery in batch.deliveries():
                if delivery.state is RecordState.ACQUIRED and delivery.member == member and not delivery.is_changing:
                    delivery.begin(self._freed(last), limits.max_deliveries)
                    changes.append(self.changed(first, last, delivery))
        return changes

    def expire(self, now_ms: int, limits: ShareLimits) -> list[StateBatch]:
        """Take back what was locked for too long; that counts at once, and is to be written down."""
        found = []
        for batch in self.in_flight_batches:
            whole = batch.whole
            if whole is not None and whole.state is RecordState.ACQUIRED and self.starts_within(batch):
                batch.split()
            for first, last, delivery in batch.deliveries():
                if delivery.until_ms is None or delivery.until_ms > now_ms or delivery.is_changing:
                    continue
                delivery.change(self._freed(last), limits.max_deliveries)
                found.append(self.changed(first, last, delivery).batch)
                if delivery.state is RecordState.AVAILABLE:
                    self.may_have_free = True
        return found

    def move_start(self, log_start: int) -> None:
        """The log begins later than before: what lies before that is not available any more."""
        if log_start <= self.start:
            return
        if not self.in_flight_batches:
            self.start = self.end = log_start
            self.complete_count = 0
            return
        gone = sum(
            self.counted(first, min(last, log_start - 1))
            for batch in self.in_flight_batches.beginning_in(0, log_start - 1)
            for first, last, delivery in batch.deliveries()
            if delivery.state.is_final and first < log_start
        )
        if self.archive(self.start, log_start - 1, RecordState.AVAILABLE, counts=False):
            self.may_have_free = True
        self.start = log_start
        self.complete_count -= gone
        self.end = max(self.end, self.start)

    def archive(self, first: int, last: int, state: RecordState, *, counts: bool = True) -> bool:
        """Records between two offsets that are in a state are gone; whether there were any."""
        found = False
        for batch in self.in_flight_batches.touching(first, last):
            whole = batch.whole
            if whole is not None and (batch.first < first or batch.last > last):
                if whole.state is not state or whole.is_changing:
                    continue
                batch.split()
            for from_, to, delivery in batch.deliveries():
                if delivery.state is state and from_ >= first and to <= last:
                    delivery.archive()
                    self.complete_count += (to - from_ + 1) if counts else 0
                    found = True
        return found

    def advance(self) -> bool:
        """Move the start over records that are done with; whether it moved."""
        done = self._last_done()
        if done is None:
            return False
        if done == self.in_flight_batches.last.last:
            self.start = self.end = done + 1
            self.in_flight_batches.clear()
            self.complete_count = 0
            return True
        floor = self.in_flight_batches.floor(done)
        assert floor is not None
        start = done + 1
        if floor.last == done:
            behind = self.in_flight_batches.higher(done)
            assert behind is not None
            hole = self._hole(start, behind)
            start = behind.first if hole is None else hole
        finished = self._count_final(done)
        self.start = max(self.start, start)
        self.complete_count -= finished
        self.in_flight_batches.remove_up_to(done)
        return True

    def counted(self, first: int, last: int) -> int:
        """How many of some offsets are not before the start."""
        return max(last - max(self.start, first) + 1, 0)

    def changed(self, first: int, last: int, delivery: Delivery) -> StateChange:
        """What is to be written of a delivery as it is now."""
        if delivery.state.is_final:
            self.complete_count += self.counted(first, last)
        return StateChange(delivery, StateBatch(first, last, int(delivery.state), delivery.count))

    def starts_within(self, batch: InFlightBatch) -> bool:
        """Whether the start lies inside a batch, so that its records cannot all become the same."""
        return batch.first < self.start <= batch.last

    def _freed(self, last: int) -> RecordState:
        return RecordState.ARCHIVED if last < self.start else RecordState.AVAILABLE

    def _last_done(self) -> int | None:
        """The last offset from the start on of which all before it, too, are done with."""
        done, expected = self.start - 1, self.start
        for batch in self.in_flight_batches:
            if self._hole(expected, batch) is not None:
                break
            for _, last, delivery in batch.deliveries():
                if delivery.is_changing or not delivery.state.is_final:
                    return done if done >= self.start else None
                done = last
            expected = batch.last + 1
        return done if done >= self.start else None

    def _hole(self, offset: int, batch: InFlightBatch) -> int | None:
        """Where records begin that were loaded by nobody, between an offset and a batch; None if there are none."""
        gap = self.active_gap
        begin = offset if gap is None else max(offset, gap.start)
        return begin if gap is not None and begin < batch.first else None

    def _count_final(self, done: int) -> int:
        return sum(
            self.counted(first, last)
            for batch in self.in_flight_batches.beginning_in(0, done)
            for first, last, delivery in batch.deliveries()
            if last <= done
        )
