"""Requests of the quorum to its other members, each over a connection that is kept.

What fails is told once and never at once, whatever the reason; consensus decides when to try again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.client.connection import Connection
from ottla.metadata.consensus.voters import Node
from ottla.protocol.errors import ApiError, UnsupportedVersion
from ottla.protocol.messages.rpc.vote import VoteRequest
from ottla.protocol.wire.declare import schema_of
from ottla.security.settings import SecurityProvider, plaintext

logger = logging.getLogger(__name__)

_PRE_VOTE_VERSION = 2


class QuorumPeers:
    """The other members of the quorum, as far as they can be reached."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node_id: int, security: SecurityProvider = plaintext) -> None:
        self._loop = loop
        self._client_id = f"raft-client-{node_id}"
        self._security = security
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreachable: set[tuple[str, int]] = set()

    def send(
        self,
        node: Node,
        message: Any,
        timeout_ms: int,
        answered: Callable[[Any], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        """Send a request; exactly one of the two is called, later."""
        task = self._loop.create_task(self._exchange(node, message, timeout_ms / 1000, answered, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_unreachable(self, node: Node) -> bool:
        """Whether the last request to a node was not answered."""
        return (node.host, node.port) in self._unreachable

    def close(self) -> None:
        """Give up everything."""
        for task in list(self._tasks):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _exchange(
        self,
        node: Node,
        message: Any,
        timeout_s: float,
        answered: Callable[[Any], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        address = node.host, node.port
        try:
            connection = await self._connection(address, timeout_s)
            version = connection.version_of(schema_of(type(message)).key)
            if isinstance(message, VoteRequest) and version < _PRE_VOTE_VERSION and _is_pre_vote(message):
                raise UnsupportedVersion(f"{node} does not know of pre-votes")
            response = await connection.send(message, version=version, timeout_s=timeout_s)
        except ApiError as error:
            if address not in self._unreachable:
                self._unreachable.add(address)
                logger.info("controller %d at %s:%d does not answer: %s", *node, error)
            failed(error)
        else:
            self._unreachable.discard(address)
            answered(response)

    async def _connection(self, address: tuple[str, int], timeout_s: float) -> Connection:
        # A node may be asked under two names at once: as a voter and as a bootstrap server.
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.connect(
                    *address, client_id=self._client_id, timeout_s=timeout_s, security=self._security()
                )
                self._connections[address] = connection
            return connection


def _is_pre_vote(message: VoteRequest) -> bool:
    return any(partition.pre_vote for topic in message.topics for partition in topic.partitions)
