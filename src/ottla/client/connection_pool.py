"""Connections to other nodes that are kept between requests: one for each address and purpose.

A connection stays open until it breaks or its owner drops it. What is in flight on it then fails, and the next request
opens another. The pool neither retries nor waits before it reconnects: elections and failover depend on quick attempts,
so each owner paces its own. A server closes connections that are idle for `connections.max.idle.ms`; the pool replaces
them like any other that broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ottla.client.connection import Connection
from ottla.protocol.errors import NetworkFailed
from ottla.security.settings import SecurityProvider, plaintext


class _Key(NamedTuple):
    host: str
    port: int
    purpose: str


class _Slot:
    """A place for one connection, which one task at a time may open."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.attempt: asyncio.Task[None] | None = None
        self.connection: Connection | None = None
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        if self.attempt is not None:
            self.attempt.cancel()
        if self.connection is not None:
            self.connection.close()


class ConnectionPool:
    """The kept connections of one owner."""

    def __init__(
        self,
        client_id: str,
        security: SecurityProvider = plaintext,
        *,
        on_broken: Callable[[str], None] | None = None,
    ) -> None:
        """`on_broken` is called with the purpose of a connection that broke while the pool had it."""
        self._client_id = client_id
        self._security = security
        self._on_broken = on_broken
        self._slots: dict[_Key, _Slot] = {}

    async def connection(self, host: str, port: int, *, purpose: str = "", timeout_s: float) -> Connection:
        """Return the open connection to an address for a purpose; open one if needed.

        Traffic of one purpose never waits behind another's. Raises what `Connection.connect` raises, and NetworkFailed
        as soon as the owner drops the connection: nothing waits for a node that may not answer.
        """
        key = _Key(host, port, purpose)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _Slot()
        async with slot.opening:
            if not slot.is_closed and (slot.connection is None or not slot.connection.is_open):
                attempt = slot.attempt = asyncio.ensure_future(self._open(key, slot, timeout_s))
                try:
                    await asyncio.wait([attempt])
                finally:
                    attempt.cancel()
                if not attempt.cancelled():
                    attempt.result()
            if slot.is_closed or slot.connection is None:
                raise NetworkFailed(f"the connection to {host}:{port} is no longer needed")
            return slot.connection

    async def _open(self, key: _Key, slot: _Slot, timeout_s: float) -> None:
        slot.connection = await Connection.connect(
            key.host,
            key.port,
            client_id=f"{self._client_id}-{key.purpose}" if key.purpose else self._client_id,
            timeout_s=timeout_s,
            security=self._security(),
        )
        slot.connection.on_broken = lambda: self._broken(key, slot)

    def drop(self, host: str, port: int) -> None:
        """Close the connections to an address."""
        for key in [key for key in self._slots if (key.host, key.port) == (host, port)]:
            self._slots.pop(key).close()

    def close(self) -> None:
        """Close all connections. The pool can be used again."""
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            slot.close()

    def _broken(self, key: _Key, slot: _Slot) -> None:
        if self._on_broken is not None and self._slots.get(key) is slot:
            self._on_broken(key.purpose)
