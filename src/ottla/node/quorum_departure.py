"""Leaves the quorum when a node stops, after the brokers that still need it; a leader first resigns.

When all nodes of a cluster stop at once, the controlled shutdown of each broker needs an active controller with a
majority. So a controller stays for a moment, and for as long as another broker is in controlled shutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from ottla.metadata.image.image import Image
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.node.quorum_peers import QuorumPeers

_MIN_STAY_S: Final = 0.1
_MAX_STAY_S: Final = 2.0
_RESIGN_TIMEOUT_MS: Final = 1000
_POLL_S: Final = 0.02


async def leave_quorum(
    quorum: QuorumDriver,
    controller: ActiveController | None,
    peers: QuorumPeers,
    image: Callable[[], Image],
    node_id: int,
) -> None:
    """Return when this node has left the quorum."""
    if controller is not None:
        deadline = monotonic() + _MAX_STAY_S
        await asyncio.sleep(_MIN_STAY_S)
        while monotonic() < deadline and quorum.consensus.leader_id >= 0 and _is_other_shutting_down(image(), node_id):
            await asyncio.sleep(_POLL_S)
        controller.stop()
    quorum.shutdown(_RESIGN_TIMEOUT_MS)
    others = [voter for voter in quorum.consensus.voters.by_id if voter != node_id]
    while not quorum.is_stopped and not _are_all_unreachable(quorum, peers, others):
        await asyncio.sleep(_POLL_S)


def _is_other_shutting_down(image: Image, node_id: int) -> bool:
    return any(
        broker.in_controlled_shutdown and not broker.fenced and broker.id != node_id
        for broker in image.brokers.values()
    )


def _are_all_unreachable(quorum: QuorumDriver, peers: QuorumPeers, others: list[int]) -> bool:
    """Whether no other voter can be reached, so that none can take over."""
    nodes = [quorum.consensus.voters.node(voter, quorum.listener) for voter in others]
    return bool(nodes) and all(node is not None and peers.is_unreachable(node) for node in nodes)
