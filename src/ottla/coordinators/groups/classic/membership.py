"""SyncGroup, Heartbeat and LeaveGroup: the requests of a member that has joined a classic group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_join_if_ready,
    prepare_rebalance,
    sync_error,
    sync_response,
)
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_timer, sync_timer
from ottla.protocol.errors import (
    NONE,
    ApiError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.rpc.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest
from ottla.storage.state_machine.decision import PARKED, Decision, Ticket


def sync_group(state: GroupsState, request: SyncGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Answer a member with its assignment; park the request until the leader has sent the assignments."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup) or group.is_empty:
        raise UnknownMemberId(f"group {request.group_id} has no member {request.member_id}")
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration(f"group {group.id} is in generation {group.generation}, not {request.generation_id}")
    if _differs(request.protocol_type, group.type) or _differs(request.protocol_name, group.protocol):
        raise InconsistentGroupProtocol(f"group {group.id} uses protocol {group.protocol} of type {group.type}")
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress(f"group {group.id} prepares generation {group.generation + 1}")
    transition = GroupTransition(state, group, context)
    member = group.members[request.member_id]
    transition.group = replace(group, pending_sync_members=group.pending_sync_members - {member.id})
    if not transition.group.pending_sync_members:
        transition.cancel_timer(sync_timer(group.id))
    if group.state is ClassicGroupState.STABLE:
        return transition.to_decision(sync_response(group, member))
    if member.sync_ticket is not None:
        transition.answers.append((member.sync_ticket, sync_error(RebalanceInProgress())))
    transition.put_member(replace(member, sync_ticket=ticket))
    if group.leader == member.id:
        _complete_sync(transition, {item.member_id: bytes(item.assignment) for item in request.assignments})
    return transition.to_decision(PARKED)


def _complete_sync(transition: GroupTransition, assignments: dict[str, bytes]) -> None:
    """Record the leader's assignments and answer the waiting members. Members that the leader left out get none."""
    transition.transition_to(ClassicGroupState.STABLE)
    for member in transition.group.members.values():
        updated = replace(member, assignment=assignments.get(member.id, b""), sync_ticket=None)
        transition.put_member(updated)
        if member.sync_ticket is not None:
            transition.answers.append((member.sync_ticket, sync_response(transition.group, updated)))
            transition.extend_session(member)
    transition.append_group_record()


def heartbeat(state: GroupsState, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Extend a member's session; the response says whether it must join again."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        raise UnknownMemberId(f"Group {request.group_id} not found.")
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration(f"group {group.id} is in generation {group.generation}, not {request.generation_id}")
    member = group.members[request.member_id]
    until_ms = context.now_ms + member.session_timeout_ms
    code = RebalanceInProgress.code if group.state is ClassicGroupState.PREPARING_REBALANCE else NONE
    return Decision((), HeartbeatResponse(error_code=code), timers=((session_timer(group.id, member.id), until_ms),))


def leave_group(state: GroupsState, request: LeaveGroupRequest, context: Context) -> Decision[LeaveGroupResponse]:
    """Remove members; the response has an error code for each."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        raise UnknownMemberId(f"Group {request.group_id} not found.")
    transition = GroupTransition(state, group, context)
    answers = []
    for leaving in request.members:
        answer = MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
        try:
            transition.remove_member(_leaving_member_id(transition.group, leaving))
        except ApiError as error:
            answer.error_code = error.code
        answers.append(answer)
    if any(answer.error_code == NONE for answer in answers):
        if transition.group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            prepare_rebalance(transition)
        else:
            complete_join_if_ready(transition)
    return transition.to_decision(LeaveGroupResponse(members=answers))


def _leaving_member_id(group: ClassicGroup, leaving: MemberIdentity) -> str:
    """Return the member that leaves: administrators name a static member by its instance id alone."""
    if not leaving.member_id:
        holder_id = None if leaving.group_instance_id is None else group.static_member_id(leaving.group_instance_id)
        if holder_id is None:
            raise UnknownMemberId(f"group {group.id} has no member with instance id {leaving.group_instance_id}")
        return holder_id
    if leaving.member_id not in group.pending_join_members:
        group.check_member(leaving.member_id, leaving.group_instance_id)
    return leaving.member_id


def _differs(requested: str | None, current: str | None) -> bool:
    """Whether a request names another protocol than the group's; requests before v5 name none."""
    return requested is not None and current is not None and requested != current
