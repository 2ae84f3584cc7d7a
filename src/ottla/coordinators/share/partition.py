"""A share partition at its leader: the records in flight, their members, and the start and end offsets.

    start offset ≤ records in flight ≤ end offset

All records before the start are finished; those after the end were never delivered. In between, a record is available,
acquired by one member, acknowledged or archived. This module does no I/O: methods return the changes to write.

Acquisitions are not written. After a change of leader, acquired records are available again, with the delivery count of
the last write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.coordinators.share.batches import StateBatch
from ottla.coordinators.share.delivery import Delivery, InFlightBatch, RecordState
from ottla.coordinators.share.in_flight_batches import InFlightBatches


class ShareLimits(NamedTuple):
    """The limits of a share partition, from settings."""

    max_locks: int = 2000
    """The maximum number of records in flight."""
    max_deliveries: int = 5
    lock_ms: int = 30_000
    may_renew: bool = True


class StateChange(NamedTuple):
    """A begun change, and the state batch to write for it."""

    delivery: Delivery
    batch: StateBatch


class GapWindow:
    """Offsets between loaded batches, which an earlier leader delivered and no member acknowledged."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class SharePartition:
    """The delivery states of a partition's records for one group."""

    def __init__(self, start: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start = start
        """The first offset that is not finished."""
        self.end = start
        """The last offset in flight, or the next fetch offset if nothing is in flight."""
        self.in_flight_batches = InFlightBatches()
        self.complete_count = 0
        """The number of finished records in flight."""
        self.may_have_free = False
        """Whether records in flight may be available, so that the next fetch must look there."""
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

    # -- queries --

    @property
    def in_flight_count(self) -> int:
        return self.end - self.start + 1 if self.in_flight_batches else 0

    @property
    def active_gap(self) -> GapWindow | None:
        """The gap between loaded batches, until records after it are acquired."""
        return self.gap if self.gap is not None and self.gap.end == self.end else None

    def next_offset(self) -> int:
        """Return the next fetch offset: the first available record in flight, or the one after all in flight."""
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
        """Whether a fetch could acquire records."""
        return self.next_offset() != self.end + 1 or self.in_flight_count < limits.max_locks

    def next_deadline_ms(self) -> int | None:
        """Return when the first acquisition lock ends, without records that are being changed."""
        return min(
            (
                delivery.until_ms
                for batch in self.in_flight_batches
                for _, _, delivery in batch.deliveries()
                if delivery.until_ms is not None and not delivery.is_changing
            ),
            default=None,
        )

    # -- changes --

    def settle(self, changes: Iterable[StateChange], now_ms: int, *, written: bool) -> bool:
        """End begun changes, which were written or failed; return whether the start offset moved."""
        for delivery, batch in changes:
            target_state = RecordState(batch.state)
            delivery.settle(now_ms, written=written)
            if delivery.state is RecordState.AVAILABLE:
                self.may_have_free = True
            if not written and target_state.is_final and not delivery.state.is_final:
                self.complete_count -= self.counted(batch.first, batch.last)
        return written and self.advance()

    def release(self, member: str, limits: ShareLimits) -> list[StateChange]:
        """Release all records that a member has acquired."""
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
        """Release the records whose lock expired. That takes effect at once; return the state batches to write."""
        expired = []
        for batch in self.in_flight_batches:
            whole = batch.whole
            if whole is not None and whole.state is RecordState.ACQUIRED and self.starts_within(batch):
                batch.split()
            for first, last, delivery in batch.deliveries():
                if delivery.until_ms is None or delivery.until_ms > now_ms or delivery.is_changing:
                    continue
                delivery.change(self._freed(last), limits.max_deliveries)
                expired.append(self.changed(first, last, delivery).batch)
                if delivery.state is RecordState.AVAILABLE:
                    self.may_have_free = True
        return expired

    def move_start(self, log_start: int) -> None:
        """Move the start offset with the log start offset, and archive the records before it."""
        if log_start <= self.start:
            return
        if not self.in_flight_batches:
            self.start = self.end = log_start
            self.complete_count = 0
            return
        finished = sum(
            self.counted(first, min(last, log_start - 1))
            for batch in self.in_flight_batches.beginning_in(0, log_start - 1)
            for first, last, delivery in batch.deliveries()
            if delivery.state.is_final and first < log_start
        )
        if self.archive(self.start, log_start - 1, RecordState.AVAILABLE, counts=False):
            self.may_have_free = True
        self.start = log_start
        self.complete_count -= finished
        self.end = max(self.end, self.start)

    def archive(self, first: int, last: int, state: RecordState, *, counts: bool = True) -> bool:
        """Archive the records between two offsets that are in a state; return whether there were any."""
        has_archived = False
        for batch in self.in_flight_batches.touching(first, last):
            whole = batch.whole
            if whole is not None and (batch.first < first or batch.last > last):
                if whole.state is not state or whole.is_changing:
                    continue
                batch.split()
            for delivery_first, delivery_last, delivery in batch.deliveries():
                if delivery.state is state and delivery_first >= first and delivery_last <= last:
                    delivery.archive()
                    self.complete_count += (delivery_last - delivery_first + 1) if counts else 0
                    has_archived = True
        return has_archived

    def advance(self) -> bool:
        """Move the start offset over finished records; return whether it moved."""
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
        """Return the number of offsets of a range that are not before the start offset."""
        return max(last - max(self.start, first) + 1, 0)

    def changed(self, first: int, last: int, delivery: Delivery) -> StateChange:
        """Return the change to write for a delivery state, and count it if it is final."""
        if delivery.state.is_final:
            self.complete_count += self.counted(first, last)
        return StateChange(delivery, StateBatch(first, last, int(delivery.state), delivery.count))

    def starts_within(self, batch: InFlightBatch) -> bool:
        """Whether the start offset lies inside a batch, so that its records cannot all change in the same way."""
        return batch.first < self.start <= batch.last

    def _freed(self, last: int) -> RecordState:
        return RecordState.ARCHIVED if last < self.start else RecordState.AVAILABLE

    def _last_done(self) -> int | None:
        """Return the last offset up to which all records are finished; None if the first one is not."""
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
        """Return where the gap between an offset and a batch begins; None without a gap."""
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
