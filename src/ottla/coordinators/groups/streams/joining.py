"""Lookup of the group and member that a heartbeat comes from, and the update of the member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import JOINING, Endpoint, StreamsGroupMember
from ottla.coordinators.groups.streams.reconciling import Reported
from ottla.coordinators.groups.streams.settings import MAX_SIZE
from ottla.coordinators.groups.streams.tasks import TaskIds, Tasks
from ottla.protocol.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import TaskIds as ReportedTaskIds
from ottla.storage.state_machine.entries import Stored

_UNCHANGED = -1


class GroupLookup(NamedTuple):
    """A group, with the records of its creation."""

    group: StreamsGroup
    records: Sequence[Stored] = ()
    is_existing: bool = True
    """False for a new group: its unrecorded fields cannot be kept before its records are replayed."""


def get_or_create_group(state: GroupsState, group_id: str, context: Context, *, is_joining: bool) -> GroupLookup:
    """Return the group, or a new one for a joining member, which may replace an empty classic group."""
    group = state.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        if is_joining:
            _check_size(group, context)
        return GroupLookup(group)
    if group is None:
        if not is_joining:
            raise GroupIdNotFound(f"Streams group {group_id} not found.")
        return GroupLookup(StreamsGroup(group_id), is_existing=False)
    if is_joining and isinstance(group, ClassicGroup) and group.is_empty:
        return GroupLookup(StreamsGroup(group_id), group.tombstones(), is_existing=False)
    raise GroupIdNotFound(f"Group {group_id} is not a streams group.")


def find_member(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, reported: Reported) -> StreamsGroupMember:
    """Return the member that sent the heartbeat, before the heartbeat is applied."""
    epoch = request.member_epoch
    if epoch == JOINING:
        return group.members.get(request.member_id) or StreamsGroupMember(id=request.member_id)
    member = group.member(request.member_id)
    if epoch == member.epoch:
        return member
    # The response with the new epoch may have been lost.
    is_behind = epoch < member.epoch and epoch == member.previous_epoch
    if is_behind and reported is not None and member.assigned.includes(reported):
        return member
    word = "greater" if epoch > member.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The streams group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def updated_member(
    member: StreamsGroupMember, request: StreamsGroupHeartbeatRequest, context: Context
) -> StreamsGroupMember:
    """Return the member with the fields of the request; fields that the request omits stay."""
    endpoint, tags = request.user_endpoint, request.client_tags
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == _UNCHANGED
        else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=member.endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=member.tags if tags is None else {tag.key: tag.value for tag in tags},
    )


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> Reported:
    """Return the tasks that a member reports to own."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(_tasks(active), _tasks(standby), _tasks(warmup))


def _tasks(reported: Sequence[ReportedTaskIds]) -> TaskIds:
    by_subtopology: dict[str, tuple[int, ...]] = {}
    for task_ids in reported:
        subtopology_id = task_ids.subtopology_id
        by_subtopology[subtopology_id] = (*by_subtopology.get(subtopology_id, ()), *task_ids.partitions)
    return by_subtopology


def _check_size(group: StreamsGroup, context: Context) -> None:
    max_size = context.settings(MAX_SIZE)
    if len(group.members) >= max_size:
        raise GroupMaxSizeReached(f"The streams group has reached its maximum capacity of {max_size} members.")
