"""The share partitions of one session, and those that changed since the session's last fetch.

A session watches the partition, which notifies it of a higher high watermark, and the share partition, which notifies
it of records that become available again. A fetch checks only the share partitions that changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ottla.coordinators.share.sessions import Session, TopicIdPartition
from ottla.replication.fetch_watches import CONSUMER, Watch, WatchSet, position

if TYPE_CHECKING:
    from ottla.coordinators.runtime.share.partition import LedSharePartition


class ShareWatch(Watch):
    """The watch of a session on one share partition."""

    __slots__ = ("available_bytes", "is_able", "led", "topic_partition")

    def __init__(self, reader: ShareReader, topic_partition: TopicIdPartition) -> None:
        super().__init__(reader)
        self.topic_partition = topic_partition
        self.led: LedSharePartition | None = None
        """The share partition, once the session is bound to it."""
        self.is_able = False
        """Whether the member could acquire records at the last check, if the log had any."""
        self.available_bytes = 0
        """The bytes available at the last check."""

    def bind(self, led: LedSharePartition) -> None:
        """Watch a share partition instead of the current one."""
        self.end()
        self.led = led
        led.watches[self] = None
        self.begin(led.partition)

    def end(self) -> None:
        super().end()
        if self.led is not None:
            self.led.watches.pop(self, None)
            self.led = None


class ShareReader(WatchSet):
    """The share partitions of one session."""

    __slots__ = ("able_count", "fetch_inputs", "session", "watches")

    def __init__(self, session: Session, now_ms: int) -> None:
        super().__init__(CONSUMER, now_ms)
        self.session = session
        self.watches: dict[TopicIdPartition, ShareWatch] = {
            topic_partition: ShareWatch(self, topic_partition) for topic_partition in session.partitions
        }
        self.able_count = 0
        """The number of share partitions that could give records, which share the response."""
        self.fetch_inputs: object = None
        """The inputs of the last fetch besides the partitions; if they change, all must be checked again."""

    @property
    def has_quiet(self) -> bool:
        """Whether there are unchanged share partitions, which may change at any time."""
        return len(self.changed) < len(self.watches)

    def update(self, added: Iterable[TopicIdPartition], removed: Iterable[TopicIdPartition]) -> None:
        """Apply the partitions added to the session and removed from it."""
        for topic_partition in added:
            if topic_partition not in self.watches:
                self.watches[topic_partition] = ShareWatch(self, topic_partition)
        for topic_partition in removed:
            watch = self.watches.pop(topic_partition, None)
            if watch is not None:
                self.set_able(watch, is_able=False)
                watch.end()
                watch.is_changed = False
        self.changed = [watch for watch in self.changed if watch.is_changed]

    def mark_all(self) -> None:
        """Let the next fetch check all share partitions."""
        for watch in self.watches.values():
            watch.mark()

    def changed_in_order(self) -> list[ShareWatch]:
        """Return the changed share partitions, those without records for the longest time first."""
        return cast("list[ShareWatch]", sorted(self.changed, key=position))

    def take_woken(self) -> list[ShareWatch]:
        """Return the share partitions that changed since the waiting fetch last checked."""
        woken, self.woken = self.woken, []
        return cast("list[ShareWatch]", list(dict.fromkeys(woken)))

    def set_able(self, watch: ShareWatch, *, is_able: bool) -> None:
        """Set whether a share partition could give records."""
        self.able_count += is_able - watch.is_able
        watch.is_able = is_able

    def keep_changed(self, kept: Iterable[Watch]) -> None:
        """Keep only the given share partitions for the next check; others return when they change."""
        for watch in self.changed:
            watch.is_changed = False
        self.changed = list(kept)
        for watch in self.changed:
            watch.is_changed = True

    def release(self) -> None:
        """End all watches."""
        for watch in self.watches.values():
            watch.end()
