"""What one member reads of this broker in its share session, and which of it changed since its last fetch.

A share partition is watched twice: its partition notifies of a higher high watermark, and the share partition itself of
records that are available again. A fetch looks at the share partitions that changed and at no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ottla.coordinators.share.sessions import Session, TopicIdPartition
from ottla.replication.fetch_watches import CONSUMER, Watch, WatchSet, position

if TYPE_CHECKING:
    from ottla.coordinators.runtime.share.partition import LedSharePartition


class ShareWatch(Watch):
    """One share partition of a session."""

    __slots__ = ("available_bytes", "is_able", "led", "where")

    def __init__(self, reader: ShareReader, where: TopicIdPartition) -> None:
        super().__init__(reader)
        self.where = where
        self.led: LedSharePartition | None = None
        """The share partition, once it is known to be led here."""
        self.is_able = False
        """Whether the member could acquire records there, if the log had some, by the last look."""
        self.available_bytes = 0
        """What the last look found to read."""

    def bind(self, led: LedSharePartition) -> None:
        """Watch a share partition from now on."""
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

    __slots__ = ("able_count", "circumstances", "session", "watches")

    def __init__(self, session: Session, now_ms: int) -> None:
        super().__init__(CONSUMER, now_ms)
        self.session = session
        self.watches: dict[TopicIdPartition, ShareWatch] = {
            where: ShareWatch(self, where) for where in session.partitions
        }
        self.able_count = 0
        """How many share partitions could give records: they share the room of an answer."""
        self.circumstances: object = None
        """What decided, beside the partitions themselves, on what the last fetch found in them."""

    @property
    def has_quiet(self) -> bool:
        """Whether there are share partitions in which nothing happened, but may at any time."""
        return len(self.changed) < len(self.watches)

    def update(self, wanted: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Take in which partitions the session has got and dropped."""
        for where in wanted:
            if where not in self.watches:
                self.watches[where] = ShareWatch(self, where)
        for where in forgotten:
            watch = self.watches.pop(where, None)
            if watch is not None:
                self.set_able(watch, is_able=False)
                watch.end()
                watch.is_changed = False
        self.changed = [watch for watch in self.changed if watch.is_changed]

    def mark_all(self) -> None:
        """Have the next fetch look at all share partitions."""
        for watch in self.watches.values():
            watch.mark()

    def changed_in_order(self) -> list[ShareWatch]:
        """The share partitions to look at, those first that had no records for the longest time."""
        return cast("list[ShareWatch]", sorted(self.changed, key=position))

    def take_woken(self) -> list[ShareWatch]:
        """The share partitions that changed since the waiting fetch last looked."""
        woken, self.woken = self.woken, []
        return cast("list[ShareWatch]", list(dict.fromkeys(woken)))

    def set_able(self, watch: ShareWatch, *, is_able: bool) -> None:
        """Note whether a share partition could give records."""
        self.able_count += is_able - watch.is_able
        watch.is_able = is_able

    def keep_changed(self, kept: Iterable[Watch]) -> None:
        """Leave all but some share partitions out of the next look, unless something happens in them."""
        for watch in self.changed:
            watch.is_changed = False
        self.changed = list(kept)
        for watch in self.changed:
            watch.is_changed = True

    def release(self) -> None:
        """Watch nothing any more."""
        for watch in self.watches.values():
            watch.end()
