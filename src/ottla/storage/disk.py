"""The file system as the log uses it, small enough that a test can put another in its place.

`Disk` is the operating system's: each call is the system call itself, with no Python between. Tests pass a disk that
keeps files in memory, loses what was not synced and tears what was being written. Files are numbers, paths are text:
objects for either would cost more than the calls they wrap.

A write is durable after `sync` of its file; a file's creation, new name or removal after `sync_dir` of its directory.
"""

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Final, Protocol

_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC
_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE."""
_RESERVE_FROM_BYTES: Final = 1 << 20
"""A log that has grown to this gets room set aside ahead of what is written: an eighth of its size at a time, within
these bounds. Finding room for 64 KiB is a quarter of what writing them takes, and the same for a megabyte."""
_RESERVE_MOST_BYTES: Final = 16 << 20


class Disk(Protocol):
    """What the log asks of a file system. Failures are OSErrors."""

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        ...

    def create(self, path: str) -> int:
        """Open a file for reading and writing, empty: what was there is gone."""
        ...

    def close(self, file: int, /) -> None: ...

    def pread(self, file: int, size: int, position: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, file: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
        """How many bytes were written: fewer than given when the disk is full. `write_all` goes on or raises."""
        ...

    def reserve(self, file: int, position: int, size: int, /) -> bool:
        """Set room aside for what will be written there, if that is possible; the file's size stays what it is."""
        ...

    def sync(self, file: int, /) -> None:
        """Return when what was written, and the file's size, would survive a crash."""
        ...

    def truncate(self, file: int, size: int, /) -> None: ...

    def size(self, file: int, /) -> int: ...

    def size_of(self, path: str, /) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written to."""
        ...

    def exists(self, path: str, /) -> bool: ...

    def names(self, directory: str, /) -> list[str]:
        """The entries of a directory, in no order."""
        ...

    def rename(self, path: str, new_path: str, /) -> None:
        """Give a file or directory another name; a file of that name is replaced in one step."""
        ...

    def remove(self, path: str, /) -> None: ...

    def make_dir(self, path: str) -> None:
        """Make a directory and those above it, where they do not exist."""
        ...

    def remove_dir(self, path: str, /) -> None:
        """Remove an empty directory."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in the directory would survive a crash."""
        ...


class SystemDisk:
    """The operating system's file system."""

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.replace)
    remove = staticmethod(os.remove)
    exists = staticmethod(os.path.exists)
    names = staticmethod(os.listdir)
    remove_dir = staticmethod(os.rmdir)
    size_of = staticmethod(os.path.getsize)

    @staticmethod
    def open(path: str) -> int:
        return os.open(path, _FLAGS)

    @staticmethod
    def create(path: str) -> int:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)

    @staticmethod
    def size(file: int) -> int:
        return os.fstat(file).st_size

    @staticmethod
    def modified_ms(path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    @staticmethod
    def reserve(file: int, position: int, size: int) -> bool:
        allocate = _fallocate()
        return allocate is not None and allocate(file, _KEEP_SIZE, position, size) == 0

    @staticmethod
    def make_dir(path: str) -> None:
        os.makedirs(path, exist_ok=True)

    @staticmethod
    def sync_dir(path: str) -> None:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    if sys.platform == "darwin":

        @staticmethod
        def sync(file: int) -> None:
            # fsync leaves data in the drive's cache there, and there is no fdatasync.
            import fcntl

            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        sync = staticmethod(os.fdatasync)


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's call, which Python has only in a form that makes the file larger; None where there is none."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    try:
        import ctypes  # takes a few milliseconds, which a node whose logs stay small need not spend
    except ImportError:  # a Python that was built without libffi
        return None
    allocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if allocate is not None:
        allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return allocate


def write_all(disk: Disk, file: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write every byte, or raise OSError."""
    written = disk.pwrite(file, data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(data):
        wrote = disk.pwrite(file, rest[written:], position + written)
        if wrote == 0:
            raise OSError(errno.ENOSPC, f"wrote {written} of {len(data)} bytes at {position}")
        written += wrote


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file."""
    file = disk.open(path)
    try:
        return disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Write a small file so that after a crash it holds either all of what it held before or all of the new content."""
    temporary = path + ".tmp"
    file = disk.create(temporary)
    try:
        write_all(disk, file, content, 0)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path) or ".")


class LogFile:
    """An open file that closes itself when nobody refers to it any more.

    A segment may be deleted or replaced while its bytes are on their way into a socket: the answer holds the file.
    """

    __slots__ = ("_disk", "number", "path", "reserved")

    def __init__(self, disk: Disk, path: str, number: int) -> None:
        self._disk = disk
        self.path = path
        self.number = number
        self.reserved = _RESERVE_FROM_BYTES
        """Up to this position there is room in the file, or none need be looked for."""

    @property
    def has_reserved(self) -> bool:
        """Whether room was set aside, which `cut` gives back."""
        return self.reserved > _RESERVE_FROM_BYTES

    def reserve(self, size: int, end: int) -> None:
        """Set room aside from a file's size up to a position and some more; where none is, writing finds it itself."""
        self.reserved = end + min(max(end // 8, _RESERVE_FROM_BYTES), _RESERVE_MOST_BYTES)
        self._disk.reserve(self.number, size, self.reserved - size)

    def cut(self, size: int) -> None:
        """Drop what is behind a position, and room that was set aside."""
        self.reserved = _RESERVE_FROM_BYTES
        self._disk.truncate(self.number, size)

    def __del__(self) -> None:
        self._disk.close(self.number)

    def __repr__(self) -> str:
        return f"LogFile({self.path!r}, {self.number})"


class FileRange:
    """Bytes of a file that need not pass through the process: `sendfile` takes them from `file.number`."""

    __slots__ = ("file", "held", "position", "size")

    def __init__(self, file: LogFile, position: int, size: int, held: bytes | None = None) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.held = held
        """The bytes themselves, where they are at hand."""

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, position={self.position}, size={self.size})"
