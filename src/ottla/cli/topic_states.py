"""The states of a topic's partitions and replicas, as any Kafka cluster lets a client see them.

A client sees which replicas are in the ISR, which are offline, and which a reassignment adds. So a replica that is
neither in the ISR nor offline is New if it is being added, and Offline otherwise: it has yet to catch up. Whether a
replica that is being added was in the ISR before, a client cannot see. Where the cluster does not let the client list
reassignments, the state of such a replica is unknown, as is that of a partition whose leader lacks the client's
listener.
"""

from collections.abc import Container

from ottla.client.admin import Admin
from ottla.client.metadata import Partition, Topic
from ottla.metadata.controller.replica_states import PartitionState, ReplicaState
from ottla.protocol.errors import AuthorizationError, ListenerNotFound, UnsupportedVersion


async def adding_replicas(admin: Admin, topic: Topic) -> dict[int, Container[int]] | None:
    """The replicas that reassignments add, by partition; None if the cluster does not say. It is asked only if some
    replica's state depends on it."""
    open_ones = [
        (topic.name, number)
        for number, partition in topic.partitions.items()
        if {*partition.replicas} - {*partition.isr} - {*partition.offline}
    ]
    if not open_ones:
        return {}
    try:
        moves = await admin.reassignments(open_ones)
    except (AuthorizationError, UnsupportedVersion):
        return None
    return {number: move.adding for (_, number), move in moves.items()}


def partition_state(partition: Partition) -> PartitionState | None:
    """The state of a partition; None if it is unknown."""
    if partition.leader >= 0:
        return PartitionState.ONLINE
    return None if partition.error_code == ListenerNotFound.code else PartitionState.OFFLINE


def replica_states(partition: Partition, adding: dict[int, Container[int]] | None) -> dict[int, ReplicaState | None]:
    """The state of each replica by its broker; None where it is unknown."""
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
