"""Reads of a log: by offset, as ranges of its files, and by timestamp.

A range begins with a whole batch and may end inside one, as Kafka's consumers expect. It never exceeds the limit of the
reader's isolation level. Records are decoded only to find one by its timestamp.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.errors import OffsetOutOfRange
from ottla.protocol.wire.batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import read_keys
from ottla.storage.disk import FileRange
from ottla.storage.log.aborted import Aborted
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import Segment


class Location(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class Fetched(NamedTuple):
    """The result of a read: bytes of a file, and the aborted transactions in them for read_committed."""

    records: FileRange | None
    aborted: list[Aborted] | None = None


def read(log: PartitionLog, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool = True) -> Fetched:
    """Return batches from the one that includes the offset on; nothing if the offset is at the reader's limit.

    With `whole_first` the first batch is returned whole even if it exceeds `max_bytes`; otherwise nothing is returned.
    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(f"offset {offset} is outside the log, {log.log_start_offset} to {log.log_end_offset}")
    limit = log.limit(isolation)
    if offset >= limit:
        return _empty(isolation)
    first = log.segment_at(offset)
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        # If compaction emptied the rest of a segment, the next segment has the batch.
        if segment.base_offset < limit and (batch := segment.find(offset)):
            end = end_position(log, segment, limit)
            if end <= batch.position or (batch.size > max_bytes and not whole_first):
                break
            records = segment.read(batch, max_bytes, end)
            if isolation is not Isolation.LAST_STABLE:
                return Fetched(records)
            if not any(later.aborted.exists for later in log.segments[first:]):
                return Fetched(records, [])
            bound = segment.upper_bound(records.position + records.size)
            if bound is None:
                last = number + 1 == len(log.segments)
                bound = log.log_end_offset if last else log.segments[number + 1].base_offset
            return Fetched(records, aborted_between(log, offset, bound))
    return _empty(isolation)


_EMPTY = Fetched(None)


def _empty(isolation: Isolation) -> Fetched:
    return Fetched(None, []) if isolation is Isolation.LAST_STABLE else _EMPTY


def end_position(log: PartitionLog, segment: Segment, limit: int) -> int:
    """Return the position of the reader's limit in a segment: the segment's end, unless the limit is inside."""
    if limit >= log.log_end_offset:
        return segment.size
    if log.segments[log.segment_at(limit)] is not segment:
        return segment.size
    cached = log.limit_position
    if cached is not None and cached[0] == limit and cached[1] is segment:
        return cached[2]
    batch = segment.find(limit)
    position = batch.position if batch else segment.size
    log.limit_position = (limit, segment, position)
    return position


def available_bytes(log: PartitionLog, offset: int, isolation: Isolation, *, enough: int) -> int:
    """Return how many bytes a read at the offset would find, counting up to `enough`. Waiting fetches ask for this."""
    limit = log.limit(isolation)
    total = 0
    for segment in log.segments[log.segment_at(offset) :]:
        if segment.base_offset >= limit or total >= enough:
            break
        batch = segment.find(offset)
        if batch is not None:
            total += max(end_position(log, segment, limit) - batch.position, 0)
    return total


def aborted_between(log: PartitionLog, offset: int, upper_bound: int) -> list[Aborted]:
    """Return the aborted transactions with records in the range from `offset` to below `upper_bound`."""
    collected: list[Aborted] = []
    for segment in log.segments[log.segment_at(offset) :]:
        entries, complete = segment.aborted.collect(offset, upper_bound)
        collected += entries
        if complete:
            break
    return collected


def searches(log: PartitionLog, timestamp: int) -> Iterator["Search"]:
    """Yield the searches for the first record at or after the timestamp. The first search with a result has it.

    Each search is created on demand, because that reads an index.
    """
    for segment in list(log.segments):
        if segment.max_timestamp >= timestamp:
            # All records up to an earlier time entry are earlier too.
            floor = segment.times.floor(timestamp - 1)
            offset = segment.base_offset + floor[1] if floor else segment.base_offset
            yield Search(segment, offset, timestamp, log.log_start_offset)


def searches_for_latest(log: PartitionLog) -> Iterator["Search"]:
    """Yield the searches for the first record with the largest timestamp. The first search with a result has it."""
    start = log.log_start_offset
    number = log.segment_at(start)
    first, later = log.segments[number], log.segments[number + 1 :]
    latest = max(later, key=lambda segment: segment.max_timestamp, default=first)
    if first.max_timestamp >= max(latest.max_timestamp, 0):
        yield Search(first, first.offset_of_max_timestamp, first.max_timestamp, start)
        # That record may be before the log start; then search for the largest timestamp of the rest.
        least = latest.max_timestamp if latest is not first else 0
        yield Search(first, start, max(least, 0), start, largest=True)
    if latest is not first and latest.max_timestamp >= 0:
        yield Search(latest, latest.offset_of_max_timestamp, latest.max_timestamp, start)


class Search:
    """A search in one segment for the first record at or after a timestamp, or for the largest timestamp.

    It keeps what it needs of the segment, so that `walk` may run in a thread, in several parts.
    """

    __slots__ = ("_batches", "_file", "_first_offset", "_is_for_largest", "_timestamp", "location")

    def __init__(
        self, segment: Segment, from_offset: int, timestamp: int, first_offset: int, *, largest: bool = False
    ) -> None:
        begin = segment.find(from_offset)
        self._file = segment.file  # stays open as long as it is referenced
        self._batches = segment.batches(begin.position if begin else segment.size)
        self._timestamp = timestamp
        self._first_offset = first_offset
        self._is_for_largest = largest
        self.location: Location | None = None

    def walk(self, max_bytes: int | None = None) -> bool:
        """Search about `max_bytes` of batches, or all; return whether the search is over. Raise CorruptLog."""
        left = max_bytes
        for position, header, block, pos in self._batches:
            if header.max_timestamp >= self._timestamp and header.last_offset >= self._first_offset:
                try:
                    self._search_batch(header, block, pos)
                except ProtocolError as error:
                    raise CorruptLog(self._file.path, position, str(error)) from error
                if self.location is not None and not self._is_for_largest:
                    return True
            if left is not None:
                left -= header.size_bytes
                if left <= 0:
                    return False
        return True

    def _search_batch(self, header: BatchHeader, block: bytes, pos: int) -> None:
        for offset, timestamp, _, _ in read_keys(block, pos, header):
            if timestamp >= self._timestamp and offset >= self._first_offset:
                self.location = Location(offset, timestamp, max(header.leader_epoch, NO_LEADER_EPOCH))
                if not self._is_for_largest:
                    return
                self._timestamp = timestamp + 1


def earliest(log: PartitionLog) -> Location:
    """Return the log start and its leader epoch."""
    return Location(log.log_start_offset, NO_TIMESTAMP, log.epochs.epoch_for_offset(log.log_start_offset))
