"""A disk in memory that can lose power: unsynced changes may then survive, get lost, or survive in part.

`SimulatedDisk` behaves as Linux's file system does while the machine is up (`tests/unit/storage/test_simulated_disk.py`
compares the two). For each file and directory it keeps the durable content and the changes since. So `crash()` can
return a disk as it might be found after power loss, and `process_crash()` one as it is found after SIGKILL. The seed
determines everything: the same calls give the same crash.

After a power loss, a file may show any of this: unsynced writes reach the medium in sectors of 512 bytes, each sector
in any version it has had; a sector being written may be torn; the size may be ahead of the data (a hole of zeros) or
behind it; a truncation may be undone although later writes survived. A directory keeps a prefix of its changes since
its last sync, independently of the files. Synced bytes that were not written again never change.

A failed `sync` loses the data for good: readers see it until the crash, and later syncs succeed. Linux does the same:
it marks pages clean when their write-back fails.
"""

import errno
import os
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from random import Random
from sys import maxsize
from typing import Final

SECTOR: Final = 512
_NEVER: Final = maxsize
_FIRST_DESCRIPTOR: Final = 1_000_000  # larger than any real descriptor, in case one reaches a real system call


class PowerLoss(BaseException):
    """The machine lost power during a call. It is no `Exception`, because no program can handle it."""


class Survival(Enum):
    """Selects the unsynced changes of a file that survive a power loss."""

    NONE = "none"
    PREFIX = "the changes before some moment"
    SUBSET = "any version of each sector"
    ALL = "all"


_SURVIVALS: Final = tuple(Survival)


class _File:
    """A file: readers see `content`, which equals `durable` plus `pending` unless a sync has failed."""

    __slots__ = ("content", "durable", "durable_modified_ms", "modified_ms", "pending", "syncs")

    def __init__(self, now_ms: int, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data), or (size, None) for a truncation
        self.modified_ms = now_ms
        self.durable_modified_ms = now_ms
        self.syncs = 0

    def write(self, data: bytes, position: int) -> None:
        if data:
            _put(self.content, data, position)
            self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        if size != len(self.content):
            _resize(self.content, size)
            self.pending.append((size, None))

    def make_durable(self) -> None:
        for position, data in self.pending:
            if data is None:
                _resize(self.durable, position)
            else:
                _put(self.durable, data, position)
        self.pending.clear()
        self.durable_modified_ms = self.modified_ms
        self.syncs += 1


class _Directory:
    __slots__ = ("durable", "entries", "modified_ms", "pending", "syncs")

    def __init__(self, now_ms: int) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_Change] = []
        self.modified_ms = now_ms
        self.syncs = 0

    def change(self, now_ms: int, *change: "tuple[str, _Node | None]") -> None:
        _apply(self.entries, change)
        self.pending.append(change)
        self.modified_ms = now_ms

    def make_durable(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()
        self.syncs += 1


_Node = _File | _Directory
_Change = tuple[tuple[str, _Node | None], ...]
"""The atomic change of names by one call: the file or directory that each name stands for afterwards."""


class SimulatedDisk:
    """An `ottla.storage.disk.Disk` whose files are in memory, with crashes and failures on demand.

    `calls` counts the calls that change something, syncs included; `fail_after` and `crash_after` count the same calls.
    A call that fails anyway (no such file) does not count.
    """

    def __init__(self, seed: int, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.calls = 0
        self._random = Random(seed)
        self._now_ms = now_ms
        self._root = _Directory(now_ms())
        self._files: dict[int, _File] = {}
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._fail_at = _NEVER
        self._crash_at = _NEVER
        self._fault_at = _NEVER  # the earlier of the two
        self._failure = errno.EIO
        self._full = False

    # Files

    def open(self, path: str) -> int:
        node = self._find(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return self._descriptor(node)

    def create(self, path: str) -> int:
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        self._count()
        now_ms = self._now_ms()
        if node is None:
            node = _File(now_ms)
            directory.change(now_ms, (name, node))
        else:
            node.truncate(0)
            node.modified_ms = now_ms
        return self._descriptor(node)

    def close(self, file: int, /) -> None:
        # After a crash, descriptors of the dead process may still be closed, when a test drops its objects.
        if self._files.pop(file, None) is None and self._fault_at:
            raise _error(errno.EBADF)

    def pread(self, file: int, size: int, position: int, /) -> bytes:
        if size < 0 or position < 0:
            raise _error(errno.EINVAL)
        node = self._file(file)
        return bytes(node.content[position : position + size])

    def pwrite(self, file: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
        if position < 0:
            raise _error(errno.EINVAL)
        node = self._file(file)
        data = bytes(data)
        self.calls += 1
        if self.calls >= self._fault_at:
            return self._interrupted_write(node, data, position)
        node.write(data, position)
        node.modified_ms = self._now_ms()
        return len(data)

    def reserve(self, file: int, position: int, size: int, /) -> bool:
        if position < 0 or size <= 0:
            raise _error(errno.EINVAL)
        self._file(file)
        return True

    def sync(self, file: int, /) -> None:
        node = self._file(file)
        try:
            self._count()
        except OSError:
            node.durable = _surviving_content(node, self._random.choice(_SURVIVALS), self._random)
            node.pending.clear()
            raise
        node.make_durable()

    def truncate(self, file: int, size: int, /) -> None:
        if size < 0:
            raise _error(errno.EINVAL)
        node = self._file(file)
        self._count()
        node.truncate(size)
        node.modified_ms = self._now_ms()

    def size(self, file: int, /) -> int:
        return len(self._file(file).content)

    # Names

    def size_of(self, path: str) -> int:
        node = self._find(path)
        return len(node.content) if isinstance(node, _File) else 4096

    def modified_ms(self, path: str) -> int:
        return self._find(path).modified_ms

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def names(self, directory: str) -> list[str]:
        names = list(self._directory(directory).entries)
        self._random.shuffle(names)  # file systems guarantee no order
        return names

    def rename(self, path: str, new_path: str) -> None:
        directory, name = self._place(path)
        new_directory, new_name = self._place(new_path)
        node = directory.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        assert new_directory is directory, f"{path} moved to another directory, {new_path}: not simulated"
        replaced = directory.entries.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, _Directory) and isinstance(node, _File):
            raise _error(errno.EISDIR, new_path)
        if isinstance(replaced, _File) and isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, new_path)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise _error(errno.ENOTEMPTY, new_path)
        self._count()
        directory.change(self._now_ms(), (name, None), (new_name, node))

    def remove(self, path: str) -> None:
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        self._count()
        directory.change(self._now_ms(), (name, None))

    def make_dir(self, path: str) -> None:
        directory: _Node = self._root
        for name in _parts(path):
            if isinstance(directory, _File):
                raise _error(errno.ENOTDIR, path)
            node = directory.entries.get(name)
            if node is None:
                self._count()
                node = _Directory(self._now_ms())
                directory.change(self._now_ms(), (name, node))
            directory = node
        if isinstance(directory, _File):
            raise _error(errno.EEXIST, path)

    def remove_dir(self, path: str) -> None:
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        if node.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._count()
        directory.change(self._now_ms(), (name, None))

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._count()
        directory.make_durable()

    # Crashes and failures

    def crash(self, survival: Survival | None = None) -> "SimulatedDisk":
        """Return the disk as found after power loss, and switch this one off: it loses its files and descriptors."""
        disk = self.imagine_crash(survival)
        self._switch_off()
        return disk

    def imagine_crash(self, survival: Survival | None = None) -> "SimulatedDisk":
        """Return the disk as found if power were lost now; this one keeps working, so a test can do so at each step."""
        disk = self._successor()
        if survival is None and disk._random.random() < 0.5:
            survival = disk._random.choice(_SURVIVALS)  # the same for all files; otherwise each file gets its own
        disk._root = _surviving_directory(self._root, survival, disk._random)
        return disk

    def process_crash(self) -> "SimulatedDisk":
        """Return the disk as found after SIGKILL: all writes are there, but no more durable than before."""
        disk = self._successor()
        disk._root = self._root
        self._switch_off()
        return disk

    def fail_after(self, calls: int, error: int = errno.EIO) -> None:
        """Make the `calls`-th call from now raise OSError, once; a write is done in part.

        With ENOSPC a write is short, and the next call fails.
        """
        assert calls > 0
        self._fail_at = self.calls + calls
        self._failure = error
        self._full = False
        self._fault_at = min(self._fail_at, self._crash_at)

    def crash_after(self, calls: int) -> None:
        """Make the `calls`-th call from now, and all after it, raise PowerLoss; a write is done in part.

        `crash()` or `process_crash()` then returns the disk.
        """
        assert calls > 0
        self._crash_at = self.calls + calls
        self._fault_at = min(self._fail_at, self._crash_at)

    # Inspection by tests

    @property
    def open_files(self) -> int:
        """The number of open descriptors."""
        return len(self._files)

    def synced(self, path: str) -> int:
        """Return how often a file or directory was synced since its creation or the last power loss."""
        return self._find(path).syncs

    def listing(self) -> dict[str, bytes]:
        """Return the content of every file, by path."""
        return {path: bytes(node.content) for path, node in _walk(self._root) if isinstance(node, _File)}

    def dump(self) -> str:
        """Return the tree as text: a line per file and directory, with the number of unsynced changes."""
        lines = []
        for path, node in _walk(self._root):
            if isinstance(node, _Directory):
                lines.append(f"{path}/ {len(node.pending)} changes not synced")
            else:
                sizes = f"{len(node.content)} bytes, {len(node.durable)} durable"
                lines.append(f"{path} {sizes}, {len(node.pending)} changes not synced")
        return "\n".join(lines)

    # Implementation

    def _count(self) -> None:
        self.calls += 1
        if self.calls >= self._fault_at:
            self._raise_fault()

    def _raise_fault(self) -> None:
        if self.calls >= self._crash_at:
            raise PowerLoss(f"at call {self._crash_at}")
        self._fail_at = _NEVER
        self._fault_at = self._crash_at
        raise _error(self._failure)

    def _interrupted_write(self, node: _File, data: bytes, position: int) -> int:
        part = data[: self._random.randrange(len(data))] if data else b""
        try:
            self._raise_fault()
        except PowerLoss:
            if self.calls == self._crash_at:  # later calls come from a machine that is off
                node.write(part, position)
            raise
        except OSError:
            if self._full:
                raise
            node.write(part, position)
            if self._failure != errno.ENOSPC or not part:
                raise
            self.fail_after(1, errno.ENOSPC)
            self._full = True
        return len(part)

    def _successor(self) -> "SimulatedDisk":
        disk = SimulatedDisk(self._random.getrandbits(64), self._now_ms)
        disk._next_descriptor = self._next_descriptor  # an old descriptor is never a valid one on the new disk
        return disk

    def _switch_off(self) -> None:
        self._files.clear()
        self._root = _Directory(0)
        self._crash_at = self._fault_at = 0

    def _descriptor(self, node: _File) -> int:
        self._next_descriptor += 1
        self._files[self._next_descriptor] = node
        return self._next_descriptor

    def _file(self, file: int) -> _File:
        node = self._files.get(file)
        if node is None:
            raise _error(errno.EBADF)
        return node

    def _find(self, path: str) -> _Node:
        node: _Node | None = self._root
        for name in _parts(path):
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR, path)
            assert node is not None
            node = node.entries.get(name)
            if node is None:
                raise _error(errno.ENOENT, path)
        assert node is not None
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        """Return the directory of the path's last name, and that name."""
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        directory = self._find("/".join(parts[:-1]) or "/")
        if isinstance(directory, _File):
            raise _error(errno.ENOTDIR, path)
        return directory, parts[-1]


@lru_cache(maxsize=10_000)
def _parts(path: str) -> tuple[str, ...]:
    """Return the names in a path; a relative path starts at the root."""
    if not path:
        raise _error(errno.ENOENT, path)
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    assert ".." not in parts, f"{path}: not simulated"
    return parts


def _error(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path) if path is not None else OSError(code, os.strerror(code))


def _put(buffer: bytearray, data: bytes, position: int) -> None:
    if position > len(buffer):
        _resize(buffer, position)
    buffer[position : position + len(data)] = data


def _resize(buffer: bytearray, size: int) -> None:
    if size < len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))


def _apply(entries: dict[str, _Node], change: _Change) -> None:
    for name, node in change:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _walk(directory: _Directory, path: str = "") -> list[tuple[str, _Node]]:
    nodes: list[tuple[str, _Node]] = []
    for name, node in sorted(directory.entries.items()):
        nodes.append((f"{path}/{name}", node))
        if isinstance(node, _Directory):
            nodes += _walk(node, f"{path}/{name}")
    return nodes


def _surviving_directory(directory: _Directory, survival: Survival | None, random: Random) -> _Directory:
    survivor = _Directory(directory.modified_ms)
    entries = dict(directory.durable)
    for change in directory.pending[: _surviving_changes(len(directory.pending), survival, random)]:
        _apply(entries, change)
    for name, node in entries.items():
        if isinstance(node, _Directory):
            survivor.entries[name] = _surviving_directory(node, survival, random)
        else:
            content = _surviving_content(node, survival or random.choice(_SURVIVALS), random)
            modified_ms = random.choice((node.durable_modified_ms, node.modified_ms))
            survivor.entries[name] = _File(modified_ms, content)
    survivor.durable = dict(survivor.entries)
    return survivor


def _surviving_changes(count: int, survival: Survival | None, random: Random) -> int:
    if survival is Survival.NONE:
        return 0
    if survival is Survival.ALL:
        return count
    # All or nothing gets as many tries as everything between.
    return random.choice((0, count, random.randint(0, count)))


def _surviving_content(file: _File, survival: Survival, random: Random) -> bytearray:
    """Return the content of a file after power loss."""
    buffer = bytearray(file.durable)
    if not file.pending:
        return buffer
    pieces = _sectors(file.pending)
    kept = _choose_survivors(pieces, survival, random)
    smallest = largest = len(buffer)
    for (position, data), keep in zip(pieces, kept, strict=True):
        if data is not None:
            largest = max(largest, position + len(data))
            if keep:
                _put(buffer, data, position)
        elif keep:
            _resize(buffer, position)
            smallest = largest = position
    if survival is Survival.PREFIX or survival is Survival.SUBSET:
        written = [piece for piece, keep in zip(pieces, kept, strict=True) if keep and piece[1] is not None]
        if written and random.random() < 0.5:
            position, data = written[-1] if survival is Survival.PREFIX else random.choice(written)
            assert data is not None
            _tear(buffer, position, len(data), file.durable, random)
    if survival is not Survival.ALL:
        _resize(buffer, random.choice((len(buffer), largest, random.randint(smallest, largest))))
    return buffer


def _sectors(pending: list[tuple[int, bytes | None]]) -> list[tuple[int, bytes | None]]:
    """Split the changes so that no write crosses a sector boundary."""
    pieces: list[tuple[int, bytes | None]] = []
    for position, data in pending:
        room = SECTOR - position % SECTOR
        if data is None or len(data) <= room:
            pieces.append((position, data))
            continue
        pieces.append((position, data[:room]))
        pieces += [(position + start, data[start : start + SECTOR]) for start in range(room, len(data), SECTOR)]
    return pieces


def _choose_survivors(pieces: list[tuple[int, bytes | None]], survival: Survival, random: Random) -> list[bool]:
    count = len(pieces)
    if survival is Survival.NONE or survival is Survival.ALL:
        return [survival is Survival.ALL] * count
    if survival is Survival.PREFIX:
        end = random.randint(0, count)
        return [True] * end + [False] * (count - end)
    # On the medium, a sector has one of the versions it has had in memory: its writes survive up to one of them.
    # Truncations go through the journal: they survive up to one of them, independently of the sectors.
    by_sector: dict[int, list[int]] = {}
    for index, (position, data) in enumerate(pieces):
        by_sector.setdefault(-1 if data is None else position // SECTOR, []).append(index)
    kept = [False] * count
    for indexes in by_sector.values():
        for index in indexes[: random.choice((0, len(indexes), random.randint(0, len(indexes))))]:
            kept[index] = True
    return kept


def _tear(buffer: bytearray, position: int, size: int, durable: bytearray, random: Random) -> None:
    """Replace some bytes of a write by old bytes, zeros or garbage; bytes outside it stay unchanged."""
    start = position + random.randrange(size)
    end = min(random.randint(start + 1, position + size), len(buffer))
    if start >= end:
        return
    lost = end - start
    old = bytes(durable[start:end]).ljust(lost, b"\0")
    buffer[start:end] = random.choice((old, bytes(lost), random.randbytes(lost)))
