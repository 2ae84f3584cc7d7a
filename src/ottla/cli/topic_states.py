"""The states of a topic's partitions and replicas, as far as a client of any Kafka cluster can see them.

A client sees which replicas are in the ISR, which are offline, and which a reassignment adds. A replica that is neither
in the ISR nor offline is New if it is being added, and Offline otherwise, since it has to catch up. A client cannot see
whether a replica that is being added was in the ISR before. If the cluster does not let the client list reassignments,
the state of such a replica is unknown. So is the state of a partition whose leader lacks the client's listener.
"""

from collections.abc import Container

from ottla.client.admin import Admin
from ottla.client.metadata import Partition, Topic
from ottla.metadata.controller.replica_states import PartitionState, ReplicaState
from ottla.protocol.errors import AuthorizationError, ListenerNotFound, UnsupportedVersion


async def adding_replicas(admin: Admin, topic: Topic) -> dict[int, Container[int]] | None:
    """Return the replicas that reassignments add, by partition, or None if the cluster does not say.

    The cluster is asked only if the state of a replica depends on it.
    """
    undecided = [
        (topic.name, number)
        for number, partition in topic.partitions.items()
        if {*partition.replicas} - {*partition.isr} - {*partition.offline}
    ]
    if not undecided:
        return {}
    try:
        moves = await admin.reassignments(undecided)
    except (AuthorizationError, UnsupportedVersion):
        return None
    return {number: move.adding for (_, number), move in moves.items()}


def partition_state(partition: Partition) -> PartitionState | None:
    """Return the state of a partition, or None if it is unknown."""
    if partition.leader >= 0:
        return PartitionState.ONLINE
    return None if partition.error_code == ListenerNotFound.code else PartitionState.OFFLINE


def replica_states(partition: Partition, adding: dict[int, Container[int]] | None) -> dict[int, ReplicaState | None]:
    """Return the state of each replica by broker id; None stands for an unknown state."""
    return {broker_id: _replica_state(partition, broker_id, adding) for broker_id in partition.replicas}


def _replica_state(
    partition: Partition, broker_id: int, adding: dict[int, Container[int]] | None
) -> ReplicaState | None:
    if broker_id in partition.offline:
        return ReplicaState.OFFLINE
    if broker_id in partition.isr:
        return ReplicaState.ONLINE
    if adding is None:
        return None
    return ReplicaState.NEW if broker_id in adding.get(partition.number, ()) else ReplicaState.OFFLINE
