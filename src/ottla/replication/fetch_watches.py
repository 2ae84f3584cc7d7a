"""What readers watch: the partitions of a fetch, and which of them changed since the reader last looked.

A partition notifies its watches of what happens to it. A watch that is notified marks itself as changed, once, in the
set that it belongs to; a fetch then looks at the changed partitions of its set and at no others. So a fetch costs what
changed, however many partitions its session has, and an idle partition costs nothing.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.replication.purgatory import Completions, Operation

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

position = attrgetter("position")

CONSUMER = -1
"""The replica id of a reader that is not a broker."""


class WatchSet:
    """The partitions that one reader watches."""

    __slots__ = ("changed", "positions", "replica", "used_ms", "waiting", "woken")

    def __init__(self, replica: int, now_ms: int) -> None:
        self.replica = replica
        """The broker that reads as a follower, or a negative number."""
        self.used_ms = now_ms
        """When the reader last asked."""
        self.changed: list[Watch] = []
        """The watches to look at, in the order in which they changed; each of them is here once."""
        self.waiting: Operation | None = None
        """The fetch that waits for some of them to change."""
        self.woken: list[Watch] = []
        """Watches that may let the waiting fetch complete, since it last looked."""
        self.positions = 0
        """The last place in the order of reading."""


class Watch:
    """A partition as one reader sees it."""

    __slots__ = ("is_changed", "is_notified", "partition", "position", "watch_set")

    def __init__(self, watch_set: WatchSet) -> None:
        self.watch_set = watch_set
        self.partition: Partition | None = None
        """The partition, once it is known and for as long as it is here."""
        self.is_notified = False
        """Whether the partition notifies this watch."""
        self.position = watch_set.positions = watch_set.positions + 1
        """Its place in the order in which partitions are read."""
        self.is_changed = True
        watch_set.changed.append(self)

    def go_last(self) -> None:
        """Be read after all others from now on."""
        self.position = self.watch_set.positions = self.watch_set.positions + 1

    def mark(self) -> None:
        """Have the reader look at the partition with its next fetch."""
        if not self.is_changed:
            self.is_changed = True
            self.watch_set.changed.append(self)

    def wake(self, completions: Completions) -> None:
        """Have the reader look at the partition, now if a fetch waits."""
        watch_set = self.watch_set
        if not self.is_changed:
            self.is_changed = True
            watch_set.changed.append(self)
        if watch_set.waiting is not None:
            watch_set.woken.append(self)
            completions.add(watch_set.waiting)

    def hurry(self) -> None:
        """Have the reader look at the partition, soon if a fetch waits: there is news, but nothing to read."""
        self.mark()
        waiting = self.watch_set.waiting
        if waiting is not None:
            waiting.hurry()

    def begin(self, partition: Partition) -> None:
        """Be notified by a partition."""
        self.partition, self.is_notified = partition, True
        if self.watch_set.replica < 0:
            partition.consumer_watches[self] = None
        else:
            partition.follower_watches[self] = None

    def end(self) -> None:
        """Be notified no more."""
        if self.is_notified:
            self.is_notified = False
            if self.watch_set.replica < 0:
                del self.partition.consumer_watches[self]  # type: ignore[union-attr] # it notified this watch
            else:
                del self.partition.follower_watches[self]  # type: ignore[union-attr]

    def lose_partition(self) -> None:
        """The partition is gone from this broker: the reader looks for it elsewhere, or finds that it was deleted."""
        self.partition, self.is_notified = None, False
