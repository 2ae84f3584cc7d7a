"""What the records of consumer groups do to the state: the same for who wrote them and for one that loads.

Deletions may name what is not there any more: compaction keeps them longer than what they delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.groups.consumer.group import ConsumerGroup, Resolved
from ottla.groups.consumer.member import (
    LEAVING,
    NOTHING_OWNED,
    ClassicProtocol,
    ClassicSide,
    Member,
    MemberState,
    Owned,
)
from ottla.groups.replayed import known_group, new_or_known, with_target_epoch, without_member, without_target
from ottla.groups.state import GroupsState
from ottla.messages.consumer_group_records import (
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
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from ottla.replicated.entries import Stored

Replay = Callable[[GroupsState, Stored, int], GroupsState]


def replay_epoch(
    state: GroupsState, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> GroupsState:
    """A group's epoch; its deletion is the end of the group."""
    if value is None:
        return state if known_group(state, key.group_id, ConsumerGroup) is None else state.without_group(key.group_id)
    group = new_or_known(state, key.group_id, ConsumerGroup)
    return state.with_group(replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash))


def replay_partition_metadata(
    state: GroupsState, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> GroupsState:
    """What coordinators before 4.1 wrote: only that it is there matters."""
    find = known_group if value is None else new_or_known
    group = find(state, key.group_id, ConsumerGroup)
    return state if group is None else state.with_group(replace(group, has_partition_metadata=value is not None))


def replay_member(
    state: GroupsState, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> GroupsState:
    """Who a member is and what it wants; its deletion is the last of three."""
    if value is None:
        return without_member(state, key.group_id, key.member_id, ConsumerGroup)
    group = new_or_known(state, key.group_id, ConsumerGroup)
    member = replace(
        group.members.get(key.member_id) or Member(id=key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=_classic_side(value.classic_member_metadata),
    )
    return state.with_group(group.with_member(member))


def replay_target_epoch(
    state: GroupsState,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> GroupsState:
    """For which epoch the target was made."""
    return with_target_epoch(state, key.group_id, value, ConsumerGroup)


def replay_target(
    state: GroupsState,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> GroupsState:
    """What a member should have."""
    if value is None:
        return without_target(state, key.group_id, key.member_id, ConsumerGroup)
    group = new_or_known(state, key.group_id, ConsumerGroup)
    target = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}
    return state.with_group(group.with_target(key.member_id, target))


def replay_current(
    state: GroupsState,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> GroupsState:
    """What a member has; its deletion says that the member owns nothing more and leaves."""
    if value is None:
        group = known_group(state, key.group_id, ConsumerGroup)
        if group is None or key.member_id not in group.members:
            return state
        member = replace(
            group.members[key.member_id],
            epoch=LEAVING,
            previous_epoch=LEAVING,
            assigned=NOTHING_OWNED,
            revoking=NOTHING_OWNED,
        )
        return state.with_group(group.with_member(member))
    group = new_or_known(state, key.group_id, ConsumerGroup)
    member = replace(
        group.members.get(key.member_id) or Member(id=key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )
    return state.with_group(group.with_member(member))


def replay_regex(
    state: GroupsState, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> GroupsState:
    """What an expression matches."""
    regex = key.regular_expression
    if value is None:
        group = known_group(state, key.group_id, ConsumerGroup)
        if group is None or regex not in group.resolved:
            return state
        return state.with_group(replace(group, resolved=group.resolved.delete(regex)))
    group = new_or_known(state, key.group_id, ConsumerGroup)
    resolved = Resolved(frozenset(value.topics), value.version, value.timestamp)
    return state.with_group(replace(group, resolved=group.resolved.set(regex, resolved)))


def _owned(topics: list[TopicPartitions], epoch: int) -> Owned:
    """Partitions with the epochs since which they are owned; coordinators before 4.3 did not write these."""
    known_since = max(epoch, 0)
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [known_since] * len(topic.partitions)
        owned[topic.topic_id] = dict(sorted(zip(topic.partitions, epochs, strict=True)))
    return owned


def _classic_side(value: ClassicMemberMetadata | None) -> ClassicSide | None:
    if value is None:
        return None
    protocols = (ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols)
    return ClassicSide(value.session_timeout_ms, tuple(protocols))


def _of_entry(replay: Callable[[GroupsState, Any, Any], GroupsState]) -> Replay:
    return lambda state, entry, now_ms: replay(state, entry.key, entry.value)


REPLAY: Final[Mapping[type, Replay]] = {
    ConsumerGroupMetadataKey: _of_entry(replay_epoch),
    ConsumerGroupPartitionMetadataKey: _of_entry(replay_partition_metadata),
    ConsumerGroupMemberMetadataKey: _of_entry(replay_member),
    ConsumerGroupTargetAssignmentMetadataKey: _of_entry(replay_target_epoch),
    ConsumerGroupTargetAssignmentMemberKey: _of_entry(replay_target),
    ConsumerGroupCurrentMemberAssignmentKey: _of_entry(replay_current),
    ConsumerGroupRegularExpressionKey: _of_entry(replay_regex),
}
"""What a record does to the state, by the class of its key."""
