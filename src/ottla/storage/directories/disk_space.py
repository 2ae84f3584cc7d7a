"""How much room there is on a disk."""

import os
from typing import NamedTuple


class Space(NamedTuple):
    """A file system's size, and what of it is left for us."""

    total_bytes: int
    usable_bytes: int


def space_of(path: str) -> Space:
    """The room on the file system that a path is on."""
    stats = os.statvfs(path)
    return Space(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)
