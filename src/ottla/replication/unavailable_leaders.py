"""Brokers that are gone, or seem to be: what clients are told of them around the moment that the controller decides.

A process that dies takes its connections with it. Clients and followers see that at the same moment, and clients ask at
once who leads now, some milliseconds before the controller has found another leader. librdkafka takes the first answer
for good: if that names the dead leader again, it looks once more only after a second. So this broker notes which
leaders hung up on it, and whether anything still listens where they were. Metadata that would name such a leader wait a
little for the decision; after that, a leader of which it is known that nothing listens is not named as one.

After the decision the dead broker is named for some seconds more as a broker that leads nothing. librdkafka gives up a
broker that is not named any more, and with it the partitions that it still has there, even if the same answer names
their new leader, and finds that out with its next look after a second. Naming it lets the partitions move first.
Kafka's own clients do without, and are told of the brokers in service alone (`broker/handlers/metadata.py`).
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
"""How long Metadata wait for a decision at most. What else a client asks on its connection waits with them."""
DECIDED_WITHIN_MS: Final = 1_000
"""A decision that takes longer than this is not worth waiting for: it may take a controller that is not there."""
NAMED_MS: Final = 3_000
"""How long a broker is named after it was fenced: clients that have partitions there look at least once a second."""
_PROBE_EVERY_S: Final = 0.25

ProbePort = Callable[[str, int], Awaitable[bool | None]]
"""Whether connections to an address are refused; None if that cannot be told."""


class _Missing(NamedTuple):
    """A broker that hung up: in which life, and when."""

    epoch: int
    since_ms: int


class UnavailableLeaders:
    """What this broker knows of others that are gone."""

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
        """Whether anybody is missing, those included who hung up this very moment: clients may be told of it, and ask,
        before it was read here."""
        for broker_id in self._disconnected_brokers():
            self.on_connection_lost(broker_id)
        return bool(self._missing)

    def is_missing(self, broker_id: int) -> bool:
        """Whether a broker hung up a moment ago, and it is open what became of it."""
        missing = self._missing.get(broker_id)
        return missing is not None and self._now_ms() - missing.since_ms < DECIDED_WITHIN_MS

    def is_gone(self, broker_id: int) -> bool:
        """Whether nothing listens any more where a broker was that the controller still takes for alive."""
        return broker_id in self._gone

    def listed_brokers(self, image: Image) -> tuple[Broker, ...]:
        """The brokers that clients are told of, by id: those in service, and those that were until a moment ago."""
        if not self._fenced_ms:
            return image.alive_brokers
        since = self._now_ms() - NAMED_MS
        self._fenced_ms = {broker_id: at for broker_id, at in self._fenced_ms.items() if at > since}
        return tuple(
            broker for _, broker in sorted(image.brokers.items()) if not broker.fenced or broker.id in self._fenced_ms
        )

    def on_connection_lost(self, broker_id: int) -> None:
        """A broker closed a connection from here, or let none come about."""
        broker = self._image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and broker_id not in self._missing:
            missing = self._missing[broker_id] = _Missing(broker.epoch, self._now_ms())
            self._spawn(self._probe_until_decided(broker_id, missing))

    def apply(self, changes: Changes) -> None:
        """The controller has decided something."""
        self._image = changes.new
        for change in changes.brokers:
            if change.new is None or change.new.fenced:
                self._forget(change.key)
            if change.new is not None and change.new.fenced and change.old is not None and not change.old.fenced:
                self._fenced_ms[change.key] = self._now_ms()
        self._wake()

    async def wait_while(self, is_open: Callable[[], bool]) -> None:
        """Wait until something is no longer open, but not for long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while is_open() and (left_s := deadline - loop.time()) > 0:
            if self._changed is None:
                self._changed = loop.create_future()
            await asyncio.wait([self._changed], timeout=left_s)

    async def _probe_until_decided(self, broker_id: int, missing: _Missing) -> None:
        """ProbePort at a broker until it answers or the controller has decided."""
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
