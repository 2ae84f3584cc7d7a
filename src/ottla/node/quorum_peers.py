"""Requests to the other members of the quorum, over kept connections.

Each request is answered or failed once, and never within `send`. Consensus decides when to try again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.client.connection_pool import ConnectionPool
from ottla.metadata.consensus.voters import Node
from ottla.protocol.errors import ApiError, UnsupportedVersion
from ottla.protocol.messages.rpc.vote import VoteRequest
from ottla.protocol.wire.declare import schema_of
from ottla.security.settings import SecurityProvider, plaintext

logger = logging.getLogger(__name__)

_PRE_VOTE_VERSION = 2


class QuorumPeers:
    """The other members of the quorum."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node_id: int, security: SecurityProvider = plaintext) -> None:
        self._loop = loop
        self._pool = ConnectionPool(f"raft-client-{node_id}", security)
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
        """Send a request. Later, call either `answered` or `failed`."""
        task = self._loop.create_task(self._exchange(node, message, timeout_ms / 1000, answered, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_unreachable(self, node: Node) -> bool:
        """Whether the last request to a node failed."""
        return (node.host, node.port) in self._unreachable

    def close(self) -> None:
        """Cancel all requests and close all connections."""
        for task in list(self._tasks):
            task.cancel()
        self._pool.close()

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
            connection = await self._pool.connection(*address, timeout_s=timeout_s)
            version = connection.version_of(schema_of(type(message)).key)
            if isinstance(message, VoteRequest) and version < _PRE_VOTE_VERSION and _is_pre_vote(message):
                raise UnsupportedVersion(f"{node} does not support pre-votes")
            response = await connection.send(message, version=version, timeout_s=timeout_s)
        except ApiError as error:
            if address not in self._unreachable:
                self._unreachable.add(address)
                logger.info("quorum member %d at %s:%d does not answer: %s", *node, error)
            failed(error)
        else:
            self._unreachable.discard(address)
            answered(response)


def _is_pre_vote(message: VoteRequest) -> bool:
    return any(partition.pre_vote for topic in message.topics for partition in topic.partitions)
