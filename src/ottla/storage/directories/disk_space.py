"""The size of a disk and its free space."""

import os
from typing import NamedTuple


class DiskSpace(NamedTuple):
    """The total size of a file system, and the bytes that this process may still use."""

    total_bytes: int
    usable_bytes: int


def disk_space_of(path: str) -> DiskSpace:
    """Return the disk space of the file system of a path."""
    stats = os.statvfs(path)
    return DiskSpace(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)
