"""Removal of aborted transactions from fetched batches, for groups that read committed records only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.coordinators.share.acquiring import AcquiredRecords, BatchRange
from ottla.protocol.wire.batch import NO_PRODUCER_ID, BatchHeader
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import read_records
from ottla.protocol.wire.varint import Buffer


class _Aborted(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


def aborted_ranges(
    data: Buffer, headers: Iterable[tuple[int, BatchHeader]], aborted: Iterable[_Aborted]
) -> list[BatchRange]:
    """Return the offset ranges of batches that belong to aborted transactions."""
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    if not upcoming:
        return []
    producers: set[int] = set()
    ranges = []
    for position, header in headers:
        if header.producer_id == NO_PRODUCER_ID:
            continue
        while upcoming and upcoming[-1].first_offset <= header.last_offset:
            producers.add(upcoming.pop().producer_id)
        if header.is_control:
            first = next(iter(read_records(data, position, header)), None)
            if first is not None and control_type(first) is ControlType.ABORT:
                producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            ranges.append(BatchRange(header.base_offset, header.last_offset))
    return ranges


def without_ranges(acquired: Iterable[AcquiredRecords], ranges: Sequence[BatchRange]) -> list[AcquiredRecords]:
    """Return the acquired records without the given ranges."""
    remaining = []
    for first, last, count in acquired:
        for batch_range in ranges:
            if batch_range.last < first or batch_range.base > last:
                continue
            if first < batch_range.base:
                remaining.append(AcquiredRecords(first, batch_range.base - 1, count))
            first = batch_range.last + 1
        if first <= last:
            remaining.append(AcquiredRecords(first, last, count))
    return remaining
