"""Sparse indexes of a segment: from offsets to file positions, and from timestamps to offsets.

A file is a run of fixed-size entries, sorted by both columns. New entries stay in memory and go to the file in blocks,
at a roll or a stop; what is in the file is searched there. So an index of any size costs nothing to open and
next to nothing to hold. After a crash the file may lack entries or hold wrong ones: recovery rebuilds it from the log.

    offset index (8 bytes)    offset above the segment's base u32 · position of its batch u32
    time index (12 bytes)     timestamp i64 · offset above the base u32: no batch up to that offset is later

An offset entry names its batch by the batch's last offset, as Kafka does.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum

from ottla.storage.disk import Disk, write_all

SPILL_ENTRIES = 512
"""So many entries in memory are written to the file."""
_SEARCH_ENTRIES = 64
"""A search in the file ends by reading where so many are left: fewer calls than going on by halves."""
_READ_AHEAD_ENTRIES = 128
"""So many are read then: whoever reads on will look for the next ones."""


class CorruptIndex(Exception):
    """An index file that no writer can have left behind after a clean stop."""


class Layout(Enum):
    """The two kinds of index: array codes of the columns, and an entry on disk."""

    OFFSET = ("I", "I", ">II")
    TIME = ("q", "I", ">qI")

    def __init__(self, key_code: str, value_code: str, entry: str) -> None:
        self.key_code = key_code
        self.value_code = value_code
        self.entry = struct.Struct(entry)


class Index:
    """One index of one segment: entries `(key, value)` that never fall in either column."""

    __slots__ = ("_block", "_disk", "_keys", "_layout", "_stored", "_values", "path")

    def __init__(self, disk: Disk, path: str, layout: Layout, *, new: bool) -> None:
        self._disk = disk
        self._layout = layout
        self.path = path
        self._stored = 0 if new else -1
        self._keys: array[int] | None = None
        self._values: array[int] | None = None
        self._block: tuple[int, bytes] | None = None
        """The stored entries that were last searched, from one on."""

    def __len__(self) -> int:
        keys = self._keys
        return self._stored_count() + (len(keys) if keys is not None else 0)

    @property
    def size_bytes(self) -> int:
        return len(self) * self._layout.entry.size

    def append(self, key: int, value: int) -> None:
        """Add an entry after all others. It stays in memory, so that this cannot fail."""
        keys, values = self._keys, self._values
        if keys is None or values is None:
            keys = self._keys = array(self._layout.key_code)
            values = self._values = array(self._layout.value_code)
        keys.append(key)
        values.append(value)

    def spill(self) -> None:
        """Put what is in memory into the file if it is much."""
        if self._keys is not None and len(self._keys) >= SPILL_ENTRIES:
            self.write()

    def last(self) -> tuple[int, int] | None:
        """The newest entry."""
        if self._keys and self._values:
            return self._keys[-1], self._values[-1]
        count = self._stored_count()
        return self._read(count - 1, 1)[0] if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above the given one."""
        keys, values = self._keys, self._values
        if keys and values and keys[0] <= key:
            at = bisect_right(keys, key) - 1
            return keys[at], values[at]
        _, block = self._block_around(key, column=0)
        at = self._up_to(block, key, column=0)
        return self._entry(block, at - 1) if at else None

    def ceiling_value(self, value: int) -> tuple[int, int] | None:
        """The first entry whose value is not below the given one."""
        low, block = self._block_around(value - 1, column=1)
        at = self._up_to(block, value - 1, column=1)
        if at < len(block) // self._layout.entry.size:
            return self._entry(block, at)
        if low + at < self._stored_count():
            return self._read(low + at, 1)[0]
        keys, values = self._keys, self._values
        if keys and values:
            at = bisect_left(values, value)
            if at < len(values):
                return keys[at], values[at]
        return None

    def truncate(self, value: int) -> None:
        """Drop the entries whose value is the given one or greater."""
        keys, values = self._keys, self._values
        if keys and values:
            kept = bisect_left(values, value)
            del keys[kept:], values[kept:]
            if kept:
                return
        low, block = self._block_around(value - 1, column=1)
        kept = low + self._up_to(block, value - 1, column=1)
        if kept == self._stored_count():
            return
        self._block = None
        file = self._disk.open(self.path)
        try:
            self._disk.truncate(file, kept * self._layout.entry.size)
        finally:
            self._disk.close(file)
        self._stored = kept

    def clear(self) -> None:
        """Drop all entries."""
        self._keys = self._values = self._block = None
        self._stored = 0
        self._disk.close(self._disk.create(self.path))

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries, oldest first."""
        count = self._stored_count()
        for start in range(0, count, SPILL_ENTRIES):
            yield from self._read(start, min(SPILL_ENTRIES, count - start))
        if self._keys and self._values:
            yield from zip(self._keys, self._values, strict=True)

    def write(self, *, sync: bool = False) -> None:
        """Put what is in memory into the file, which exists afterwards even when empty."""
        keys, values = self._keys, self._values
        if not keys or not values:
            if self._stored <= 0 and not self._disk.exists(self.path):
                self._disk.close(self._disk.create(self.path))
            if not sync:
                return
        pack = self._layout.entry.pack
        count = self._stored_count()
        file = self._disk.open(self.path) if self._disk.exists(self.path) else self._disk.create(self.path)
        try:
            if keys and values:
                data = b"".join(map(pack, keys, values))
                write_all(self._disk, file, data, count * self._layout.entry.size)
                self._stored = count + len(keys)
                self._keys = self._values = None
            if sync:
                self._disk.sync(file)
        finally:
            self._disk.close(file)

    def check(self) -> None:
        """Raise CorruptIndex if the file cannot be what a clean stop left: a cheap look, at its size and last entry."""
        try:
            size = self._disk.size_of(self.path)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path} is missing") from None
        if size % self._layout.entry.size:
            raise CorruptIndex(
                f"{self.path}: {size} bytes are no whole number of {self._layout.entry.size}-byte entries"
            )
        # Kafka writes into files that are filled with zeros up to their greatest size, and cuts them at a clean stop.
        if len(self) > 1 and self.last() == (0, 0):
            raise CorruptIndex(f"{self.path} ends in zeros")

    def _block_around(self, bound: int, column: int) -> tuple[int, bytes]:
        """Stored entries, with the number of the first; among them is the last one not above the bound, if any is."""
        if self._block is not None and self._is_around(bound, column, *self._block):
            return self._block
        low, high = 0, self._stored_count()
        if high == 0:
            return 0, b""
        file = self._disk.open(self.path)
        size = self._layout.entry.size
        end = high
        try:
            while high - low > _SEARCH_ENTRIES:
                middle = (low + high) // 2
                if self._entry(self._disk.pread(file, size, middle * size), 0)[column] <= bound:
                    low = middle
                else:
                    high = middle
            count = min(max(high - low, _READ_AHEAD_ENTRIES), end - low)
            self._block = low, self._disk.pread(file, count * size, low * size)
        finally:
            self._disk.close(file)
        return self._block

    def _is_around(self, bound: int, column: int, low: int, block: bytes) -> bool:
        """Whether a block tells which entry is the last one not above the bound."""
        count = len(block) // self._layout.entry.size
        if low and self._entry(block, 0)[column] > bound:
            return False
        return low + count == self._stored_count() or (count > 0 and self._entry(block, count - 1)[column] > bound)

    def _up_to(self, block: bytes, bound: int, column: int) -> int:
        """How many entries of a block are not above the bound."""
        return bisect_right(
            range(len(block) // self._layout.entry.size), bound, key=lambda at: self._entry(block, at)[column]
        )

    def _entry(self, block: bytes, at: int) -> tuple[int, int]:
        entry = self._layout.entry
        found: tuple[int, int] = entry.unpack_from(block, at * entry.size)
        return found

    def _read(self, start: int, count: int) -> list[tuple[int, int]]:
        entry = self._layout.entry
        file = self._disk.open(self.path)
        try:
            return list(entry.iter_unpack(self._disk.pread(file, count * entry.size, start * entry.size)))
        finally:
            self._disk.close(file)

    def _stored_count(self) -> int:
        if self._stored < 0:
            try:
                self._stored = self._disk.size_of(self.path) // self._layout.entry.size
            except FileNotFoundError:
                self._stored = 0
        return self._stored
