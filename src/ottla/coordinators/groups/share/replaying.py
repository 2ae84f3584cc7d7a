"""Replay of the records of share groups, by the coordinator that wrote them and by one that loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla.coordinators.groups.replayed import Replay, change_target_epoch, replay_to, without_member
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.member import LEAVING, NO_TARGET, ShareGroupMember
from ottla.coordinators.groups.share.partitions import SharePartitions, TopicState
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.messages.records.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartitionsInfo,
)
from ottla.storage.state_machine.entries import Stored


def _epoch(group: ShareGroup, key: ShareGroupMetadataKey, value: Any) -> ShareGroup | None:
    if value is None:
        return None
    return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _member(group: ShareGroup, key: ShareGroupMemberMetadataKey, value: Any) -> ShareGroup:
    if value is None:
        return without_member(group, key.member_id)
    member = replace(
        group.members.get(key.member_id) or ShareGroupMember(id=key.member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )
    return group.with_member(member)


def _target(group: ShareGroup, key: ShareGroupTargetAssignmentMemberKey, value: Any) -> ShareGroup:
    if value is None:
        return group.without_target(key.member_id)
    target = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}
    return group.with_target(key.member_id, target)


def _current(group: ShareGroup, key: ShareGroupCurrentMemberAssignmentKey, value: Any) -> ShareGroup:
    current = group.members.get(key.member_id)
    if value is None:
        if current is None:
            return group
        return group.with_member(replace(current, epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_TARGET))
    member = replace(
        current or ShareGroupMember(id=key.member_id),
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

    def read(topics: list[TopicPartitionsInfo]) -> dict[bytes, TopicState]:
        return {topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions), now_ms) for topic in topics}

    partitions = SharePartitions(
        read(value.initializing_topics),
        read(value.initialized_topics),
        frozenset(topic.topic_id for topic in value.deleting_topics),
    )
    return replace(group, partitions=partitions)


def _replay_partitions(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
    return replay_to(ShareGroup, partial(_partitions, now_ms=now_ms))(state, entry, now_ms)


REPLAY: Final[Mapping[type, Replay]] = {
    ShareGroupMetadataKey: replay_to(ShareGroup, _epoch),
    ShareGroupMemberMetadataKey: replay_to(ShareGroup, _member),
    ShareGroupTargetAssignmentMetadataKey: replay_to(ShareGroup, change_target_epoch),
    ShareGroupTargetAssignmentMemberKey: replay_to(ShareGroup, _target),
    ShareGroupCurrentMemberAssignmentKey: replay_to(ShareGroup, _current),
    ShareGroupStatePartitionMetadataKey: _replay_partitions,
}
"""The replay function of each record, by the class of its key."""
