"""The records of streams groups, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.tasks import TaskEpochs, TaskIds, Tasks
from ottla.protocol.messages.records.streams_group_records import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.messages.records.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentTaskIds as CurrentTaskIds,
)
from ottla.protocol.messages.records.streams_group_records import TaskIds as TargetTaskIds
from ottla.storage.state_machine.entries import Stored

VERSION: Final = 0


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, settings: Mapping[str, str]
) -> Stored:
    """Return the record of the group epoch, with the topic hash, the validated topology and the settings."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[LastAssignmentConfig(key=key, value=settings[key]) for key in sorted(settings)],
    )
    return Stored(StreamsGroupMetadataKey(group_id=group_id), value, VERSION)


def topology_record(group_id: str, topology: StreamsGroupTopologyValue) -> Stored:
    """Return the record of the topology that all members share."""
    return Stored(StreamsGroupTopologyKey(group_id=group_id), topology, VERSION)


def member_record(group_id: str, member: StreamsGroupMember) -> Stored:
    """Return the record of a member."""
    endpoint = member.endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=member.tags[key]) for key in sorted(member.tags)],
    )
    return Stored(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.id), value, VERSION)


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> Stored:
    """Return the record of the target's epoch and time."""
    key = StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    return Stored(
        key, StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp), VERSION
    )


def target_assignment_record(group_id: str, member_id: str, target: Tasks) -> Stored:
    """Return the record of a member's part of the target."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_tasks(target.active),
        standby_tasks=_target_tasks(target.standby),
        warmup_tasks=_target_tasks(target.warmup),
    )
    return Stored(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value, VERSION)


def current_assignment_record(group_id: str, member: StreamsGroupMember) -> Stored:
    """Return the record of a member's tasks, epoch and state."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        active_tasks=_active_tasks(member.assigned.active),
        standby_tasks=_other_tasks(member.assigned.standby),
        warmup_tasks=_other_tasks(member.assigned.warmup),
        active_tasks_pending_revocation=_active_tasks(member.revoking.active),
        standby_tasks_pending_revocation=_other_tasks(member.revoking.standby),
        warmup_tasks_pending_revocation=_other_tasks(member.revoking.warmup),
    )
    return Stored(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id), value, VERSION)


def member_tombstones(group_id: str, member_id: str) -> Sequence[Stored]:
    """Return the tombstones of a member."""
    return (
        Stored(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Stored(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Stored(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> Sequence[Stored]:
    """Return the tombstones of a group and all its members."""
    ids = list(member_ids)
    return (
        *(Stored(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member), None) for member in ids),
        *(Stored(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member), None) for member in ids),
        Stored(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Stored(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member), None) for member in ids),
        Stored(StreamsGroupMetadataKey(group_id=group_id), None),
        Stored(StreamsGroupTopologyKey(group_id=group_id), None),
    )


def _target_tasks(tasks: TaskIds) -> list[TargetTaskIds]:
    return [TargetTaskIds(subtopology_id=name, partitions=list(tasks[name])) for name in sorted(tasks)]


def _active_tasks(tasks: TaskEpochs) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=name,
            partitions=sorted(tasks[name]),
            assignment_epochs=[tasks[name][partition] for partition in sorted(tasks[name])],
        )
        for name in sorted(tasks)
    ]


def _other_tasks(tasks: TaskIds) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(subtopology_id=name, partitions=list(tasks[name])) for name in sorted(tasks)]
