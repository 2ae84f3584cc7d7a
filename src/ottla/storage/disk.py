"""The file system interface of the log, small enough for tests to replace.

`SystemDisk` is the operating system's file system: each method is the system call itself, with no Python between. Tests
pass a disk in memory that loses what was not synced and tears what was being written. Files are descriptors and paths
are strings: objects would cost more than the calls that they wrap.

A write is durable after `sync` of its file; the creation, renaming or removal of a file after `sync_dir` of its
directory.
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
"""From this size on, space for a log file is reserved ahead of writes: an eighth of its size at a time, within these
bounds. Allocating 64 KiB takes a quarter of the time of writing them; allocating a megabyte takes no longer."""
_RESERVE_MOST_BYTES: Final = 16 << 20


class Disk(Protocol):
    """The file system operations that a log needs. Failures are OSErrors."""

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        ...

    def create(self, path: str) -> int:
        """Create an empty file, or empty an existing one, and open it for reading and writing."""
        ...

    def close(self, file: int, /) -> None: ...

    def pread(self, file: int, size: int, position: int, /) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, file: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
        """Write bytes; return how many were written, fewer if the disk is full. `write_all` continues or raises."""
        ...

    def reserve(self, file: int, position: int, size: int, /) -> bool:
        """Reserve space in a file, if possible, without changing its size."""
        ...

    def sync(self, file: int, /) -> None:
        """Make a file's data and size durable."""
        ...

    def truncate(self, file: int, size: int, /) -> None: ...

    def size(self, file: int, /) -> int: ...

    def size_of(self, path: str, /) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Return when the file was last modified."""
        ...

    def exists(self, path: str, /) -> bool: ...

    def names(self, directory: str, /) -> list[str]:
        """Return the entries of a directory, in any order."""
        ...

    def rename(self, path: str, new_path: str, /) -> None:
        """Rename a file or directory; an existing file of the new name is replaced atomically."""
        ...

    def remove(self, path: str, /) -> None: ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents if they do not exist."""
        ...

    def remove_dir(self, path: str, /) -> None:
        """Remove an empty directory."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
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
            # On macOS fsync leaves data in the drive's cache, and there is no fdatasync.
            import fcntl

            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        sync = staticmethod(os.fdatasync)


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's fallocate, or None. Python's own posix_fallocate would make the file larger."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    try:
        import ctypes  # takes a few milliseconds, which a node with small logs saves
    except ImportError:  # Python was built without libffi
        return None
    allocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if allocate is not None:
        allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return allocate


def write_all(disk: Disk, file: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all bytes, or raise OSError."""
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
    """Return the content of a small file."""
    file = disk.open(path)
    try:
        return disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Replace a small file atomically: after a crash it has either the old content or the new one."""
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
    """An open file that is closed when its last reference is gone.

    A segment may be deleted or replaced while its bytes are being sent: the response keeps the file open.
    """

    __slots__ = ("_disk", "number", "path", "reserved")

    def __init__(self, disk: Disk, path: str, number: int) -> None:
        self._disk = disk
        self.path = path
        self.number = number
        self.reserved = _RESERVE_FROM_BYTES
        """Up to this position space is reserved, or need not be."""

    @property
    def has_reserved(self) -> bool:
        """Whether space was reserved, which `cut` releases."""
        return self.reserved > _RESERVE_FROM_BYTES

    def reserve(self, size: int, end: int) -> None:
        """Reserve space from the file's size to a position and beyond. If that fails, writes allocate it."""
        self.reserved = end + min(max(end // 8, _RESERVE_FROM_BYTES), _RESERVE_MOST_BYTES)
        self._disk.reserve(self.number, size, self.reserved - size)

    def cut(self, size: int) -> None:
        """Cut the file at a position and release reserved space."""
        self.reserved = _RESERVE_FROM_BYTES
        self._disk.truncate(self.number, size)

    def __del__(self) -> None:
        self._disk.close(self.number)

    def __repr__(self) -> str:
        return f"LogFile({self.path!r}, {self.number})"


class FileRange:
    """A range of a file that is sent without passing through the process, by `sendfile` from `file.number`."""

    __slots__ = ("file", "held", "position", "size")

    def __init__(self, file: LogFile, position: int, size: int, held: bytes | None = None) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.held = held
        """The bytes themselves, if they are in memory."""

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, position={self.position}, size={self.size})"
