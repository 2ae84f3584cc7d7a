"""The states of partitions and replicas, as operators know them. They follow from images; nothing keeps them.

    partition: NonExistent → New → Online ⇄ Offline → NonExistent
    replica:   NonExistent → New → Online ⇄ Offline → ReplicaDeletionStarted → ReplicaDeletionSuccessful → NonExistent

In an image a partition is made together with its leader, so New is seen only between two images: when an older one
lacks what a newer one has. Deleting is likewise: a topic leaves the image at once, and its brokers remove the replicas
after; who asks must say which of them are done.
"""

from collections.abc import Container
from enum import StrEnum

from ottla.controller.view import has_online_directory
from ottla.image.image import Image


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


def partition_state(image: Image, topic_id: bytes, number: int, *, before: Image | None = None) -> PartitionState:
    """The state of a partition in an image; `before` is the image from which it was made, to see what is new."""
    partition = image.partition_by_id(topic_id, number)
    if partition is None:
        return PartitionState.NON_EXISTENT
    if before is not None and before.partition_by_id(topic_id, number) is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if partition.has_leader else PartitionState.OFFLINE


def replica_state(
    image: Image,
    topic_id: bytes,
    number: int,
    broker_id: int,
    *,
    before: Image | None = None,
    deleted: Container[int] = (),
) -> ReplicaState:
    """The state of a replica in an image. With `before`, what is new or going is told apart; `deleted` are the brokers
    that have removed their replicas of a partition that is gone."""
    partition = image.partition_by_id(topic_id, number)
    old = None if before is None else before.partition_by_id(topic_id, number)
    was_there = old is not None and broker_id in old.replicas
    if partition is None or broker_id not in partition.replicas:
        if not was_there:
            return ReplicaState.NON_EXISTENT
        return ReplicaState.DELETION_SUCCESSFUL if broker_id in deleted else ReplicaState.DELETION_STARTED
    broker = image.brokers.get(broker_id)
    directory = partition.directory_of(broker_id)
    if broker is None or broker.fenced or directory is None or not has_online_directory(broker, directory):
        return ReplicaState.OFFLINE
    if before is not None and not was_there:
        return ReplicaState.NEW
    return ReplicaState.ONLINE


def count_partition_states(image: Image) -> dict[PartitionState, int]:
    """How many partitions are online and offline."""
    offline = sum(mask.bit_count() for mask in image.placement.leaderless.values())
    total = sum(len(topic.partitions) for topic in image.topics.values())
    return {PartitionState.ONLINE: total - offline, PartitionState.OFFLINE: offline}
