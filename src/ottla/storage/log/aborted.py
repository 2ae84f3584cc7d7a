"""The `.txnindex` files: the aborted transactions of a segment, which read_committed consumers must skip.

    version i16 = 0 · producer id i64 · first offset i64 · last offset i64 · last stable offset i64

An entry is in the segment of its marker, whose offset is the last one; its records may be in earlier segments. The last
stable offset is the one after the abort. Transactions from there on are in later entries, so a search may end there.
Most segments have no entry: the file is created for the first one, and opened on first use.
"""

import struct
from typing import Final, NamedTuple

from ottla.storage.disk import Disk, LogFile, write_all
from ottla.storage.log.index import CorruptIndex

ABORTED_SUFFIX: Final = ".txnindex"

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


class Aborted(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """The aborted transactions of one segment. `exists` says whether there is a file."""

    __slots__ = ("_disk", "_file", "_last_offset", "_size", "base_offset", "exists", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, exists: bool) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.exists = exists
        self._file: LogFile | None = None
        self._size = 0
        """The size of the whole entries in bytes. A torn entry after a crash is overwritten by the next."""
        self._last_offset = -1

    @property
    def is_empty(self) -> bool:
        return self._opened() is None or self._size == 0

    def append(self, entry: Aborted) -> None:
        """Add a transaction whose marker comes after all others here."""
        file = self._opened() or self._create()
        if entry.last_offset <= self._last_offset:
            raise ValueError(
                f"aborted transaction ends at {entry.last_offset}, the previous one at {self._last_offset}"
            )
        write_all(self._disk, file.number, _ENTRY.pack(_VERSION, *entry), self._size)
        self._size += ENTRY_BYTES
        self._last_offset = entry.last_offset

    def read(self) -> list[Aborted]:
        """Return all entries in the order of their markers."""
        file = self._opened()
        if file is None or self._size == 0:
            return []
        data = self._disk.pread(file.number, self._size, 0)
        entries: list[Aborted] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndex(f"{self.path}: entry {len(entries)} has version {version}, not {_VERSION}")
            entries.append(Aborted(*fields))
        return entries

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[Aborted], bool]:
        """Return the transactions that overlap a range of offsets, and whether later segments cannot have more."""
        overlapping: list[Aborted] = []
        for entry in self.read():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                overlapping.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return overlapping, True
        return overlapping, False

    def truncate(self, offset: int) -> None:
        """Remove the transactions whose marker is at or after the offset."""
        entries = self.read()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._cut(len(kept) * ENTRY_BYTES, kept[-1].last_offset if kept else -1)

    def reset(self) -> None:
        """Remove all entries; the file stays."""
        if self._opened() is not None:
            self._cut(0, -1)

    def check(self) -> None:
        """Raise CorruptIndex if an entry has an unknown version or ends before the segment begins."""
        for entry in self.read():
            if entry.last_offset < self.base_offset:
                raise CorruptIndex(f"{self.path}: {entry} ends before the segment's base offset {self.base_offset}")

    def sync(self) -> None:
        """Sync the entries. The name of a new file also needs a sync of its directory."""
        if self._file is not None:
            self._disk.sync(self._file.number)

    def rename(self, path: str) -> None:
        """Move the file, if there is one, as its segment moves."""
        if self.exists:
            self._disk.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file = None

    def delete(self) -> None:
        self._file = None
        if self.exists:
            self._disk.remove(self.path)
            self.exists = False

    def _opened(self) -> LogFile | None:
        if self._file is None and self.exists:
            self._file = LogFile(self._disk, self.path, self._disk.open(self.path))
            size = self._disk.size(self._file.number)
            self._size = size - size % ENTRY_BYTES
            self._last_offset = -1
            if self._size:
                last = self._disk.pread(self._file.number, ENTRY_BYTES, self._size - ENTRY_BYTES)
                self._last_offset = _ENTRY.unpack(last)[3]
        return self._file

    def _create(self) -> LogFile:
        self._file = LogFile(self._disk, self.path, self._disk.create(self.path))
        self.exists = True
        self._size = 0
        self._last_offset = -1
        return self._file

    def _cut(self, size: int, last_offset: int) -> None:
        assert self._file is not None
        self._disk.truncate(self._file.number, size)
        self._size = size
        self._last_offset = last_offset
