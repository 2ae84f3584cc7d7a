"""The records of share groups, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.coordinators.groups.share.member import STABLE, ShareGroupMember, Target
from ottla.coordinators.groups.share.partitions import UNKNOWN_NAME, SharePartitions, Topics
from ottla.metadata.image.image import Image
from ottla.protocol.messages.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from ottla.storage.state_machine.entries import Stored

VERSION: Final = 0


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Stored:
    """Return the record of the group epoch, with the hash of the subscribed topics."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Stored(ShareGroupMetadataKey(group_id=group_id), value, VERSION)


def member_record(group_id: str, member: ShareGroupMember) -> Stored:
    """Return the record of a member's identity and subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return Stored(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.id), value, VERSION)


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> Stored:
    """Return the record of the target's epoch and time."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return Stored(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value, VERSION)


def target_assignment_record(group_id: str, member_id: str, target: Target) -> Stored:
    """Return the record of a member's part of the target."""
    topics = [TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return Stored(key, ShareGroupTargetAssignmentMemberValue(topic_partitions=topics), VERSION)


def current_assignment_record(group_id: str, member: ShareGroupMember) -> Stored:
    """Return the record of a member's assignment and epoch."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in member.assigned.items()
        ],
    )
    return Stored(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id), value, VERSION)


def partitions_record(group_id: str, partitions: SharePartitions, image: Image) -> Stored:
    """Return the record of the group's share partitions."""

    def name_of(topic_id: bytes) -> str:
        topic = image.topic_by_id(topic_id)
        return UNKNOWN_NAME if topic is None else topic.name

    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topic_infos(partitions.initializing),
        initialized_topics=_topic_infos(partitions.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=name_of(topic_id)) for topic_id in sorted(partitions.deleting)
        ],
    )
    return Stored(ShareGroupStatePartitionMetadataKey(group_id=group_id), value, VERSION)


def member_tombstones(group_id: str, member_id: str) -> Sequence[Stored]:
    """Return the tombstones of a member."""
    return (
        Stored(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Stored(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Stored(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> Sequence[Stored]:
    """Return the tombstones of a group and all its members."""
    members = list(member_ids)
    return (
        *(
            Stored(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member), None)
            for member in members
        ),
        *(Stored(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member), None) for member in members),
        Stored(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Stored(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member), None) for member in members),
        Stored(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        Stored(ShareGroupMetadataKey(group_id=group_id), None),
    )


def _topic_infos(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in topics.items()
    ]
