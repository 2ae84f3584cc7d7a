"""Decisions about the initialization, alteration and deletion of a group's share partitions.

Each decision is one step of an operation that also sends requests to the share coordinator. Every step can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import StatesToInitialize
from ottla.coordinators.groups.share.partitions import NO_PARTITIONS, PartitionsByTopic, SharePartitions, TopicState
from ottla.coordinators.groups.share.records import partitions_record
from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.protocol.errors import GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition
from ottla.protocol.messages.rpc.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.rpc.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from ottla.storage.state_machine.decision import Decision

_UNKNOWN = UnknownTopicOrPartition.code
_UNKNOWN_MESSAGE = "This server does not host this topic-partition."


class OffsetAlteration(NamedTuple):
    """The response to AlterShareGroupOffsets, and the share partitions to initialize."""

    topics: list[AlterShareGroupOffsetsResponseTopic]
    states: StatesToInitialize


class Deletion(NamedTuple):
    """The share partitions to delete, and the topics that have none."""

    states: PartitionsByTopic
    failed: list[DeleteShareGroupOffsetsResponseTopic]


def record_initialized(
    state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context
) -> Decision[None]:
    """Record that the share coordinator initialized partitions."""
    return _record_change(
        state, group_id, lambda current: current.with_initialized(topics, context.image, context.now_ms), context
    )


def record_failed(state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context) -> Decision[None]:
    """Record that an initialization failed; the next heartbeat starts it again."""
    return _record_change(state, group_id, lambda current: current.with_failed(topics), context)


def record_deleted(state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context) -> Decision[None]:
    """Record that the share coordinator deleted the share partitions of topics."""
    return _record_change(
        state, group_id, lambda current: replace(current, deleting=current.deleting - set(topics)), context
    )


def initialized_partitions(state: GroupsState, group_id: str) -> dict[bytes, list[int]]:
    """Return the initialized partitions of a group; empty if there is no such share group."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup) or group.partitions is None:
        return {}
    return {topic_id: sorted(topic.partitions) for topic_id, topic in group.partitions.initialized.items()}


def delete_states(state: GroupsState, group_id: str, context: Context) -> Decision[PartitionsByTopic | None]:
    """Return the share partitions to delete before the group; None if it is not a share group."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Decision((), None)
    group.check_delete()
    if group.partitions is None:
        return Decision((), {})
    topics = group.partitions.deletable(context.image)
    deleting = SharePartitions({}, {}, frozenset(topics))
    return Decision(
        [partitions_record(group_id, deleting, context.image)],
        {topic_id: sorted(topic.partitions) for topic_id, topic in topics.items()},
    )


def delete_offsets(state: GroupsState, group_id: str, names: Sequence[str], context: Context) -> Decision[Deletion]:
    """Return the share partitions to delete so that a group without members forgets topics."""
    group = find_group(state, group_id, ShareGroup)
    group.check_delete()
    current = group.partitions
    if current is None:
        return Decision((), Deletion({}, []))
    states: dict[bytes, list[int]] = {}
    failed = []
    for name in names:
        topic = context.image.topic(name)
        if topic is None:
            failed.append(_failed_topic(name, _UNKNOWN_MESSAGE))
        elif topic.id in current.initialized:
            states[topic.id] = sorted(current.initialized[topic.id].partitions)
        elif topic.id in current.deleting:
            states[topic.id] = list(range(len(topic.partitions)))
        else:
            failed.append(_failed_topic(name, "There is no offset information to delete."))
    remaining = replace(
        current,
        initialized={topic_id: topic for topic_id, topic in current.initialized.items() if topic_id not in states},
        deleting=current.deleting | set(states),
    )
    return Decision([partitions_record(group_id, remaining, context.image)], Deletion(states, failed))


def alter_offsets(
    state: GroupsState, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic], context: Context
) -> Decision[OffsetAlteration]:
    """Set the start offsets of a group without members, and create the group if it does not exist."""
    group = state.groups.get(group_id)
    if group is None:
        group = ShareGroup(group_id)
    if not isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"Group {group_id} is not a share group.")
    if group.members:
        raise NonEmptyGroup("The group is not empty.")
    answers = []
    offsets: dict[bytes, Mapping[int, int]] = {}
    initializing = {}
    for requested in topics:
        topic = context.image.topic(requested.topic_name)
        count = 0 if topic is None else len(topic.partitions)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=requested.topic_name)
        answer.partitions = [_alter_answer(part.partition_index, count) for part in requested.partitions]
        answers.append(answer)
        if topic is not None:
            answer.topic_id = topic.id
            start_offsets = {
                part.partition_index: part.start_offset for part in requested.partitions if part.partition_index < count
            }
            initializing[topic.id] = TopicState(topic.name, frozenset(start_offsets), context.now_ms)
            if start_offsets:
                offsets[topic.id] = start_offsets
    records = []
    if initializing:
        partitions = (group.partitions or NO_PARTITIONS).with_initializing(initializing)
        records.append(partitions_record(group_id, partitions, context.image))
    return Decision(records, OffsetAlteration(answers, StatesToInitialize(group_id, group.epoch, offsets)))


def _alter_answer(index: int, count: int) -> AlterShareGroupOffsetsResponsePartition:
    answer = AlterShareGroupOffsetsResponsePartition(partition_index=index)
    if index >= count:
        answer.error_code, answer.error_message = _UNKNOWN, _UNKNOWN_MESSAGE
    return answer


def _failed_topic(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=_UNKNOWN, error_message=message)


def _record_change(
    state: GroupsState, group_id: str, change: Callable[[SharePartitions], SharePartitions], context: Context
) -> Decision[None]:
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Decision((), None)  # the group was deleted in the meantime
    current = group.partitions or NO_PARTITIONS
    changed = change(current)
    return Decision([] if changed == current else [partitions_record(group_id, changed, context.image)], None)
