"""Reading a log: by offset, as ranges of its files, and by timestamp.

Ranges start with a whole batch and may end inside one, as a consumer is used to. They never reach beyond the limit that
the reader's isolation sets. Records are decoded only to find one by its timestamp.
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
    """What a read found: bytes of a file, and for readers of committed records what to leave out of them."""

    records: FileRange | None
    aborted: list[Aborted] | None = None


def read(log: PartitionLog, offset: int, max_bytes: int, isolation: Isolation, *, whole_first: bool = True) -> Fetched:
    """Batches from the one that holds the offset on; nothing if the reader may not see any yet.

    The first batch comes whole, even if it is larger than `max_bytes`; without `whole_first` it then does not come.
    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(f"offset {offset} is not within {log.log_start_offset} to {log.log_end_offset}")
    limit = log.limit(isolation)
    if offset >= limit:
        return _nothing(isolation)
    first = log.segment_at(offset)
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        # Compaction may have emptied the rest of a segment: then the next one goes on.
        if segment.base_offset < limit and (found := segment.find(offset)):
            end = end_position(log, segment, limit)
            if end <= found.position or (found.size > max_bytes and not whole_first):
                break
            records = segment.read(found, max_bytes, end)
            if isolation is not Isolation.LAST_STABLE:
                return Fetched(records)
            if not any(each.aborted.exists for each in log.segments[first:]):
                return Fetched(records, [])
            bound = segment.upper_bound(records.position + records.size)
            if bound is None:
                last = number + 1 == len(log.segments)
                bound = log.log_end_offset if last else log.segments[number + 1].base_offset
            return Fetched(records, aborted_between(log, offset, bound))
    return _nothing(isolation)


_NOTHING = Fetched(None)


def _nothing(isolation: Isolation) -> Fetched:
    return Fetched(None, []) if isolation is Isolation.LAST_STABLE else _NOTHING


def end_position(log: PartitionLog, segment: Segment, limit: int) -> int:
    """Where in a segment the reader's limit lies: its end, unless the limit is inside."""
    if limit >= log.log_end_offset:
        return segment.size
    at = log.segments[log.segment_at(limit)]
    if at is not segment:
        return segment.size
    cached = log.limit_position
    if cached is not None and cached[0] == limit and cached[1] is segment:
        return cached[2]
    found = segment.find(limit)
    position = found.position if found else segment.size
    log.limit_position = (limit, segment, position)
    return position


def available_bytes(log: PartitionLog, offset: int, isolation: Isolation, *, enough: int) -> int:
    """How much a read at the offset would find, counted up to `enough`: what a waiting fetch asks for."""
    limit = log.limit(isolation)
    total = 0
    for segment in log.segments[log.segment_at(offset) :]:
        if segment.base_offset >= limit or total >= enough:
            break
        found = segment.find(offset)
        if found is not None:
            total += max(end_position(log, segment, limit) - found.position, 0)
    return total


def aborted_between(log: PartitionLog, offset: int, upper_bound: int) -> list[Aborted]:
    """The aborted transactions with records from `offset` to below `upper_bound`."""
    collected: list[Aborted] = []
    for segment in log.segments[log.segment_at(offset) :]:
        found, complete = segment.aborted.collect(offset, upper_bound)
        collected += found
        if complete:
            break
    return collected


def searches(log: PartitionLog, timestamp: int) -> Iterator["Search"]:
    """Where the first record that is not older may be: the first search that finds one has it.

    Each is made when it is asked for, since that looks into an index.
    """
    for segment in list(log.segments):
        if segment.max_timestamp >= timestamp:
            # All before a time entry that is older is older too.
            floor = segment.times.floor(timestamp - 1)
            offset = segment.base_offset + floor[1] if floor else segment.base_offset
            yield Search(segment, offset, timestamp, log.log_start_offset)


def searches_for_latest(log: PartitionLog) -> Iterator["Search"]:
    """Where the first record with the largest timestamp may be: the first search that finds one has it."""
    start = log.log_start_offset
    number = log.segment_at(start)
    first, later = log.segments[number], log.segments[number + 1 :]
    latest = max(later, key=lambda segment: segment.max_timestamp, default=first)
    if first.max_timestamp >= max(latest.max_timestamp, 0):
        yield Search(first, first.offset_of_max_timestamp, first.max_timestamp, start)
        # The latest may lie before the log's start; then the largest of what is left is to be found.
        least = latest.max_timestamp if latest is not first else 0
        yield Search(first, start, max(least, 0), start, largest=True)
    if latest is not first and latest.max_timestamp >= 0:
        yield Search(latest, latest.offset_of_max_timestamp, latest.max_timestamp, start)


class Search:
    """A walk over a segment for the first record that is late enough, or for the largest timestamp.

    It holds what it needs of the segment, so that all but its making may be done in a thread, a part at a time.
    """

    __slots__ = ("_batches", "_file", "_first_offset", "_is_for_largest", "_timestamp", "location")

    def __init__(
        self, segment: Segment, from_offset: int, timestamp: int, first_offset: int, *, largest: bool = False
    ) -> None:
        begin = segment.find(from_offset)
        self._file = segment.file  # stays open as long as somebody holds it
        self._batches = segment.batches(begin.position if begin else segment.size)
        self._timestamp = timestamp
        self._first_offset = first_offset
        self._is_for_largest = largest
        self.location: Location | None = None

    def walk(self, max_bytes: int | None = None) -> bool:
        """Look at about so many bytes of batches, or at all; whether the search is over. Raises CorruptLog."""
        left = max_bytes
        for position, header, block, at in self._batches:
            if header.max_timestamp >= self._timestamp and header.last_offset >= self._first_offset:
                try:
                    self._look_into(header, block, at)
                except ProtocolError as error:
                    raise CorruptLog(self._file.path, position, str(error)) from error
                if self.location is not None and not self._is_for_largest:
                    return True
            if left is not None:
                left -= header.size_bytes
                if left <= 0:
                    return False
        return True

    def _look_into(self, header: BatchHeader, block: bytes, at: int) -> None:
        for offset, timestamp, _, _ in read_keys(block, at, header):
            if timestamp >= self._timestamp and offset >= self._first_offset:
                self.location = Location(offset, timestamp, max(header.leader_epoch, NO_LEADER_EPOCH))
                if not self._is_for_largest:
                    return
                self._timestamp = timestamp + 1


def earliest(log: PartitionLog) -> Location:
    """Where the log begins."""
    return Location(log.log_start_offset, NO_TIMESTAMP, log.epochs.epoch_for_offset(log.log_start_offset))
