"""Acquisition of records of a share partition by a member: available records in flight first, then new ones.

A member gets whole record batches with about as many records as requested, or exactly the limit in strict mode
(KIP-1206). Records that failed in more than half of their allowed deliveries are delivered in smaller and smaller
portions, the last time alone, so that one bad record does not use up the deliveries of its neighbours (KIP-1249).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.coordinators.share.delivery import Delivery, InFlightBatch, RecordState
from ottla.coordinators.share.partition import ShareLimits, SharePartition

_LEAST_THROTTLED: Final = 2


class BatchRange(NamedTuple):
    """The offsets of a record batch in the log."""

    base: int
    last: int


class AcquiredRecords(NamedTuple):
    """Records that a member acquired."""

    first: int
    last: int
    delivery_count: int
    """The number of deliveries, including this one."""


class AcquireRequest(NamedTuple):
    """The member that fetches, and its limits."""

    member: str
    max_records: int
    batch_size: int
    is_strict: bool = False
    """Whether `max_records` is a strict limit."""


def acquire(
    share: SharePartition,
    request: AcquireRequest,
    offset: int,
    batch_ranges: Sequence[BatchRange],
    limits: ShareLimits,
    now_ms: int,
) -> list[AcquiredRecords]:
    """Acquire records for a member from the batches read at an offset."""
    if request.max_records <= 0 or not batch_ranges or batch_ranges[-1].last < share.start:
        return []
    last = batch_ranges[-1].last
    max_records = min(request.max_records, limits.max_locks - share.in_flight_count)
    if max_records <= 0 and offset <= share.end:
        # No new records may be in flight, but available ones in flight can be acquired.
        max_records, last = min(request.max_records, share.end - offset + 1), min(last, share.end)
    if max_records <= 0:
        return []
    return _Acquisition(share, request, batch_ranges, limits, now_ms).run(offset, last, max_records)


class _Acquisition:
    """The acquisition of one fetch."""

    def __init__(
        self,
        share: SharePartition,
        request: AcquireRequest,
        batch_ranges: Sequence[BatchRange],
        limits: ShareLimits,
        now_ms: int,
    ) -> None:
        self.share = share
        self.request = request
        self.batch_ranges = batch_ranges
        self.limits = limits
        self.until_ms = now_ms + limits.lock_ms
        self.throttled_from = max(_LEAST_THROTTLED, -(-limits.max_deliveries // 2))
        self.acquired: list[AcquiredRecords] = []
        self.count = 0

    def run(self, offset: int, last: int, max_records: int) -> list[AcquiredRecords]:
        share, first = self.share, self.batch_ranges[0].base
        if offset < first and share.archive(offset, first - 1, RecordState.AVAILABLE):
            share.may_have_free = True  # compaction removed them
        base = first
        floor = share.in_flight_batches.floor(first)
        if floor is None:
            base = max(base, share.start)
        elif floor.last >= base:
            base = floor.first
        batches = share.in_flight_batches.beginning_in(min(first, base), last)
        if not batches:
            self._acquire_new(base, last, max_records)
            return self.acquired
        max_records = self._acquire_in_flight(batches, base, first, last, max_records)
        behind = batches[-1].last
        if self.count < max_records and behind < last:
            self._acquire_new(behind + 1, last, max_records - self.count)
        if self.acquired:
            self._note_gap(self.acquired[-1].last + 1)
        return self.acquired

    def _acquire_in_flight(
        self, batches: Sequence[InFlightBatch], base: int, first: int, last: int, max_records: int
    ) -> int:
        """Acquire available records in flight; return the total limit that remains in force."""
        gap_start = base
        for batch in batches:
            if self.count >= max_records:
                break
            if self.share.active_gap is not None:
                if gap_start < batch.first:
                    self._acquire_new(gap_start, batch.first - 1, max_records - self.count)
                gap_start = batch.last + 1
                if self.count >= max_records:
                    break
            is_throttled = self._is_throttled(batch, first, last)
            if is_throttled and self.count > 0:
                return 0
            whole = batch.whole
            fits = batch.first >= first and batch.last <= last
            too_large = self.request.is_strict and batch.size > max_records - self.count
            if whole is not None and not whole.is_free:
                continue
            if whole is None or not fits or too_large or is_throttled:
                batch.split()
                taken = self._acquire_records(batch, first, last, max_records - self.count)
                if is_throttled and taken:
                    return 0
                continue
            whole.acquire(self.request.member, self.until_ms)
            self.acquired.append(AcquiredRecords(batch.first, batch.last, whole.count))
            self.count += batch.size
        return max_records

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        """Whether available records have failed so often that they are delivered in smaller portions."""
        if batch.whole is not None:
            return batch.whole.is_free and batch.whole.count >= self.throttled_from
        counts = (delivery.count for _, delivery in batch.within(first, last) if delivery.is_free)
        return max(counts, default=0) >= self.throttled_from

    def _acquire_records(self, batch: InFlightBatch, first: int, last: int, max_records: int) -> int:
        """Acquire the available records of a split batch; return their number."""
        limit, taken = self.limits.max_deliveries, 0
        portion: int | None = None
        runs: list[AcquiredRecords] = []
        for offset, delivery in batch.within(first, last):
            if not delivery.is_free:
                continue
            if limit > 2 and delivery.count == limit - 1 and taken:
                break  # the last delivery of a record is alone
            if delivery.count >= self.throttled_from and portion is None:
                portion = max(1, len(batch.deliveries_by_offset) >> (delivery.count - self.throttled_from + 1))
            delivery.acquire(self.request.member, self.until_ms)
            taken += 1
            if runs and runs[-1].last + 1 == offset and runs[-1].delivery_count == delivery.count:
                runs[-1] = runs[-1]._replace(last=offset)
            else:
                runs.append(AcquiredRecords(offset, offset, delivery.count))
            if limit > 2 and delivery.count == limit:
                break
            if (self.request.is_strict and taken == max_records) or taken == portion:
                break
        self.acquired += runs
        self.count += taken
        return taken

    def _acquire_new(self, first: int, last: int, max_records: int) -> None:
        """Acquire records that are not in flight."""
        share = self.share
        if not share.in_flight_batches and share.end > first:
            first = share.end
        if max_records < last - first + 1:
            end = self._end_of_batch(first + max_records - 1)
            last = min(end, last) if share.active_gap is not None else end
        if last < first:
            return
        if self.request.is_strict and last - first + 1 > max_records:
            batch = InFlightBatch(first, last, self._locked())
            batch.split_acquired(first + max_records - 1)
            share.in_flight_batches.add(batch)
            share.may_have_free = True
            new = [AcquiredRecords(first, first + max_records - 1, 1)]
        else:
            new = self._cut(first, last)
            for acquired in new:
                share.in_flight_batches.add(InFlightBatch(acquired.first, acquired.last, self._locked()))
        if share.in_flight_batches.first.first == first:
            share.start = first
        share.end = max(share.end, last)
        self.acquired += new
        self.count += new[-1].last - first + 1
        self._note_gap(new[-1].last + 1)

    def _locked(self) -> Delivery:
        return Delivery(RecordState.ACQUIRED, 1, self.request.member, self.until_ms)

    def _cut(self, first: int, last: int) -> list[AcquiredRecords]:
        """Split a range into batches of about the requested size, at batch boundaries of the log."""
        cuts = []
        if not self.request.is_strict and last - first + 1 > self.request.batch_size:
            for batch_range in self.batch_ranges:
                if batch_range.base > last:
                    break
                if batch_range.base - first >= self.request.batch_size:
                    cuts.append(AcquiredRecords(first, batch_range.base - 1, 1))
                    first = batch_range.base
        return [*cuts, AcquiredRecords(first, last, 1)]

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the log batch that contains an offset, or the offset if no batch has it."""
        for batch_range in self.batch_ranges:
            if batch_range.base <= offset <= batch_range.last:
                return batch_range.last
        return offset

    def _note_gap(self, offset: int) -> None:
        share = self.share
        if share.gap is not None:
            if share.active_gap is not None and offset <= share.gap.end:
                share.gap.start = offset
            else:
                share.gap = None
