"""The records of consumer groups, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.coordinators.groups.consumer.member import ConsumerGroupMember, Owned, Target
from ottla.protocol.messages.records.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from ottla.storage.state_machine.entries import Stored

if TYPE_CHECKING:
    from ottla.coordinators.groups.consumer.group import ResolvedRegex

VERSION: Final = 0


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Stored:
    """Return the record of the group epoch, with the hash of the subscribed topics."""
    return Stored(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
        VERSION,
    )


def partition_metadata_tombstone(group_id: str) -> Stored:
    """Return the tombstone of the record that coordinators before 4.1 wrote instead of the hash."""
    return Stored(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member: ConsumerGroupMember) -> Stored:
    """Return the record of a member's identity and subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return Stored(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.id), value, VERSION)


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> Stored:
    """Return the record of the target's epoch and time."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return Stored(
        key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp), VERSION
    )


def target_assignment_record(group_id: str, member_id: str, target: Target) -> Stored:
    """Return the record of a member's part of the target."""
    topics = [TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return Stored(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics), VERSION)


def current_assignment_record(group_id: str, member: ConsumerGroupMember) -> Stored:
    """Return the record of a member's assignment, epoch and state."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_topics(member.assigned),
        partitions_pending_revocation=_topics(member.revoking),
    )
    return Stored(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id), value, VERSION)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Stored:
    """Return the record of a resolved regular expression."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
    )
    return Stored(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value, VERSION)


def regex_tombstone(group_id: str, regex: str) -> Stored:
    return Stored(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> Sequence[Stored]:
    """Return the tombstones of a member."""
    return (
        Stored(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Stored(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Stored(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> Sequence[Stored]:
    """Return the tombstones of a group and all its members."""
    members = list(member_ids)
    return (
        *(
            Stored(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member), None)
            for member in members
        ),
        *(
            Stored(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member), None)
            for member in members
        ),
        Stored(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Stored(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member), None) for member in members),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        Stored(ConsumerGroupMetadataKey(group_id=group_id), None),
    )


def _topics(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]
