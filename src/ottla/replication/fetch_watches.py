"""Watches of readers: the partitions of a fetch, and which of them changed since the last read.

A partition notifies its watches of changes. A notified watch marks itself as changed, once, in its set, and a fetch
reads only the changed partitions of its set. So the cost of a fetch depends on what changed, not on the number of
partitions in its session, and idle partitions are free.
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
        """The id of the follower that reads, or a negative number."""
        self.used_ms = now_ms
        """The time of the reader's last request."""
        self.changed: list[Watch] = []
        """The watches to read, in the order in which they changed, without duplicates."""
        self.waiting: Operation | None = None
        """The fetch that waits for changes."""
        self.woken: list[Watch] = []
        """The watches that changed since the waiting fetch last read, and may complete it."""
        self.positions = 0
        """The last position in the read order."""


class Watch:
    """A partition as one reader sees it."""

    __slots__ = ("is_changed", "is_notified", "partition", "position", "watch_set")

    def __init__(self, watch_set: WatchSet) -> None:
        self.watch_set = watch_set
        self.partition: Partition | None = None
        """The partition, as long as it is on this broker."""
        self.is_notified = False
        """Whether the partition notifies this watch."""
        self.position = watch_set.positions = watch_set.positions + 1
        """Its position in the order in which partitions are read."""
        self.is_changed = True
        watch_set.changed.append(self)

    def go_last(self) -> None:
        """Move to the end of the read order."""
        self.position = self.watch_set.positions = self.watch_set.positions + 1

    def mark(self) -> None:
        """Make the reader's next fetch read the partition."""
        if not self.is_changed:
            self.is_changed = True
            self.watch_set.changed.append(self)

    def wake(self, completions: Completions) -> None:
        """Mark the partition as changed, and wake a waiting fetch."""
        watch_set = self.watch_set
        if not self.is_changed:
            self.is_changed = True
            watch_set.changed.append(self)
        if watch_set.waiting is not None:
            watch_set.woken.append(self)
            completions.add(watch_set.waiting)

    def hurry(self) -> None:
        """Mark the partition as changed, and make a waiting fetch respond soon: it has news but no records."""
        self.mark()
        waiting = self.watch_set.waiting
        if waiting is not None:
            waiting.hurry()

    def begin(self, partition: Partition) -> None:
        """Start to be notified by a partition."""
        self.partition, self.is_notified = partition, True
        if self.watch_set.replica < 0:
            partition.consumer_watches[self] = None
        else:
            partition.follower_watches[self] = None

    def end(self) -> None:
        """Stop being notified."""
        if self.is_notified:
            self.is_notified = False
            if self.watch_set.replica < 0:
                del self.partition.consumer_watches[self]  # type: ignore[union-attr] # it notified this watch
            else:
                del self.partition.follower_watches[self]  # type: ignore[union-attr]

    def lose_partition(self) -> None:
        """Forget a partition that left this broker. The next fetch looks it up again."""
        self.partition, self.is_notified = None, False
