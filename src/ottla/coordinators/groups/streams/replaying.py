"""Replay of the records of streams groups, by the coordinator that wrote them and by one that loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.replayed import Replay, change_target_epoch, replay_to, without_member
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import LEAVING, Endpoint, MemberState, StreamsGroupMember
from ottla.coordinators.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, TaskEpochs, TaskIds, Tasks
from ottla.coordinators.groups.streams.topology import read_topology
from ottla.protocol.messages.records import streams_group_records as stored
from ottla.protocol.messages.records.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentTaskIds as CurrentTaskIds,
)


def _epoch(
    group: StreamsGroup, key: stored.StreamsGroupMetadataKey, value: stored.StreamsGroupMetadataValue | None
) -> StreamsGroup | None:
    """Apply the group epoch; its tombstone deletes the group."""
    if value is None:
        return None
    return replace(
        group,
        epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_epoch=value.validated_topology_epoch,
        settings={config.key: config.value for config in value.last_assignment_configs or ()},
    )


def _topology(
    group: StreamsGroup, key: stored.StreamsGroupTopologyKey, value: stored.StreamsGroupTopologyValue | None
) -> StreamsGroup:
    """Apply the topology; its tombstone follows that of the group."""
    return replace(group, topology=None if value is None else read_topology(value))


def _member(
    group: StreamsGroup, key: stored.StreamsGroupMemberMetadataKey, value: stored.StreamsGroupMemberMetadataValue | None
) -> StreamsGroup:
    """Apply a member; its tombstone is the last of three."""
    if value is None:
        return without_member(group, key.member_id)
    endpoint = value.user_endpoint
    member = replace(
        group.members.get(key.member_id) or StreamsGroupMember(id=key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags={tag.key: tag.value for tag in value.client_tags},
    )
    return group.with_member(member)


def _target(
    group: StreamsGroup,
    key: stored.StreamsGroupTargetAssignmentMemberKey,
    value: stored.StreamsGroupTargetAssignmentMemberValue | None,
) -> StreamsGroup:
    """Apply a member's part of the target."""
    if value is None:
        return group.without_target(key.member_id)
    target = Tasks(_task_ids(value.active_tasks), _task_ids(value.standby_tasks), _task_ids(value.warmup_tasks))
    return group.with_target(key.member_id, target)


def _current(
    group: StreamsGroup,
    key: stored.StreamsGroupCurrentMemberAssignmentKey,
    value: stored.StreamsGroupCurrentMemberAssignmentValue | None,
) -> StreamsGroup:
    """Apply a member's tasks; its tombstone means that the member owns nothing and leaves."""
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
    epoch = value.member_epoch
    member = replace(
        group.members.get(key.member_id) or StreamsGroupMember(id=key.member_id),
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.from_number(value.state),
        assigned=OwnedTasks(
            _task_epochs(value.active_tasks, epoch), _task_ids(value.standby_tasks), _task_ids(value.warmup_tasks)
        ),
        revoking=OwnedTasks(
            _task_epochs(value.active_tasks_pending_revocation, epoch),
            _task_ids(value.standby_tasks_pending_revocation),
            _task_ids(value.warmup_tasks_pending_revocation),
        ),
    )
    return group.with_member(member)


def _task_ids(tasks: list[stored.TaskIds] | list[CurrentTaskIds]) -> TaskIds:
    return {task_ids.subtopology_id: tuple(sorted(task_ids.partitions)) for task_ids in tasks}


def _task_epochs(tasks: list[CurrentTaskIds], epoch: int) -> TaskEpochs:
    """Return active tasks with their assignment epochs, which coordinators before 4.3 did not write."""
    owned = {}
    for task_ids in tasks:
        epochs = task_ids.assignment_epochs
        if epochs is None or len(epochs) != len(task_ids.partitions):
            epochs = [epoch] * len(task_ids.partitions)
        owned[task_ids.subtopology_id] = dict(sorted(zip(task_ids.partitions, epochs, strict=True)))
    return owned


REPLAY: Final[Mapping[type, Replay]] = {
    stored.StreamsGroupMetadataKey: replay_to(StreamsGroup, _epoch),
    stored.StreamsGroupTopologyKey: replay_to(StreamsGroup, _topology),
    stored.StreamsGroupMemberMetadataKey: replay_to(StreamsGroup, _member),
    stored.StreamsGroupTargetAssignmentMetadataKey: replay_to(StreamsGroup, change_target_epoch),
    stored.StreamsGroupTargetAssignmentMemberKey: replay_to(StreamsGroup, _target),
    stored.StreamsGroupCurrentMemberAssignmentKey: replay_to(StreamsGroup, _current),
}
"""The replay function of each record, by the class of its key."""
