"""Sparse indexes of a segment: from offsets to file positions, and from timestamps to offsets.

A file is an array of fixed-size entries, sorted by both columns. New entries stay in memory and are written in blocks,
when the segment is rolled or closed; entries in the file are searched there. So an index of any size is free to open
and takes almost no memory. After a crash, recovery rebuilds the file from the log.

    offset index (8 bytes)    offset minus base offset u32 · position of its batch u32
    time index (12 bytes)     timestamp i64 · offset minus base offset u32: no batch up to that offset is later

An offset entry has the *last* offset of its batch; Kafka's tools check that.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum

from ottla.storage.disk import Disk, write_all

SPILL_ENTRIES = 512
"""The number of entries in memory that are written to the file together."""
_SEARCH_ENTRIES = 64
"""A binary search in the file reads the remaining entries in one call once this few are left."""
_READ_AHEAD_ENTRIES = 128
"""How many entries it then reads: sequential readers search for the next ones soon."""


class CorruptIndex(Exception):
    """The file is not what a clean stop leaves behind."""


class Layout(Enum):
    """The two kinds of index: type codes of the columns in memory, and the layout of an entry on disk."""

    OFFSET = ("I", "I", ">II")
    TIME = ("q", "I", ">qI")

    def __init__(self, key_code: str, value_code: str, entry: str) -> None:
        self.key_code = key_code
        self.value_code = value_code
        self.entry = struct.Struct(entry)


class Index:
    """One index of one segment: entries `(key, value)`, ascending in both columns."""

    __slots__ = ("_block", "_disk", "_keys", "_layout", "_stored", "_values", "path")

    def __init__(self, disk: Disk, path: str, layout: Layout, *, new: bool) -> None:
        self._disk = disk
        self._layout = layout
        self.path = path
        self._stored = 0 if new else -1
        self._keys: array[int] | None = None
        self._values: array[int] | None = None
        self._block: tuple[int, bytes] | None = None
        """The stored entries last read: the number of the first, and the bytes."""

    def __len__(self) -> int:
        keys = self._keys
        return self._stored_count() + (len(keys) if keys is not None else 0)

    @property
    def size_bytes(self) -> int:
        return len(self) * self._layout.entry.size

    def append(self, key: int, value: int) -> None:
        """Add an entry after all others. It stays in memory, so this cannot fail."""
        keys, values = self._keys, self._values
        if keys is None or values is None:
            keys = self._keys = array(self._layout.key_code)
            values = self._values = array(self._layout.value_code)
        keys.append(key)
        values.append(value)

    def spill(self) -> None:
        """Write the entries in memory to the file if there are many."""
        if self._keys is not None and len(self._keys) >= SPILL_ENTRIES:
            self.write()

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry."""
        if self._keys and self._values:
            return self._keys[-1], self._values[-1]
        count = self._stored_count()
        return self._read(count - 1, 1)[0] if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """Return the last entry with a key up to the given one."""
        keys, values = self._keys, self._values
        if keys and values and keys[0] <= key:
            number = bisect_right(keys, key) - 1
            return keys[number], values[number]
        _, block = self._block_around(key, column=0)
        number = self._up_to(block, key, column=0)
        return self._entry(block, number - 1) if number else None

    def ceiling_value(self, value: int) -> tuple[int, int] | None:
        """Return the first entry with the given value or a greater one."""
        low, block = self._block_around(value - 1, column=1)
        number = self._up_to(block, value - 1, column=1)
        if number < len(block) // self._layout.entry.size:
            return self._entry(block, number)
        if low + number < self._stored_count():
            return self._read(low + number, 1)[0]
        keys, values = self._keys, self._values
        if keys and values:
            number = bisect_left(values, value)
            if number < len(values):
                return keys[number], values[number]
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
        """Yield all entries, oldest first."""
        count = self._stored_count()
        for start in range(0, count, SPILL_ENTRIES):
            yield from self._read(start, min(SPILL_ENTRIES, count - start))
        if self._keys and self._values:
            yield from zip(self._keys, self._values, strict=True)

    def write(self, *, sync: bool = False) -> None:
        """Write the entries in memory to the file. An empty index gets an empty file."""
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
        """Raise CorruptIndex if the file's size or last entry cannot come from a clean stop."""
        try:
            size = self._disk.size_of(self.path)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path} is missing") from None
        if size % self._layout.entry.size:
            raise CorruptIndex(
                f"{self.path}: {size} bytes are not a multiple of the entry size, {self._layout.entry.size} bytes"
            )
        # Kafka preallocates index files and cuts them at a clean stop: after a crash they end in megabytes of zeros.
        if len(self) > 1 and self.last() == (0, 0):
            raise CorruptIndex(f"{self.path} ends in zeros")

    def _block_around(self, bound: int, column: int) -> tuple[int, bytes]:
        """Return stored entries that include the last one up to the bound, if any is, and the number of the first."""
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
        """Return whether a block includes the last entry up to the bound and shows that it is the last."""
        count = len(block) // self._layout.entry.size
        if low and self._entry(block, 0)[column] > bound:
            return False
        return low + count == self._stored_count() or (count > 0 and self._entry(block, count - 1)[column] > bound)

    def _up_to(self, block: bytes, bound: int, column: int) -> int:
        """Return how many entries of a block are up to the bound."""
        return bisect_right(
            range(len(block) // self._layout.entry.size), bound, key=lambda number: self._entry(block, number)[column]
        )

    def _entry(self, block: bytes, number: int) -> tuple[int, int]:
        entry = self._layout.entry
        pair: tuple[int, int] = entry.unpack_from(block, number * entry.size)
        return pair

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
