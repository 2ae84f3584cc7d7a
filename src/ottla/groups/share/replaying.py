"""What the records of share groups do to the state: the same for who wrote them and for one that loads.

Deletions may name what is not there any more: compaction keeps them longer than what they delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.groups.epoch_group import NO_ASSIGNMENT
from ottla.groups.replayed import known_group, new_or_known
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.member import LEAVING, NO_TARGET, Member
from ottla.groups.share.partitions import Known, SharePartitions
from ottla.groups.state import GroupsState
from ottla.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartitionsInfo,
)
from ottla.replicated.entries import Stored

Replay = Callable[[GroupsState, Stored, int], GroupsState]
_Change = Callable[[ShareGroup, Any, Any, int], ShareGroup | None]
"""Takes the group, key, value (None deletes) and time; gives the group after it, None if that is gone."""


def _epoch(group: ShareGroup, key: ShareGroupMetadataKey, value: Any, now_ms: int) -> ShareGroup | None:
    if value is None:
        return None
    return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _member(group: ShareGroup, key: ShareGroupMemberMetadataKey, value: Any, now_ms: int) -> ShareGroup:
    known = group.members.get(key.member_id)
    if value is None:
        return group if known is None else group.without_member(key.member_id)
    member = replace(
        known or Member(id=key.member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )
    return group.with_member(member)


def _target_epoch(group: ShareGroup, key: ShareGroupTargetAssignmentMetadataKey, value: Any, now_ms: int) -> ShareGroup:
    if value is None:
        return replace(group, target_epoch=NO_ASSIGNMENT, target_timestamp=0)
    return replace(group, target_epoch=value.assignment_epoch, target_timestamp=value.assignment_timestamp)


def _target(group: ShareGroup, key: ShareGroupTargetAssignmentMemberKey, value: Any, now_ms: int) -> ShareGroup:
    if value is None:
        return group.without_target(key.member_id)
    target = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}
    return group.with_target(key.member_id, target)


def _current(group: ShareGroup, key: ShareGroupCurrentMemberAssignmentKey, value: Any, now_ms: int) -> ShareGroup:
    known = group.members.get(key.member_id)
    if value is None:
        if known is None:
            return group
        return group.with_member(replace(known, epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_TARGET))
    member = replace(
        known or Member(id=key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.assigned_partitions},
    )
    return group.with_member(member)


def _partitions(
    group: ShareGroup,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | None,
    now_ms: int,
) -> ShareGroup:
    if value is None:
        return replace(group, partitions=None)

    def known(topics: list[TopicPartitionsInfo]) -> dict[bytes, Known]:
        return {each.topic_id: Known(each.topic_name, frozenset(each.partitions), now_ms) for each in topics}

    partitions = SharePartitions(
        known(value.initializing_topics),
        known(value.initialized_topics),
        frozenset(each.topic_id for each in value.deleting_topics),
    )
    return replace(group, partitions=partitions)


def _replay(change: _Change) -> Replay:
    def replay(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
        group_id = entry.key.group_id
        find = known_group if entry.value is None else new_or_known
        group = find(state, group_id, ShareGroup)
        if group is None:
            return state
        changed = change(group, entry.key, entry.value, now_ms)
        return state.without_group(group_id) if changed is None else state.with_group(changed)

    return replay


REPLAY: Final[Mapping[type, Replay]] = {
    ShareGroupMetadataKey: _replay(_epoch),
    ShareGroupMemberMetadataKey: _replay(_member),
    ShareGroupTargetAssignmentMetadataKey: _replay(_target_epoch),
    ShareGroupTargetAssignmentMemberKey: _replay(_target),
    ShareGroupCurrentMemberAssignmentKey: _replay(_current),
    ShareGroupStatePartitionMetadataKey: _replay(_partitions),
}
"""By the class of a record's key."""
