"""Replication throttles (KIP-73): limits on the bytes per second of throttled replicas.

A topic lists its throttled replicas (`leader.replication.throttled.replicas`, `follower.…`), a broker has the rate.
Only replicas that are not in sync are held back, because the throttle would otherwise shrink ISRs. All bytes of
throttled replicas are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.metadata.image.changes import Changes
from ottla.metadata.image.values import ResourceType

ALL_REPLICAS: Final = "*"
_EVERY: Final[frozenset[int]] = frozenset()


class Rate:
    """Bytes per second over several windows: complete ones, and the current one."""

    def __init__(self, *, windows: int = 11, window_ms: int = 1000) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[int]] = deque()
        self._total = 0

    def add(self, size: int, now_ms: int) -> None:
        """Add transferred bytes."""
        self._forget(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size
        self._total += size

    def per_second(self, now_ms: int) -> float:
        """Return the rate since the first window began; the time counts as one window at least."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return self._total * 1000 / max(now_ms - self._samples[0][0], self._window_ms)

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._windows * self._window_ms:
            self._total -= self._samples.popleft()[1]


class ReplicationThrottle:
    """The throttle of one side (leader or follower) on one broker."""

    def __init__(
        self,
        side: str,
        broker_id: int,
        *,
        now_ms: Callable[[], int],
        windows: int = 11,
        window_ms: int = 1000,
    ) -> None:
        self._replicas_setting = f"{side}.replication.throttled.replicas"
        self._rate_setting = f"{side}.replication.throttled.rate"
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._moved = Rate(windows=windows, window_ms=window_ms)
        self._throttled: dict[str, frozenset[int]] = {}
        """Topic → its throttled partitions; an empty set means all."""
        self.bytes_per_s: int | None = None

    def apply(self, changes: Changes) -> None:
        """Apply changed settings of topics and of this broker."""
        for resource in {change.key for change in changes.configs}:
            if resource.type == ResourceType.TOPIC:
                self._list(resource.name, changes.new.topic_config(resource.name).get(self._replicas_setting, ""))
            elif resource.type == ResourceType.BROKER and resource.name in ("", str(self._broker_id)):
                image = changes.new
                given = image.broker_config(self._broker_id).get(self._rate_setting)
                given = given or image.default_broker_config.get(self._rate_setting)
                self.bytes_per_s = int(given) if given else None

    def is_throttled(self, topic: str, index: int) -> bool:
        """Return whether this broker's replica of a partition is throttled."""
        partitions = self._throttled.get(topic)
        return partitions is not None and (partitions is _EVERY or index in partitions)

    def holds_back(self, topic: str, index: int) -> bool:
        """Return whether a replica that is not in sync must wait."""
        if not self._throttled or self.bytes_per_s is None or not self.is_throttled(topic, index):
            return False
        return self._moved.per_second(self._now_ms()) > self.bytes_per_s

    def count(self, topic: str, index: int, size: int) -> None:
        """Count bytes that were transferred for a partition."""
        if self._throttled and self.is_throttled(topic, index):
            self._moved.add(size, self._now_ms())

    def _list(self, topic: str, given: str) -> None:
        self._throttled.pop(topic, None)
        if given.strip() == ALL_REPLICAS:
            self._throttled[topic] = _EVERY
            return
        pairs = (entry.strip().split(":") for entry in given.split(",") if entry.strip())
        mine = frozenset(int(partition) for partition, broker in pairs if int(broker) == self._broker_id)
        if mine:
            self._throttled[topic] = mine
