"""The start offset of each leader epoch, from which replicas find the offset where they diverge (KIP-101).

Entries ascend both in epoch and in start offset. The file `leader-epoch-checkpoint` is text: the version 0, the number
of entries, and then an epoch and its start offset in each line. Only `flush` writes it. A crash before that loses only
what the log itself has: every batch carries its epoch. Stale entries are removed when the log is opened.

The entries are a tuple that is replaced as a whole, so that `flush` may run in another thread.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from ottla.protocol.wire.batch import NO_LEADER_EPOCH
from ottla.storage.disk import Disk, read_file, replace_file

logger = logging.getLogger(__name__)

EPOCHS_FILE: Final = "leader-epoch-checkpoint"

_VERSION: Final = "0"


class CorruptEpochs(ValueError):
    """The file is not a valid leader epoch checkpoint."""


class LeaderEpoch(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


UNDEFINED: Final = (NO_LEADER_EPOCH, -1)
"""The answer for an unknown epoch."""


class LeaderEpochs:
    """The leader epochs of one partition. `latest` is a plain number, or -1: appends read nothing else."""

    __slots__ = ("entries", "is_dirty", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: tuple[LeaderEpoch, ...] = ()
        self.latest = NO_LEADER_EPOCH
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.is_dirty = False

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def previous(self) -> int:
        """The epoch before the latest, or -1."""
        return self.entries[-2].epoch if len(self.entries) > 1 else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at an offset, unless it is the latest. It replaces conflicting entries."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        entries = self.entries
        if entries and epoch == self.latest and start_offset >= entries[-1].start_offset:
            return
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        removed = entries[kept:]
        # An epoch without records is replaced silently.
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            replaced = ", ".join(f"{entry.epoch} at {entry.start_offset}" for entry in removed)
            logger.warning(
                "Leader epoch %d at offset %d replaces conflicting epochs: %s", epoch, start_offset, replaced
            )
        self._replace((*entries[:kept], LeaderEpoch(epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest known epoch up to this one, and its end offset.

        The latest epoch ends at the log end. An epoch before the first one keeps its number and ends where the first
        one begins: its records are gone, and a replica should continue there. An epoch after the latest is undefined.
        """
        if epoch == NO_LEADER_EPOCH:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        above = bisect_right(self.entries, epoch, key=_epoch)
        if above == len(self.entries):
            return UNDEFINED
        last_epoch = self.entries[above - 1].epoch if above else epoch
        return last_epoch, self.entries[above].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of an offset; -1 before the first epoch."""
        above = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[above - 1].epoch if above else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Apply a new log end: remove the epochs that begin at or after it."""
        if end_offset < 0:  # undefined
            return
        kept = bisect_left(self.entries, end_offset, key=_start_offset)
        if kept < len(self.entries):
            self._replace(self.entries[:kept])

    def truncate_from_start(self, start_offset: int) -> None:
        """Apply a new log start: its epoch begins there, and earlier epochs are removed."""
        above = bisect_right(self.entries, start_offset, key=_start_offset)
        if above:
            first = LeaderEpoch(self.entries[above - 1].epoch, start_offset)
            if first != self.entries[0]:
                self._replace((first, *self.entries[above:]))

    def clear(self) -> None:
        if self.entries:
            self._replace(())

    def encode(self) -> bytes:
        lines = [_VERSION, str(len(self.entries)), *(f"{epoch} {offset}" for epoch, offset in self.entries), ""]
        return "\n".join(lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the file. Conflicting entries are resolved as if they were assigned one by one."""
        if not data:
            return cls()
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]
            if version != _VERSION or int(count) != len(entries):
                raise ValueError(f"version {version}, {len(entries)} of {count} entries")
            return cls(entries)
        except ValueError as error:
            raise CorruptEpochs(f"cannot read the leader epochs: {error}") from error

    @classmethod
    def read(cls, disk: Disk, directory: str) -> Self:
        """Read the epochs in the log's directory; no file means no epochs."""
        path = f"{directory}/{EPOCHS_FILE}"
        return cls.decode(read_file(disk, path)) if disk.exists(path) else cls()

    def flush(self, disk: Disk, directory: str) -> None:
        """Write the file if the epochs changed. Calls must not overlap."""
        if not self.is_dirty:
            return
        # Reset before the entries are read: a change during the write is for the next flush.
        self.is_dirty = False
        try:
            replace_file(disk, f"{directory}/{EPOCHS_FILE}", self.encode())
        except OSError:
            self.is_dirty = True
            raise

    def _replace(self, entries: tuple[LeaderEpoch, ...]) -> None:
        self.entries = entries
        self.latest = entries[-1].epoch if entries else NO_LEADER_EPOCH
        self.is_dirty = True


def _epoch(entry: LeaderEpoch) -> int:
    return entry.epoch


def _start_offset(entry: LeaderEpoch) -> int:
    return entry.start_offset
