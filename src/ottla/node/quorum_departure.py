"""How a node leaves the quorum: after those that still need it, and with a successor where it leads.

When all nodes of a cluster are stopped at once, each broker still has to be let go by a controller that a majority
follows. So whoever votes stays for a moment, and for as long as another broker is being shut down.
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

_MOMENT_S: Final = 0.1
_LONGEST_S: Final = 2.0
_HANDING_OVER_MS: Final = 1000
_LOOK_AGAIN_S: Final = 0.02


async def leave_quorum(
    quorum: QuorumDriver,
    controller: ActiveController | None,
    peers: QuorumPeers,
    image: Callable[[], Image],
    node_id: int,
) -> None:
    """Return when this node is no longer of the quorum."""
    if controller is not None:
        deadline = monotonic() + _LONGEST_S
        await asyncio.sleep(_MOMENT_S)
        while monotonic() < deadline and quorum.consensus.leader_id >= 0 and _is_other_leaving(image(), node_id):
            await asyncio.sleep(_LOOK_AGAIN_S)
        controller.stop()
    quorum.shutdown(_HANDING_OVER_MS)
    others = [voter for voter in quorum.consensus.voters.by_id if voter != node_id]
    while not quorum.is_stopped and not _are_all_gone(quorum, peers, others):
        await asyncio.sleep(_LOOK_AGAIN_S)


def _is_other_leaving(image: Image, node_id: int) -> bool:
    return any(
        broker.in_controlled_shutdown and not broker.fenced and broker.id != node_id
        for broker in image.brokers.values()
    )


def _are_all_gone(quorum: QuorumDriver, peers: QuorumPeers, others: list[int]) -> bool:
    """Whether there is nobody left to hand over to."""
    nodes = [quorum.consensus.voters.node(voter, quorum.listener) for voter in others]
    return bool(nodes) and all(node is not None and peers.is_unreachable(node) for node in nodes)
