"""Brokers that left the cluster or seem to have failed, and how Metadata responses list them during a failover.

When a process dies, its connections close. Clients and followers notice at the same moment, and clients ask for the new
leader some milliseconds before the controller has elected one. librdkafka accepts the first response: if it names the
dead leader again, librdkafka asks again only after a second. So this broker tracks which leaders closed a connection,
and whether their port still accepts connections. A Metadata response that would name such a leader waits briefly for
the election. After that, a leader whose port refuses connections is not named.

After the election the dead broker stays in Metadata responses for some seconds, without partitions. librdkafka drops a
broker that is no longer listed together with the partitions that it still has there, even if the same response names
their new leader, and notices only with its next request after a second. Listing the broker lets the partitions move
first. Kafka's own clients do not need this and get only the live brokers (`broker/handlers/metadata.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import Broker
from ottla.replication.runtime import Runtime

WAIT_S: Final = 0.2
"""The longest time that a Metadata request waits for an election. Later requests of its connection wait too."""
DECIDED_WITHIN_MS: Final = 1_000
"""After this time requests no longer wait for the election, which may need a controller that is not available."""
NAMED_MS: Final = 3_000
"""How long a broker is listed after it was fenced. Clients with partitions there refresh at least once a second."""
_PROBE_EVERY_S: Final = 0.25

ProbePort = Callable[[str, int], Awaitable[bool | None]]
"""Returns whether connections to an address are refused; None if unknown."""


class _Missing(NamedTuple):
    """A broker that closed a connection: its broker epoch, and when."""

    epoch: int
    since_ms: int


class UnavailableLeaders:
    """The brokers that seem to have failed, as seen by this broker."""

    def __init__(
        self,
        listener: str,
        probe_port: ProbePort,
        disconnected_brokers: Callable[[], Iterable[int]],
        runtime: Runtime,
    ) -> None:
        self._disconnected_brokers = disconnected_brokers
        self._listener = listener
        self._probe_port = probe_port
        self._spawn = runtime.spawn
        self._now_ms = runtime.now_ms
        self._image: Image = EMPTY
        self._missing: dict[int, _Missing] = {}
        self._gone: set[int] = set()
        self._fenced_ms: dict[int, int] = {}
        self._changed: asyncio.Future[None] | None = None

    def has_missing(self) -> bool:
        """Return whether a broker is missing.

        This includes brokers whose connection was closed but not read yet: clients may notice that before this broker.
        """
        for broker_id in self._disconnected_brokers():
            self.on_connection_lost(broker_id)
        return bool(self._missing)

    def is_missing(self, broker_id: int) -> bool:
        """Return whether a broker closed a connection recently, and the controller has not decided yet."""
        missing = self._missing.get(broker_id)
        return missing is not None and self._now_ms() - missing.since_ms < DECIDED_WITHIN_MS

    def is_gone(self, broker_id: int) -> bool:
        """Return whether the port of a broker refuses connections, while the controller considers it alive."""
        return broker_id in self._gone

    def listed_brokers(self, image: Image) -> tuple[Broker, ...]:
        """Return the brokers for Metadata responses, by id: live ones, and recently fenced ones."""
        if not self._fenced_ms:
            return image.alive_brokers
        since = self._now_ms() - NAMED_MS
        self._fenced_ms = {broker_id: at for broker_id, at in self._fenced_ms.items() if at > since}
        return tuple(
            broker for _, broker in sorted(image.brokers.items()) if not broker.fenced or broker.id in self._fenced_ms
        )

    def on_connection_lost(self, broker_id: int) -> None:
        """Track a broker that closed a connection, or refused one."""
        broker = self._image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and broker_id not in self._missing:
            missing = self._missing[broker_id] = _Missing(broker.epoch, self._now_ms())
            self._spawn(self._probe_until_decided(broker_id, missing))

    def apply(self, changes: Changes) -> None:
        """Apply the controller's decisions about brokers."""
        self._image = changes.new
        for change in changes.brokers:
            if change.new is None or change.new.fenced:
                self._forget(change.key)
            if change.new is not None and change.new.fenced and change.old is not None and not change.old.fenced:
                self._fenced_ms[change.key] = self._now_ms()
        self._wake()

    async def wait_while(self, is_open: Callable[[], bool]) -> None:
        """Wait for the controller's decisions while a condition holds, but at most `WAIT_S`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while is_open() and (left_s := deadline - loop.time()) > 0:
            if self._changed is None:
                self._changed = loop.create_future()
            await asyncio.wait([self._changed], timeout=left_s)

    async def _probe_until_decided(self, broker_id: int, missing: _Missing) -> None:
        """Probe a broker's port until it accepts a connection or the controller has decided."""
        endpoint = self._image.endpoint(broker_id, self._listener)
        while endpoint is not None and await self._probe_port(endpoint.host, endpoint.port):
            if self._missing.get(broker_id) != missing:
                return
            self._gone.add(broker_id)
            await asyncio.sleep(_PROBE_EVERY_S)
        if self._missing.get(broker_id) == missing:
            self._forget(broker_id)
            self._wake()

    def _forget(self, broker_id: int) -> None:
        self._missing.pop(broker_id, None)
        self._gone.discard(broker_id)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None
