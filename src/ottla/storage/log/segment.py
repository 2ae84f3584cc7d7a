"""One segment of a log: a file of batches and its indexes, from its base offset to the next segment's.

An idle segment is a few numbers in memory: its file is opened, and its indexes are read, on first use. Positions are
bytes in the `.log` file. Only the last segment of a log, the active one, is appended to.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

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
"""No longer part of the log. The files are deleted after `file.delete.delay.ms`."""
CLEANED = ".cleaned"
"""The cleaner is writing the segment; after a crash it is deleted."""
SWAP = ".swap"
"""Complete, and about to replace the segments whose offsets it covers. After a crash, the start completes the swap."""

_UNKNOWN = -2
"""A timestamp that was not looked up yet."""

_CACHED_TAIL_BYTES = 1024
"""The last batch is kept in memory up to this size: consumers at the end of the log read nothing else."""
_SEARCH_BYTES = 4096 + HEADER_BYTES

_TAIL_BASE_OFFSET: Final = 0
_TAIL_POSITION: Final = 2
_TAIL_SIZE: Final = 3
_TAIL_DATA: Final = 4
"""Fields of `Segment._tail`: a plain tuple, because each append makes one, and a named tuple takes 40 ns more."""


class BatchPosition(NamedTuple):
    """Where a batch is in its segment's file."""

    position: int
    size: int
    base_offset: int


class Segment:
    """One segment of a log. Only `sync` waits for the disk."""

    __slots__ = (
        "_aborted",
        "_disk",
        "_file",
        "_first_timestamp",
        "_indexed_since_spill",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_offsets",
        "_tail",
        "_time_in_index",
        "_times",
        "_unindexed_bytes",
        "base_offset",
        "create_planned_files",
        "created_ms",
        "directory",
        "known_size",
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
        """The size, or -1 if it was not looked up yet."""
        self._file: LogFile | None = None
        self._offsets: Index | None = None
        self._times: Index | None = None
        self._aborted: AbortedTransactions | None = None
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp = _UNKNOWN
        self._unindexed_bytes = 0
        self._indexed_since_spill = 0
        """Batches added to the indexes since the last spill."""
        self._time_in_index = _UNKNOWN
        """The latest timestamp in the time index."""
        self._tail: tuple[int, int, int, int, bytes | None] | None = None
        """The last batch appended: base offset, last offset, position, size, and its bytes if there are few."""
        self.create_planned_files: Callable[[], None] | None = None
        """Creates the files of a planned segment; None once they exist."""

    @classmethod
    def plan(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = "") -> "Segment":
        """Return a new, empty segment without files. `create_planned_files` creates them before the first use."""
        segment = cls(disk, directory, base_offset, size=0, suffix=suffix, created_ms=now_ms)
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, suffix: str = "", preallocated: int = 0
    ) -> "Segment":
        """Create an empty segment. Existing files of that name are emptied.

        `preallocated` is the size of the new log file (`preallocate`); `finish` cuts off what was not used.
        """
        segment = cls.plan(disk, directory, base_offset, now_ms=now_ms, suffix=suffix)
        segment._file = segment.create_files(preallocated)
        return segment

    def create_files(self, preallocated: int = 0) -> LogFile:
        """Create the files, empty; return the open log file."""
        disk = self._disk
        if disk.exists(self.path(ABORTED_SUFFIX)):
            disk.remove(self.path(ABORTED_SUFFIX))
        # Kafka logs an error when it recovers a segment without indexes.
        for index_suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            disk.close(disk.create(self.path(index_suffix)))
        # The log file comes last, so that a failure does not leave a segment behind.
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
        """The bytes of the file that hold batches."""
        if self.known_size < 0:
            self.known_size = self._disk.size_of(self.path(LOG_SUFFIX))
        return self.known_size

    @property
    def file(self) -> LogFile:
        file = self._file
        if file is None:
            if self.create_planned_files is not None:
                self.create_planned_files()
            path = self.path(LOG_SUFFIX)
            file = self._file = LogFile(self._disk, path, self._disk.open(path))
        return file

    @property
    def offsets(self) -> Index:
        if self._offsets is None:
            self._offsets = Index(
                self._disk, self.path(OFFSET_INDEX_SUFFIX), Layout.OFFSET, new=self.create_planned_files is not None
            )
        return self._offsets

    @property
    def times(self) -> Index:
        if self._times is None:
            self._times = Index(
                self._disk, self.path(TIME_INDEX_SUFFIX), Layout.TIME, new=self.create_planned_files is not None
            )
        return self._times

    @property
    def aborted(self) -> AbortedTransactions:
        if self._aborted is None:
            path = self.path(ABORTED_SUFFIX)
            self._aborted = AbortedTransactions(self._disk, path, self.base_offset, exists=self._disk.exists(path))
        return self._aborted

    @property
    def is_cold(self) -> bool:
        """Whether the latest timestamp must be read from a file."""
        return self._max_timestamp == _UNKNOWN

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all records, or -1."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch, from which `segment.ms` counts; -1 if the segment is empty."""
        if self._first_timestamp == _UNKNOWN:
            if self.size < HEADER_BYTES:
                return NO_TIMESTAMP
            _, header = next(self.headers())
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def latest_ms(self) -> int:
        """Return the time that `retention.ms` counts from: the largest timestamp, or else the file's modification."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    def is_full(self, max_index_bytes: int) -> bool:
        """Return whether an index has reached its maximum size."""
        return max(self.offsets.size_bytes, self.times.size_bytes) + 12 > max_index_bytes

    def fits(self, offset: int) -> bool:
        """Return whether an offset is within 31 bits of the base offset."""
        return 0 <= offset - self.base_offset <= MAX_INT32

    def append(
        self,
        data: bytes | bytearray | memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end. If the disk fails, the segment is unchanged."""
        position = self.known_size
        if position < 0:
            position = self.size
        file = self._file
        if file is None:
            file = self.file
        if self._indexed_since_spill >= SPILL_ENTRIES:
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
        self.index_batch(position, size, last_offset, max_timestamp, index_interval_bytes)
        self.known_size = position + size
        self._tail = base_offset, last_offset, position, size, bytes(data) if size <= _CACHED_TAIL_BYTES else None

    def append_block(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[tuple[int, int, int]],
        index_interval_bytes: int,
    ) -> None:
        """Write several batches at once, given the size, last offset and max timestamp of each."""
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
            self.index_batch(position, size, last_offset, max_timestamp, index_interval_bytes)
            position += size
        self.known_size = position

    def index_batch(
        self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Add a batch to the indexes, which have about one entry for each `index.interval.bytes`."""
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
            self._indexed_since_spill += 1
            self._unindexed_bytes = size
        else:
            self._unindexed_bytes += size

    def find(self, offset: int) -> BatchPosition | None:
        """Return the first batch that ends at the offset or after it; None without such a batch."""
        tail = self._tail
        if tail is not None and offset >= tail[_TAIL_BASE_OFFSET]:
            base_offset, last_offset, position, size, _ = tail
            return BatchPosition(position, size, base_offset) if offset <= last_offset else None
        end = self.size
        floor = self.offsets.floor(offset - self.base_offset)
        position = floor[1] if floor else 0
        file = self.file.number
        while position < end:
            block = self._disk.pread(file, min(_SEARCH_BYTES, end - position), position)
            if len(block) < HEADER_BYTES:
                raise CorruptLog(self.path(LOG_SUFFIX), position, f"{end - position} bytes are too few for a batch")
            start, last_start = 0, len(block) - HEADER_BYTES
            while start <= last_start:
                base_offset, length, last_offset_delta = read_bounds(block, start)
                if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
                    raise CorruptLog(self.path(LOG_SUFFIX), position + start, f"batch length {length}")
                size = length + LENGTH_PREFIX_BYTES
                if base_offset + last_offset_delta >= offset:
                    return BatchPosition(position + start, size, base_offset)
                start += size
            position += start
        return None

    def read(self, first: BatchPosition, max_bytes: int, end: int) -> FileRange:
        """Return that batch at least, then up to `max_bytes`, but nothing from position `end` on."""
        position = first.position
        size = min(max(max_bytes, first.size), end - position)
        held, tail = None, self._tail
        if tail is not None and tail[_TAIL_POSITION] == position and tail[_TAIL_SIZE] == size:
            held = tail[_TAIL_DATA]
        return FileRange(self.file, position, size, held)

    def upper_bound(self, position: int) -> int | None:
        """Return the last offset of an indexed batch at or after the position; None if no index entry follows."""
        entry = self.offsets.ceiling_value(position)
        return None if entry is None else self.base_offset + entry[0]

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch."""
        return scan_headers(self._disk, self.file.number, self.path(LOG_SUFFIX), start, self.size)

    def batches(self, start: int = 0) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Verify each batch and yield its position, its header, and a buffer with the batch's position in it."""
        return scan_batches(self._disk, self.file.number, self.path(LOG_SUFFIX), start, self.size)

    def bytes_at(self, position: int, size: int) -> bytes:
        """Return bytes of the log file."""
        return self._disk.pread(self.file.number, size, position)

    def cut(self, position: int) -> None:
        """Cut the file at a position; no index may have entries beyond it."""
        self._tail = None
        self.known_size = position
        self.file.cut(position)

    def next_offset(self) -> int:
        """Return the offset after the last batch, read from the last index entry on."""
        last = self.offsets.last()
        after = self.base_offset
        for _, header in self.headers(last[1] if last else 0):
            after = header.next_offset
        return after

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file where a batch begins, and drop its and later offsets from the indexes."""
        self.offsets.truncate(position)
        # A time entry holds up to its offset, so entries for the remaining offsets are still valid.
        self.times.truncate(max(next_offset - self.base_offset, 0))
        self._time_in_index = _UNKNOWN
        self.aborted.truncate(next_offset)
        self.cut(position)
        self._unindexed_bytes = 0
        if position == 0:
            self._first_timestamp = _UNKNOWN
        self._load_max_timestamp()

    def reindex(self, index_interval_bytes: int) -> None:
        """Rebuild the indexes from the log."""
        self.clear_indexes()
        for position, header in self.headers():
            self.index_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes
            )
        self.finish()

    def clear_indexes(self) -> None:
        """Empty both indexes before they are rebuilt."""
        self.offsets.clear()
        self.times.clear()
        self._time_in_index = _UNKNOWN
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = _UNKNOWN
        self._unindexed_bytes = 0

    def check(self) -> None:
        """Raise CorruptIndex if the end of an index does not fit the log."""
        self.offsets.check()
        self.times.check()
        last = self.offsets.last()
        if last is not None and last[1] >= self.size:
            raise CorruptIndex(f"{self.offsets.path} points to byte {last[1]} of a log of {self.size}")
        self.aborted.check()

    def finish(self) -> None:
        """Write the indexes and cut unused space off. Called when the segment is rolled or the log is closed."""
        self._tail = None
        if self.create_planned_files is not None:
            self.create_planned_files()
        file = self._file
        if file is not None and (file.has_reserved or self._disk.size(file.number) > self.size):
            # Space that was reserved but not used, or the rest of a failed write that could not be cut off then.
            self.cut(self.size)
        if self._max_timestamp != _UNKNOWN:
            self._index_time()
        # An index that was never loaded is in its file already.
        if self._offsets is not None:
            self._offsets.write()
        if self._times is not None:
            self._times.write()

    def sync(self) -> None:
        """Sync the segment and its indexes."""
        self._disk.sync(self.file.number)
        if self._offsets is not None:
            self._offsets.write(sync=True)
        if self._times is not None:
            self._times.write(sync=True)
        if self._aborted is not None:
            self._aborted.sync()

    def release(self) -> None:
        """Release the open files. Responses in flight keep theirs open."""
        self._file = None
        if self._aborted is not None:
            self._aborted.close()

    def rename(self, suffix: str) -> None:
        """Give the files another suffix. The log file marks a segment: it is added last and removed first."""
        for kind in SUFFIXES if suffix == DELETED else (*SUFFIXES[1:], LOG_SUFFIX):
            old = self.path(kind)
            new = old.removesuffix(self.suffix) + suffix
            if kind == LOG_SUFFIX or self._disk.exists(old):
                self._disk.rename(old, new)
        self.suffix = suffix
        self._repath()

    def move(self, directory: str) -> None:
        """Take over the new path of a renamed directory."""
        self.directory = directory
        self._repath()

    def remove(self) -> None:
        """Delete the files that exist. The log file comes last: without one, the others are gone."""
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
        """Write full indexes to their files, before a batch is written: a failure then leaves the segment unchanged."""
        if self._offsets is not None:
            self._offsets.spill()
        if self._times is not None:
            self._times.spill()
        self._indexed_since_spill = 0

    def _drop_tail(self) -> None:
        """Cut off what a failed write left, which a later start might take for batches."""
        # If this fails too, `finish` tries again.
        with suppress(OSError):
            self.file.cut(self.size)

    def _index_time(self) -> None:
        """Add the largest timestamp so far to the time index, unless it is there already."""
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
        """Read the largest timestamp from the time index and from the batches after its last entry."""
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
