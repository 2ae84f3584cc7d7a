"""Which batches that were read belong to transactions that were aborted: who reads committed does not get them."""

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
    """The batches of transactions that were aborted, by the list of those that a read gave."""
    coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    if not coming:
        return []
    producers: set[int] = set()
    found = []
    for position, header in headers:
        if header.producer_id == NO_PRODUCER_ID:
            continue
        while coming and coming[-1].first_offset <= header.last_offset:
            producers.add(coming.pop().producer_id)
        if header.is_control:
            first = next(iter(read_records(data, position, header)), None)
            if first is not None and control_type(first) is ControlType.ABORT:
                producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            found.append(BatchRange(header.base_offset, header.last_offset))
    return found


def without_ranges(acquired: Iterable[AcquiredRecords], spans: Sequence[BatchRange]) -> list[AcquiredRecords]:
    """What is left of acquired records without some batches."""
    left = []
    for first, last, count in acquired:
        for span in spans:
            if span.last < first or span.base > last:
                continue
            if first < span.base:
                left.append(AcquiredRecords(first, span.base - 1, count))
            first = span.last + 1
        if first <= last:
            left.append(AcquiredRecords(first, last, count))
    return left
