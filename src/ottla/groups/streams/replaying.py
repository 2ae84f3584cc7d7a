"""What the records of streams groups do to the state: the same for who wrote them and for one that loads.

Deletions may name what is not there any more: compaction keeps them longer than what they delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.groups.replayed import known_group, new_or_known, with_target_epoch, without_member, without_target
from ottla.groups.state import GroupsState
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.member import LEAVING, Endpoint, Member, MemberState
from ottla.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, TaskEpochs, TaskIds, Tasks
from ottla.groups.streams.topology import topology_of
from ottla.messages import streams_group_records as stored
from ottla.messages.streams_group_records import StreamsGroupCurrentMemberAssignmentTaskIds as CurrentTaskIds
from ottla.replicated.entries import Stored

Replay = Callable[[GroupsState, Stored, int], GroupsState]


def replay_epoch(
    state: GroupsState, key: stored.StreamsGroupMetadataKey, value: stored.StreamsGroupMetadataValue | None
) -> GroupsState:
    """A group's epoch; its deletion is the end of the group."""
    if value is None:
        return state if known_group(state, key.group_id, StreamsGroup) is None else state.without_group(key.group_id)
    group = replace(
        new_or_known(state, key.group_id, StreamsGroup),
        epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_epoch=value.validated_topology_epoch,
        settings={each.key: each.value for each in value.last_assignment_configs or ()},
    )
    return state.with_group(group)


def replay_topology(
    state: GroupsState, key: stored.StreamsGroupTopologyKey, value: stored.StreamsGroupTopologyValue | None
) -> GroupsState:
    """The topology; it is deleted after the group."""
    if value is None:
        group = known_group(state, key.group_id, StreamsGroup)
        return state if group is None else state.with_group(replace(group, topology=None))
    return state.with_group(replace(new_or_known(state, key.group_id, StreamsGroup), topology=topology_of(value)))


def replay_member(
    state: GroupsState, key: stored.StreamsGroupMemberMetadataKey, value: stored.StreamsGroupMemberMetadataValue | None
) -> GroupsState:
    """Who a member is; its deletion is the last of three."""
    if value is None:
        return without_member(state, key.group_id, key.member_id, StreamsGroup)
    group = new_or_known(state, key.group_id, StreamsGroup)
    endpoint = value.user_endpoint
    member = replace(
        group.members.get(key.member_id) or Member(id=key.member_id),
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
    return state.with_group(group.with_member(member))


def replay_target_epoch(
    state: GroupsState,
    key: stored.StreamsGroupTargetAssignmentMetadataKey,
    value: stored.StreamsGroupTargetAssignmentMetadataValue | None,
) -> GroupsState:
    """For which epoch the target was made."""
    return with_target_epoch(state, key.group_id, value, StreamsGroup)


def replay_target(
    state: GroupsState,
    key: stored.StreamsGroupTargetAssignmentMemberKey,
    value: stored.StreamsGroupTargetAssignmentMemberValue | None,
) -> GroupsState:
    """What a member should run."""
    if value is None:
        return without_target(state, key.group_id, key.member_id, StreamsGroup)
    group = new_or_known(state, key.group_id, StreamsGroup)
    target = Tasks(_task_ids(value.active_tasks), _task_ids(value.standby_tasks), _task_ids(value.warmup_tasks))
    return state.with_group(group.with_target(key.member_id, target))


def replay_current(
    state: GroupsState,
    key: stored.StreamsGroupCurrentMemberAssignmentKey,
    value: stored.StreamsGroupCurrentMemberAssignmentValue | None,
) -> GroupsState:
    """What a member runs; its deletion says that the member runs nothing more and leaves."""
    if value is None:
        group = known_group(state, key.group_id, StreamsGroup)
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
    group = new_or_known(state, key.group_id, StreamsGroup)
    epoch = value.member_epoch
    member = replace(
        group.members.get(key.member_id) or Member(id=key.member_id),
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=OwnedTasks(
            _task_epochs(value.active_tasks, epoch), _task_ids(value.standby_tasks), _task_ids(value.warmup_tasks)
        ),
        revoking=OwnedTasks(
            _task_epochs(value.active_tasks_pending_revocation, epoch),
            _task_ids(value.standby_tasks_pending_revocation),
            _task_ids(value.warmup_tasks_pending_revocation),
        ),
    )
    return state.with_group(group.with_member(member))


def _task_ids(tasks: list[stored.TaskIds] | list[CurrentTaskIds]) -> TaskIds:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in tasks}


def _task_epochs(tasks: list[CurrentTaskIds], epoch: int) -> TaskEpochs:
    """Active tasks with the epochs since which they are owned; coordinators before 4.3 did not write these."""
    owned = {}
    for each in tasks:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [epoch] * len(each.partitions)
        owned[each.subtopology_id] = dict(sorted(zip(each.partitions, epochs, strict=True)))
    return owned


def _of_entry(replay: Callable[[GroupsState, Any, Any], GroupsState]) -> Replay:
    return lambda state, entry, now_ms: replay(state, entry.key, entry.value)


REPLAY: Final[Mapping[type, Replay]] = {
    stored.StreamsGroupMetadataKey: _of_entry(replay_epoch),
    stored.StreamsGroupTopologyKey: _of_entry(replay_topology),
    stored.StreamsGroupMemberMetadataKey: _of_entry(replay_member),
    stored.StreamsGroupTargetAssignmentMetadataKey: _of_entry(replay_target_epoch),
    stored.StreamsGroupTargetAssignmentMemberKey: _of_entry(replay_target),
    stored.StreamsGroupCurrentMemberAssignmentKey: _of_entry(replay_current),
}
"""What a record does to the state, by the class of its key."""
