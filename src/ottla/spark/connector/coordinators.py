"""Looks up the coordinator of a group or a transactional id."""

from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.retries import raise_for_code
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1


async def find_coordinator(cluster: Cluster, name: str, kind: int) -> int:
    """Return the coordinator's node id; raise CoordinatorNotAvailable while no coordinator is available."""
    request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
    answer: FindCoordinatorResponse = await cluster.send(request)
    coordinator = answer.coordinators[0] if answer.coordinators else answer
    raise_for_code(coordinator.error_code, coordinator.error_message, f"coordinator of {name!r}")
    return coordinator.node_id
