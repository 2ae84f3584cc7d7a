"""SyncGroup, Heartbeat and LeaveGroup: what a member of a classic group does once it has joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_if_all_joined,
    prepare,
    sync_refused,
    synced,
)
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_of, sync_of
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
    """Tell a member its assignment; until the leader has handed it in, the request is parked."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup) or group.is_empty:
        raise UnknownMemberId(f"{request.group_id} has no member {request.member_id}")
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration(f"{group.id} is in generation {group.generation}, not {request.generation_id}")
    if _differs(request.protocol_type, group.type) or _differs(request.protocol_name, group.protocol):
        raise InconsistentGroupProtocol(f"{group.id} runs {group.type} {group.protocol}")
    if group.state is State.PREPARING:
        raise RebalanceInProgress(f"{group.id} prepares generation {group.generation + 1}")
    turn = GroupTransition(state, group, context)
    member = group.members[request.member_id]
    turn.group = replace(group, unsynced=group.unsynced - {member.id})
    if not turn.group.unsynced:
        turn.cancel(sync_of(group.id))
    if group.state is State.STABLE:
        return turn.decision(synced(group, member))
    if member.syncing is not None:
        turn.answers.append((member.syncing, sync_refused(RebalanceInProgress())))
    turn.keep(replace(member, syncing=ticket))
    if group.leader == member.id:
        _assign(turn, {each.member_id: bytes(each.assignment) for each in request.assignments})
    return turn.decision(PARKED)


def _assign(turn: GroupTransition, assignments: dict[str, bytes]) -> None:
    """The leader has decided: write it down, and tell all who asked. Members that it left out get nothing."""
    turn.enter(State.STABLE)
    for member in turn.group.members.values():
        assigned = replace(member, assignment=assignments.get(member.id, b""), syncing=None)
        turn.keep(assigned)
        if member.syncing is not None:
            turn.answers.append((member.syncing, synced(turn.group, assigned)))
            turn.extend_session(member)
    turn.record()


def heartbeat(state: GroupsState, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Keep a member's session alive, and tell it whether it should join again."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        raise UnknownMemberId(f"Group {request.group_id} not found.")
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration(f"{group.id} is in generation {group.generation}, not {request.generation_id}")
    member = group.members[request.member_id]
    until_ms = context.now_ms + member.session_timeout_ms
    code = RebalanceInProgress.code if group.state is State.PREPARING else NONE
    return Decision((), HeartbeatResponse(error_code=code), timers=((session_of(group.id, member.id), until_ms),))


def leave_group(state: GroupsState, request: LeaveGroupRequest, context: Context) -> Decision[LeaveGroupResponse]:
    """Take members out; each is answered for itself."""
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        raise UnknownMemberId(f"Group {request.group_id} not found.")
    turn = GroupTransition(state, group, context)
    answers = []
    for leaving in request.members:
        answer = MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
        try:
            turn.drop(_leaver(turn.group, leaving))
        except ApiError as error:
            answer.error_code = error.code
        answers.append(answer)
    if any(answer.error_code == NONE for answer in answers):
        if turn.group.state in (State.STABLE, State.COMPLETING):
            prepare(turn)
        else:
            complete_if_all_joined(turn)
    return turn.decision(LeaveGroupResponse(members=answers))


def _leaver(group: ClassicGroup, leaving: MemberIdentity) -> str:
    """Who is meant: an operator names a static member by its instance alone."""
    if not leaving.member_id:
        found = None if leaving.group_instance_id is None else group.static_member(leaving.group_instance_id)
        if found is None:
            raise UnknownMemberId(f"{group.id} has no member of instance {leaving.group_instance_id}")
        return found
    if leaving.member_id not in group.pending:
        group.check_member(leaving.member_id, leaving.group_instance_id)
    return leaving.member_id


def _differs(asked: str | None, known: str | None) -> bool:
    """Whether a member speaks of another protocol; older ones speak of none."""
    return asked is not None and known is not None and asked != known
