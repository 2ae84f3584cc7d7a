"""The states of partitions and replicas, and every legal transition between them.

    partition: NonExistent → New → Online ⇄ Offline → NonExistent
    replica:   NonExistent → New → Online ⇄ Offline → ReplicaDeletionStarted → ReplicaDeletionSuccessful → NonExistent

A partition is New until it has its first leader, Online while it has a leader, and else Offline.

A replica is Online while it is in the ISR, its broker is unfenced and its directory is online. A replica that a
reassignment adds is New until it joins the ISR, or until its broker or directory fails. All other replicas are Offline:
one that left the ISR stays Offline until it is back in the ISR.

A replica whose topic was deleted, or that a reassignment left behind, is in ReplicaDeletionStarted until its broker has
removed it: until the broker has taken the log out of service and renamed its directory to `-delete`, or to `-stray` at
its next start. The bytes follow after `file.delete.delay.ms`. Kafka's own ReplicaDeletionSuccessful means the same.

One image may hold several steps, such as a partition that is created with its leader: `find_steps` returns the steps
between.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from ottla.metadata.controller.view import has_online_directory
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Partition


class PartitionState(StrEnum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(StrEnum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"


PARTITION_TRANSITIONS: Final[Mapping[PartitionState, tuple[PartitionState, ...]]] = {
    PartitionState.NON_EXISTENT: (PartitionState.NEW,),
    # A partition goes offline without having been online if it is deleted before it has its first leader.
    PartitionState.NEW: (PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.ONLINE: (PartitionState.OFFLINE,),
    PartitionState.OFFLINE: (PartitionState.ONLINE, PartitionState.NON_EXISTENT),
}
REPLICA_TRANSITIONS: Final[Mapping[ReplicaState, tuple[ReplicaState, ...]]] = {
    ReplicaState.NON_EXISTENT: (ReplicaState.NEW,),
    # A new replica goes offline with its broker, and when its reassignment is cancelled or its topic deleted.
    ReplicaState.NEW: (ReplicaState.ONLINE, ReplicaState.OFFLINE),
    ReplicaState.ONLINE: (ReplicaState.OFFLINE,),
    ReplicaState.OFFLINE: (ReplicaState.ONLINE, ReplicaState.DELETION_STARTED),
    # A replica on an unregistered broker is dropped: no broker is left to report its removal.
    ReplicaState.DELETION_STARTED: (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT),
    ReplicaState.DELETION_SUCCESSFUL: (ReplicaState.NON_EXISTENT,),
}
TRANSITIONS: Final[Mapping[Any, tuple[Any, ...]]] = {**PARTITION_TRANSITIONS, **REPLICA_TRANSITIONS}
"""Every legal transition."""

_ENDS: Final = frozenset({PartitionState.NON_EXISTENT, ReplicaState.NON_EXISTENT})

S = TypeVar("S", bound=StrEnum)


def take_step(old: S, new: S) -> S:
    """Return the new state after one step. An illegal step is a bug."""
    assert new in TRANSITIONS[old], (
        f"a step from {old} to {new} is illegal; legal next states are {', '.join(TRANSITIONS[old])}"
    )
    return new


def find_steps(old: S, new: S) -> tuple[S, ...]:
    """Return the shortest sequence of legal steps between two states. An illegal change is a bug.

    NonExistent is final: no sequence passes through it.
    """
    if old is new:
        return ()
    paths: list[tuple[S, ...]] = [()]
    seen: set[StrEnum] = {old}
    for path in paths:
        last = path[-1] if path else old
        if last in _ENDS and last is not old:
            continue
        for following in TRANSITIONS[last]:
            if following is new:
                return (*path, new)
            if following not in seen:
                seen.add(following)
                paths.append((*path, following))
    raise AssertionError(f"there are no legal steps from {old} to {new}")


def partition_state(partition: Partition) -> PartitionState:
    """Return the state of a partition. The leader epoch rises when a partition loses its first leader."""
    if partition.has_leader:
        return PartitionState.ONLINE
    return PartitionState.OFFLINE if partition.leader_epoch else PartitionState.NEW


def replica_state(image: Image, partition: Partition, broker_id: int, *, is_new: bool) -> ReplicaState:
    """Return the state of a replica. `is_new` says whether it has never been in the ISR; no image shows that."""
    if not can_serve(image, partition, broker_id):
        return ReplicaState.OFFLINE
    if broker_id in partition.isr:
        return ReplicaState.ONLINE
    return ReplicaState.NEW if is_new else ReplicaState.OFFLINE


def can_serve(image: Image, partition: Partition, broker_id: int) -> bool:
    """Whether a replica's broker is unfenced and its directory online."""
    broker = image.brokers.get(broker_id)
    directory = partition.directory_of(broker_id)
    return (
        broker is not None and not broker.fenced and directory is not None and has_online_directory(broker, directory)
    )
