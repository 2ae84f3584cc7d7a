"""What is decided about the states of a group's share partitions: when they were made, altered, or are to be deleted.

Each is a step of something that takes requests to the share coordinator in between; every step can be repeated.
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
    """The answer to a change of offsets, and the states that it takes."""

    topics: list[AlterShareGroupOffsetsResponseTopic]
    states: StatesToInitialize


class Deletion(NamedTuple):
    """The states that are to be deleted, and the topics of which there is nothing to delete."""

    states: PartitionsByTopic
    failed: list[DeleteShareGroupOffsetsResponseTopic]


def record_initialized(
    state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context
) -> Decision[None]:
    """The share coordinator has made states."""
    return _record_change(
        state, group_id, lambda known: known.with_initialized(topics, context.image, context.now_ms), context
    )


def record_failed(state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context) -> Decision[None]:
    """The share coordinator could not make states: the next heartbeat tries again."""
    return _record_change(state, group_id, lambda known: known.with_failed(topics), context)


def record_deleted(state: GroupsState, group_id: str, topics: PartitionsByTopic, context: Context) -> Decision[None]:
    """The share coordinator has deleted the states of topics."""
    return _record_change(state, group_id, lambda known: replace(known, deleting=known.deleting - set(topics)), context)


def initialized_partitions(state: GroupsState, group_id: str) -> dict[bytes, list[int]]:
    """The partitions of a group that have a state; none if there is no such group."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup) or group.partitions is None:
        return {}
    return {topic_id: sorted(known.partitions) for topic_id, known in group.partitions.initialized.items()}


def delete_states(state: GroupsState, group_id: str, context: Context) -> Decision[PartitionsByTopic | None]:
    """What must be deleted before a share group can be; None if it is no share group."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Decision((), None)
    group.check_delete()
    if group.partitions is None:
        return Decision((), {})
    topics = group.partitions.deletable(context.image)
    left = SharePartitions({}, {}, frozenset(topics))
    return Decision(
        [partitions_record(group_id, left, context.image)],
        {topic_id: sorted(known.partitions) for topic_id, known in topics.items()},
    )


def delete_offsets(state: GroupsState, group_id: str, names: Sequence[str], context: Context) -> Decision[Deletion]:
    """What must be deleted for a group without members to know nothing of some topics."""
    group = find_group(state, group_id, ShareGroup)
    group.check_delete()
    known = group.partitions
    if known is None:
        return Decision((), Deletion({}, []))
    states: dict[bytes, list[int]] = {}
    failed = []
    for name in names:
        topic = context.image.topic(name)
        if topic is None:
            failed.append(_failed_topic(name, _UNKNOWN_MESSAGE))
        elif topic.id in known.initialized:
            states[topic.id] = sorted(known.initialized[topic.id].partitions)
        elif topic.id in known.deleting:
            states[topic.id] = list(range(len(topic.partitions)))
        else:
            failed.append(_failed_topic(name, "There is no offset information to delete."))
    left = replace(
        known,
        initialized={topic_id: each for topic_id, each in known.initialized.items() if topic_id not in states},
        deleting=known.deleting | set(states),
    )
    return Decision([partitions_record(group_id, left, context.image)], Deletion(states, failed))


def alter_offsets(
    state: GroupsState, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic], context: Context
) -> Decision[OffsetAlteration]:
    """The states that a group without members is to have; it may be a new one."""
    group = state.groups.get(group_id)
    if group is None:
        group = ShareGroup(group_id)
    if not isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"Group {group_id} is not a share group.")
    if group.members:
        raise NonEmptyGroup("The group is not empty.")
    answers = []
    offsets: dict[bytes, Mapping[int, int]] = {}
    with_initializing = {}
    for requested in topics:
        topic = context.image.topic(requested.topic_name)
        count = 0 if topic is None else len(topic.partitions)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=requested.topic_name)
        answer.partitions = [_alter_answer(part.partition_index, count) for part in requested.partitions]
        answers.append(answer)
        if topic is not None:
            answer.topic_id = topic.id
            wanted = {
                part.partition_index: part.start_offset for part in requested.partitions if part.partition_index < count
            }
            with_initializing[topic.id] = TopicState(topic.name, frozenset(wanted), context.now_ms)
            if wanted:
                offsets[topic.id] = wanted
    records = []
    if with_initializing:
        known = (group.partitions or NO_PARTITIONS).with_initializing(with_initializing)
        records.append(partitions_record(group_id, known, context.image))
    return Decision(records, OffsetAlteration(answers, StatesToInitialize(group_id, group.epoch, offsets)))


def _alter_answer(index: int, count: int) -> AlterShareGroupOffsetsResponsePartition:
    answer = AlterShareGroupOffsetsResponsePartition(partition_index=index)
    if index >= count:
        answer.error_code, answer.error_message = _UNKNOWN, _UNKNOWN_MESSAGE
    return answer


def _failed_topic(name: str, why: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=_UNKNOWN, error_message=why)


def _record_change(
    state: GroupsState, group_id: str, change: Callable[[SharePartitions], SharePartitions], context: Context
) -> Decision[None]:
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Decision((), None)  # it was deleted meanwhile
    known = group.partitions or NO_PARTITIONS
    changed = change(known)
    return Decision([] if changed == known else [partitions_record(group_id, changed, context.image)], None)
