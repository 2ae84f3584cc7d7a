"""One segment: a file of batches with its indexes, from a base offset up to the next segment's.

A segment that nobody reads or writes is a few numbers: its file is opened, and its indexes looked at, when needed.
Positions are bytes in the `.log` file. Only the newest segment of a log is appended to.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.wire.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAX_INT32,
    NO_TIMESTAMP,
    BatchHeader,
    read_bounds,
)
from ottla.storage.disk import Disk, FileRange, LogFile, write_all
from ottla.storage.log.aborted import ABORTED_SUFFIX, AbortedTransactions
from ottla.storage.log.index import SPILL_ENTRIES, CorruptIndex, Index, Layout
from ottla.storage.log.scan import CorruptLog, scan_batches, scan_headers

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)

DELETED = ".deleted"
"""No longer part of the log; the files go after `file.delete.delay.ms`."""
CLEANED = ".cleaned"
"""Being written by the cleaner: worth nothing after a crash."""
SWAP = ".swap"
"""Complete, and about to replace the segments whose offsets it covers: after a crash that is carried through."""

_UNKNOWN = -2
"""A timestamp that was not looked up yet."""

_HELD_BYTES = 1024
"""Up to here the last batch is kept at hand: whoever reads as records come asks for nothing else."""
_SEARCH_BYTES = 4096 + HEADER_BYTES


class Found(NamedTuple):
    """Where a batch lies."""

    position: int
    size: int
    base_offset: int


def segment_path(directory: str, base_offset: int) -> str:
    """The path of a segment's files, without their suffixes."""
    return f"{directory}/{base_offset:020d}"


class Segment:
    """One segment of a log. `rename`, `remove` and `append` change files; nothing here syncs but `sync`."""

    __slots__ = (
        "_aborted",
        "_disk",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_noted",
        "_offset_of_max_timestamp",
        "_offsets",
        "_tail",
        "_time_in_index",
        "_times",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "directory",
        "known_size",
        "make",
        "suffix",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int = -1, suffix: str = "", created_ms: int = 0
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        self.known_size = size
        """The size, as far as it was looked up; else -1."""
        self._file: LogFile | None = None
        self._offsets: Index | None = None
        self._times: Index | None = None
        self._aborted: AbortedTransactions | None = None
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp = _UNKNOWN
        self._unindexed_bytes = 0
        self._noted = 0
        """How many batches were named in the indexes since these were last looked at for being full."""
        self._time_in_index = _UNKNOWN
        """The latest timestamp that the index by time has."""
        self._tail: tuple[int, int, int, int, bytes | None] | None = None
        """The batch that was appended last: base offset, last offset, position, size, and its bytes if they are few."""
        self.make: Callable[[], None] | None = None
        """Makes the files of a segment that is only planned; None for one that has them."""

    @classmethod
    def plan(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = "") -> "Segment":
        """A new, empty segment as it will be. `make_files` is still to come: by `make`, before a file is used."""
        segment = cls(disk, directory, base_offset, size=0, suffix=suffix, created_ms=now_ms)
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = "", preallocated: int = 0
    ) -> "Segment":
        """A new, empty segment; files left over under its name are emptied.

        The log's file may be made as large as it can become (`preallocate`); what is not used is cut off at the end.
        """
        segment = cls.plan(disk, directory, base_offset, now_ms=now_ms, suffix=suffix)
        segment._file = segment.make_files(preallocated)
        return segment

    def make_files(self, preallocated: int = 0) -> LogFile:
        """Make the files, empty; the log's is returned open."""
        disk = self._disk
        if disk.exists(self.path(ABORTED_SUFFIX)):
            disk.remove(self.path(ABORTED_SUFFIX))
        # Kafka complains when it recovers a segment that has no indexes.
        for index_suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            disk.close(disk.create(self.path(index_suffix)))
        # The log comes last: a failure must not leave a segment behind that nobody knows of.
        path = self.path(LOG_SUFFIX)
        file = LogFile(disk, path, disk.create(path))
        if preallocated:
            disk.truncate(file.number, preallocated)
        return file

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r})"

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}{self.suffix}"

    @property
    def size(self) -> int:
        """How many bytes of the file are the log's."""
        if self.known_size < 0:
            self.known_size = self._disk.size_of(self.path(LOG_SUFFIX))
        return self.known_size

    @property
    def file(self) -> LogFile:
        file = self._file
        if file is None:
            if self.make is not None:
                self.make()
            path = self.path(LOG_SUFFIX)
            file = self._file = LogFile(self._disk, path, self._disk.open(path))
        return file

    @property
    def offsets(self) -> Index:
        if self._offsets is None:
            self._offsets = Index(self._disk, self.path(OFFSET_INDEX_SUFFIX), Layout.OFFSET, new=self.make is not None)
        return self._offsets

    @property
    def times(self) -> Index:
        if self._times is None:
            self._times = Index(self._disk, self.path(TIME_INDEX_SUFFIX), Layout.TIME, new=self.make is not None)
        return self._times

    @property
    def aborted(self) -> AbortedTransactions:
        if self._aborted is None:
            path = self.path(ABORTED_SUFFIX)
            self._aborted = AbortedTransactions(self._disk, path, self.base_offset, exists=self._disk.exists(path))
        return self._aborted

    @property
    def is_cold(self) -> bool:
        """Whether a file must be read to tell the latest timestamp."""
        return self._max_timestamp == _UNKNOWN

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of any record, or -1."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the latest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch, which time-based rolling counts from; -1 while empty."""
        if self._first_timestamp == _UNKNOWN:
            if self.size < HEADER_BYTES:
                return NO_TIMESTAMP
            _, header = next(self.headers())
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def latest_ms(self) -> int:
        """When the newest record came: what retention by time goes by."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    def is_full(self, max_index_bytes: int) -> bool:
        """Whether an index has reached its greatest size."""
        return max(self.offsets.size_bytes, self.times.size_bytes) + 12 > max_index_bytes

    def fits(self, offset: int) -> bool:
        """Whether an offset can be told from the base in 31 bits."""
        return 0 <= offset - self.base_offset <= MAX_INT32

    def append(
        self,
        data: bytes | bytearray | memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end. When the disk fails, nothing has changed."""
        position = self.known_size
        if position < 0:
            position = self.size
        file = self._file
        if file is None:
            file = self.file
        if self._noted >= SPILL_ENTRIES:
            self._spill()
        size = len(data)
        if position + size > file.reserved:
            file.reserve(position, position + size)
        try:
            if self._disk.pwrite(file.number, data, position) != size:
                write_all(self._disk, file.number, data, position)
        except OSError:
            self._drop_tail()
            raise
        self.note(position, size, last_offset, max_timestamp, index_interval_bytes)
        self.known_size = position + size
        self._tail = base_offset, last_offset, position, size, bytes(data) if size <= _HELD_BYTES else None

    def append_block(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[tuple[int, int, int]],
        index_interval_bytes: int,
    ) -> None:
        """Write several batches at once; each is told by its size, last offset and max timestamp."""
        position = self.size
        self._tail = None
        self._spill()
        file = self.file
        if position + len(data) > file.reserved:
            file.reserve(position, position + len(data))
        try:
            write_all(self._disk, file.number, data, position)
        except OSError:
            self._drop_tail()
            raise
        for size, last_offset, max_timestamp in batches:
            self.note(position, size, last_offset, max_timestamp, index_interval_bytes)
            position += size
        self.known_size = position

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Take a batch into the indexes, which name about one batch in each interval."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._first_timestamp == _UNKNOWN and position == 0:
            self._first_timestamp = max_timestamp
        if self._unindexed_bytes > index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            if self._max_timestamp > self._time_in_index:
                self._index_time()
            self._noted += 1
            self._unindexed_bytes = size
        else:
            self._unindexed_bytes += size

    def find(self, offset: int) -> Found | None:
        """The first batch that ends at the offset or after it."""
        tail = self._tail
        if tail is not None and offset >= tail[0]:
            return Found(tail[2], tail[3], tail[0]) if offset <= tail[1] else None
        end = self.size
        floor = self.offsets.floor(offset - self.base_offset)
        position = floor[1] if floor else 0
        file = self.file.number
        while position < end:
            block = self._disk.pread(file, min(_SEARCH_BYTES, end - position), position)
            if len(block) < HEADER_BYTES:
                raise CorruptLog(self.path(LOG_SUFFIX), position, f"{end - position} bytes are no batch")
            at, last = 0, len(block) - HEADER_BYTES
            while at <= last:
                base_offset, length, last_offset_delta = read_bounds(block, at)
                if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
                    raise CorruptLog(self.path(LOG_SUFFIX), position + at, f"batch length {length}")
                size = length + LENGTH_PREFIX_BYTES
                if base_offset + last_offset_delta >= offset:
                    return Found(position + at, size, base_offset)
                at += size
            position += at
        return None

    def read(self, found: Found, max_bytes: int, end: int) -> FileRange:
        """Bytes from a batch on: at least that batch, otherwise at most so many, and none at `end` or behind it."""
        size = min(max(max_bytes, found.size), end - found.position)
        tail = self._tail
        held = tail[4] if tail is not None and tail[2] == found.position and tail[3] == size else None
        return FileRange(self.file, found.position, size, held)

    def upper_bound(self, position: int) -> int | None:
        """The offset of an indexed batch at the position or behind it; None if there is none."""
        entry = self.offsets.ceiling_value(position)
        return None if entry is None else self.base_offset + entry[0]

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch."""
        return scan_headers(self._disk, self.file.number, self.path(LOG_SUFFIX), start, self.size)

    def batches(self, start: int = 0) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Each batch, verified, with its position, header, and a buffer with where it is in it."""
        return scan_batches(self._disk, self.file.number, self.path(LOG_SUFFIX), start, self.size)

    def bytes_at(self, position: int, size: int) -> bytes:
        """Bytes of the log."""
        return self._disk.pread(self.file.number, size, position)

    def cut(self, position: int) -> None:
        """Drop the end of the file, whose batches are in no index."""
        self._tail = None
        self.known_size = position
        self.file.cut(position)

    def next_offset(self) -> int:
        """The offset after the last batch: looked up from the last index entry on."""
        last = self.offsets.last()
        after = self.base_offset
        for _, header in self.headers(last[1] if last else 0):
            after = header.next_offset
        return after

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file at a batch's start; nothing from that batch's offset on stays in the indexes."""
        self.offsets.truncate_values(position)
        # An index by time says "up to this offset", which holds for offsets that are still there.
        self.times.truncate_values(max(next_offset - self.base_offset, 0))
        self._time_in_index = _UNKNOWN
        self.aborted.truncate(next_offset)
        self.cut(position)
        self._unindexed_bytes = 0
        if position == 0:
            self._first_timestamp = _UNKNOWN
        self._load_max_timestamp()

    def reindex(self, index_interval_bytes: int) -> None:
        """Write the indexes anew from the log."""
        self.clear_indexes()
        for position, header in self.headers():
            self.note(position, header.size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes)
        self.finish()

    def clear_indexes(self) -> None:
        """Empty both indexes, before batches are noted anew."""
        self.offsets.clear()
        self.times.clear()
        self._time_in_index = _UNKNOWN
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = _UNKNOWN
        self._unindexed_bytes = 0

    def check(self) -> None:
        """Raise CorruptIndex if an index cannot be right, as far as a look at its end tells."""
        self.offsets.check()
        self.times.check()
        last = self.offsets.last()
        if last is not None and last[1] >= self.size:
            raise CorruptIndex(f"{self.offsets.path} points to byte {last[1]} of a log of {self.size}")
        self.aborted.check()

    def finish(self) -> None:
        """Complete the files, when the segment gets no more batches or the log is closed."""
        self._tail = None
        if self.make is not None:
            self.make()
        file = self._file
        if file is not None and (file.has_reserved or self._disk.size(file.number) > self.size):
            # Room that was set aside and not used; or a write that failed, and could not be taken back then.
            self.cut(self.size)
        if self._max_timestamp != _UNKNOWN:
            self._index_time()
        # An index that was never looked at is in its file already.
        if self._offsets is not None:
            self._offsets.write()
        if self._times is not None:
            self._times.write()

    def sync(self) -> None:
        """Make the segment durable, indexes included."""
        self._disk.sync(self.file.number)
        if self._offsets is not None:
            self._offsets.write(sync=True)
        if self._times is not None:
            self._times.write(sync=True)
        if self._aborted is not None:
            self._aborted.sync()

    def release(self) -> None:
        """Let go of the open files; answers under way keep theirs open."""
        self._file = None
        if self._aborted is not None:
            self._aborted.close()

    def rename(self, suffix: str) -> None:
        """Give the files another suffix. A segment is there if its log is, so that comes last, but goes first."""
        for kind in SUFFIXES if suffix == DELETED else (*SUFFIXES[1:], LOG_SUFFIX):
            old = self.path(kind)
            new = old.removesuffix(self.suffix) + suffix
            if kind == LOG_SUFFIX or self._disk.exists(old):
                self._disk.rename(old, new)
        self.suffix = suffix
        self._repath()

    def move(self, directory: str) -> None:
        """Follow a directory that was renamed."""
        self.directory = directory
        self._repath()

    def remove(self) -> None:
        """Delete the files, those that exist. The log comes last: who finds none can trust that the rest is gone."""
        self._file = None
        for kind in reversed(SUFFIXES):
            path = self.path(kind)
            if self._disk.exists(path):
                self._disk.remove(path)

    def _repath(self) -> None:
        if self._offsets is not None:
            self._offsets.path = self.path(OFFSET_INDEX_SUFFIX)
        if self._times is not None:
            self._times.path = self.path(TIME_INDEX_SUFFIX)
        if self._aborted is not None:
            self._aborted.path = self.path(ABORTED_SUFFIX)
        if self._file is not None:
            self._file.path = self.path(LOG_SUFFIX)

    def _spill(self) -> None:
        """Move full indexes to their files: before a batch is written, so that a failure leaves nothing half done."""
        if self._offsets is not None:
            self._offsets.spill()
        if self._times is not None:
            self._times.spill()
        self._noted = 0

    def _drop_tail(self) -> None:
        """Take back what a failed write has left: a later start might take old bytes behind new ones for batches."""
        # The disk may go on failing; then `finish` tries again.
        with suppress(OSError):
            self.file.cut(self.size)

    def _index_time(self) -> None:
        """Add the latest timestamp so far, if the index does not say it already."""
        timestamp = self._max_timestamp
        if timestamp < 0:
            return
        last = self.times.last()
        if last is None or timestamp > last[0]:
            self.times.append(timestamp, self._offset_of_max_timestamp - self.base_offset)
            self._time_in_index = timestamp
        else:
            self._time_in_index = last[0]

    def _load_max_timestamp(self) -> None:
        """Take the latest timestamp from the time index, and from the batches behind it."""
        last = self.times.last()
        latest, offset = NO_TIMESTAMP, self.base_offset
        start = 0
        if last is not None:
            latest, offset = last[0], last[1] + self.base_offset
            floor = self.offsets.last()
            start = floor[1] if floor else 0
        for _, header in self.headers(start):
            if header.max_timestamp > latest:
                latest, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = latest, offset
