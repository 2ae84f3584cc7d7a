"""Where in the log each leader began to write, by which replicas find the point from which they differ (KIP-101).

Entries rise both in epoch and in start offset. The file `leader-epoch-checkpoint` is text: the version 0, the number of
entries, and an epoch and its start offset in each line. It is written by `flush` only. A crash before that loses no
more than the log itself knows: every batch carries its epoch. Stale entries are cut when the log is loaded.

Entries are a tuple that is replaced as a whole, so that `flush` may run in another thread.
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
    """The file is not what a broker writes."""


class LeaderEpoch(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


UNDEFINED: Final = (NO_LEADER_EPOCH, -1)
"""The answer to a question about an epoch of which nothing is known."""


class LeaderEpochs:
    """The epochs of one partition. `latest` is a plain number, -1 for none: all that an append looks at."""

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
        """Let an epoch begin at an offset. It replaces entries that contradict it; the latest is not begun again."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        entries = self.entries
        if entries and epoch == self.latest and start_offset >= entries[-1].start_offset:
            return
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        removed = entries[kept:]
        # An epoch in which nothing was written gives way without a word.
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            logger.warning("leader epoch %d at offset %d replaces %s", epoch, start_offset, removed)
        self._replace((*entries[:kept], LeaderEpoch(epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch up to this one, and where it ended.

        The latest ends where the log does. An epoch before the first ends where the first begins, under its own
        number: its records are gone, and a replica should go on from there. One after the latest is undefined.
        """
        if epoch == NO_LEADER_EPOCH:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        above = bisect_right(self.entries, epoch, key=_epoch)
        if above == len(self.entries):
            return UNDEFINED
        found = self.entries[above - 1].epoch if above else epoch
        return found, self.entries[above].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that an offset was written in, or -1 before the first."""
        above = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[above - 1].epoch if above else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here now: epochs that begin at the offset or behind it go."""
        if end_offset < 0:  # undefined
            return
        kept = bisect_left(self.entries, end_offset, key=_start_offset)
        if kept < len(self.entries):
            self._replace(self.entries[:kept])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins here now: the epoch of that offset begins with it, and those before go."""
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
        """Entries that contradict each other are resolved as if they were assigned one by one."""
        if not data:
            return cls()
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]
            if version != _VERSION or int(count) != len(entries):
                raise ValueError(f"version {version}, {count} entries announced, {len(entries)} found")
            return cls(entries)
        except ValueError as error:
            raise CorruptEpochs(f"leader epochs cannot be read: {error}") from error

    @classmethod
    def read(cls, disk: Disk, directory: str) -> Self:
        """The epochs in the log's directory; none if there is no file."""
        path = f"{directory}/{EPOCHS_FILE}"
        return cls.decode(read_file(disk, path)) if disk.exists(path) else cls()

    def flush(self, disk: Disk, directory: str) -> None:
        """Write the file if something changed. Calls must not overlap."""
        if not self.is_dirty:
            return
        # Before the entries are taken: what changes while they are written is for the next flush.
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
