"""Replay of the records of consumer groups, by the coordinator that wrote them and by one that loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicProtocol
from ottla.coordinators.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinators.groups.consumer.member import (
    LEAVING,
    NOTHING_OWNED,
    ClassicMetadata,
    ConsumerGroupMember,
    MemberState,
    Owned,
)
from ottla.coordinators.groups.replayed import Replay, change_target_epoch, replay_to, without_member
from ottla.protocol.messages.records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    TopicPartitions,
)


def _epoch(
    group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> ConsumerGroup | None:
    """Apply the group epoch; its tombstone deletes the group."""
    if value is None:
        return None
    return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _partition_metadata(
    group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> ConsumerGroup:
    """Note a partition metadata record, which coordinators before 4.1 wrote; its content is not needed."""
    return replace(group, has_partition_metadata=value is not None)


def _member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> ConsumerGroup:
    """Apply a member's identity and subscription; its tombstone is the last of three."""
    if value is None:
        return without_member(group, key.member_id)
    member = replace(
        group.members.get(key.member_id) or ConsumerGroupMember(id=key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=_classic_metadata(value.classic_member_metadata),
    )
    return group.with_member(member)


def _target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> ConsumerGroup:
    """Apply a member's part of the target."""
    if value is None:
        return group.without_target(key.member_id)
    target = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}
    return group.with_target(key.member_id, target)


def _current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> ConsumerGroup:
    """Apply a member's assignment; its tombstone means that the member owns nothing and leaves."""
    if value is None:
        if key.member_id not in group.members:
            return group
        member = replace(
            group.members[key.member_id],
            epoch=LEAVING,
            previous_epoch=LEAVING,
            assigned=NOTHING_OWNED,
            revoking=NOTHING_OWNED,
        )
        return group.with_member(member)
    member = replace(
        group.members.get(key.member_id) or ConsumerGroupMember(id=key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.from_number(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )
    return group.with_member(member)


def _regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> ConsumerGroup:
    """Apply the matches of a regular expression."""
    regex = key.regular_expression
    if value is None:
        return (
            replace(group, resolved_regexes=group.resolved_regexes.delete(regex))
            if regex in group.resolved_regexes
            else group
        )
    resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return replace(group, resolved_regexes=group.resolved_regexes.set(regex, resolved))


def _owned(topics: list[TopicPartitions], epoch: int) -> Owned:
    """Return partitions with their assignment epochs, which coordinators before 4.3 did not write."""
    default_epoch = max(epoch, 0)
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default_epoch] * len(topic.partitions)
        owned[topic.topic_id] = dict(sorted(zip(topic.partitions, epochs, strict=True)))
    return owned


def _classic_metadata(value: ClassicMemberMetadata | None) -> ClassicMetadata | None:
    if value is None:
        return None
    protocols = (ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols)
    return ClassicMetadata(value.session_timeout_ms, tuple(protocols))


REPLAY: Final[Mapping[type, Replay]] = {
    ConsumerGroupMetadataKey: replay_to(ConsumerGroup, _epoch),
    ConsumerGroupPartitionMetadataKey: replay_to(ConsumerGroup, _partition_metadata),
    ConsumerGroupMemberMetadataKey: replay_to(ConsumerGroup, _member),
    ConsumerGroupTargetAssignmentMetadataKey: replay_to(ConsumerGroup, change_target_epoch),
    ConsumerGroupTargetAssignmentMemberKey: replay_to(ConsumerGroup, _target),
    ConsumerGroupCurrentMemberAssignmentKey: replay_to(ConsumerGroup, _current),
    ConsumerGroupRegularExpressionKey: replay_to(ConsumerGroup, _regex),
}
"""The replay function of each record, by the class of its key."""
