"""JoinGroup: a member joins the next generation of a classic group.

Up to v3 the coordinator admits a new member at once. From v4 on the member first gets an id and joins again with it
(KIP-394), so that a client that gives up in between leaves only an id behind, which expires. A static member keeps its
place under its group.instance.id: a JoinGroup without a member id takes it over from the previous holder (KIP-345).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupMember, ClassicGroupState, ClassicProtocol
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_join_if_ready,
    join_response,
    prepare_rebalance,
    rebalance_or_complete_join,
    sync_error,
)
from ottla.coordinators.groups.classic.records import record_new_group
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_timer
from ottla.protocol.errors import (
    ApiError,
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.storage.state_machine.decision import PARKED, Decision, Parked, Ticket

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long the request of a new member waits for a slow rebalance: its client has given up by then."""
_FIRST_REQUIRING_MEMBER_ID: Final = 4
_FIRST_WITH_SKIP_ASSIGNMENT: Final = 9

Reply = JoinGroupResponse | Parked


def check_join(request: JoinGroupRequest, context: Context) -> None:
    """Raise if the request is invalid for any group."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    shortest, longest = (context.settings(f"group.{name}.session.timeout.ms") for name in ("min", "max"))
    if not shortest <= request.session_timeout_ms <= longest:
        raise InvalidSessionTimeout(
            f"the session timeout of {request.session_timeout_ms} ms is not between {shortest} and {longest} ms"
        )


def join_group(state: GroupsState, request: JoinGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Let a member join. The request is parked until the next generation begins, unless it can be answered at once."""
    group = state.groups.get(request.group_id)
    is_new_group = group is None
    if group is None:
        if request.member_id:
            return Decision((), join_error(UnknownMemberId(), request.member_id))
        group = ClassicGroup(request.group_id, state_since_ms=context.now_ms)
    elif not isinstance(group, ClassicGroup):
        return Decision((), join_error(InconsistentGroupProtocol()))
    transition = GroupTransition(state, group, context)
    reply = _join(transition, request, ticket)
    if is_new_group and not transition.records:
        transition.group, record = record_new_group(transition.group)
        transition.records.append(record)
    return transition.to_decision(reply)


def join_error(error: ApiError, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a member that cannot join."""
    return JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)


def _join(transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket) -> Reply:
    group, member_id = transition.group, request.member_id
    if not _has_room(transition, member_id):
        transition.group = group.without_member(member_id)
        return join_error(GroupMaxSizeReached())
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return join_error(InconsistentGroupProtocol(), member_id)
    if not member_id:
        return _join_new_member(transition, request, ticket)
    if member_id in group.pending_join_members:
        return _add_member(transition, request, ticket, member_id)
    try:
        group.check_member(member_id, request.group_instance_id)
    except ApiError as error:
        return join_error(error, member_id)
    return _rejoin_member(transition, request, ticket, group.members[member_id])


def _has_room(transition: GroupTransition, member_id: str) -> bool:
    group, largest = transition.group, transition.context.settings("group.max.size")
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_ticket is not None) or group.joining_member_count < largest
    return member is not None or len(group.members) < largest


def _join_new_member(transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket) -> Reply:
    context, instance_id = transition.context, request.group_instance_id
    new_id = f"{context.client_id if instance_id is None else instance_id}-{context.new_id()}"
    if instance_id is not None:
        holder_id = transition.group.static_member_id(instance_id)
        if holder_id is not None:
            return _replace_static_member(transition, request, ticket, transition.group.members[holder_id], new_id)
    elif context.version >= _FIRST_REQUIRING_MEMBER_ID:
        transition.group = replace(
            transition.group, pending_join_members=transition.group.pending_join_members | {new_id}
        )
        transition.schedule(session_timer(transition.group.id, new_id), request.session_timeout_ms)
        return join_error(MemberIdRequired(), new_id)
    return _add_member(transition, request, ticket, new_id)


def _add_member(transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member_id: str) -> Reply:
    group = transition.group
    member = ClassicGroupMember(
        id=member_id,
        instance_id=request.group_instance_id,
        client_id=transition.context.client_id,
        client_host=transition.context.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, transition.context),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        join_ticket=ticket,
        is_new=True,
    )
    if group.initial_delay is not None:
        group = replace(group, initial_delay=group.initial_delay._replace(has_new_members=True))
    if not group.members:
        group = replace(group, type=request.protocol_type)
    transition.group = replace(group, leader=group.leader or member_id)
    transition.put_member(member)
    transition.schedule(session_timer(group.id, member_id), NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete_join(transition)
    return PARKED


def _rejoin_member(
    transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member: ClassicGroupMember
) -> Reply:
    """Let a known member join again: for a rebalance, after its subscription changed, or after it missed a response."""
    group = transition.group
    if group.state is ClassicGroupState.EMPTY:
        return join_error(UnknownMemberId(), member.id)
    is_unchanged = member.protocols == _protocols(request)
    if group.state is ClassicGroupState.COMPLETING_REBALANCE and is_unchanged:
        return join_response(group, member.id)
    if group.state is ClassicGroupState.STABLE and is_unchanged and group.leader != member.id:
        return join_response(group, member.id)
    _update_member(transition, request, ticket, member)
    rebalance_or_complete_join(transition)
    return PARKED


def _update_member(
    transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member: ClassicGroupMember
) -> None:
    """Update a member and let it wait for the next generation; fail an earlier request of it that still waits."""
    if member.join_ticket is not None and member.join_ticket is not ticket:
        transition.answers.append((member.join_ticket, join_error(RebalanceInProgress(), member.id)))
    transition.put_member(
        replace(
            member,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, transition.context),
            session_timeout_ms=request.session_timeout_ms,
            protocols=_protocols(request),
            join_ticket=ticket,
        )
    )


def _replace_static_member(
    transition: GroupTransition, request: JoinGroupRequest, ticket: Ticket, old: ClassicGroupMember, new_id: str
) -> Reply:
    """Replace a static member that returned under a new id, and fence the old id. A stable group does not rebalance."""
    if old.join_ticket is not None:
        transition.answers.append((old.join_ticket, join_error(FencedInstanceId(), old.id)))
    if old.sync_ticket is not None:
        transition.answers.append((old.sync_ticket, sync_error(FencedInstanceId())))
    old_leader = transition.group.leader
    transition.cancel_timer(session_timer(transition.group.id, old.id))
    members = {
        new_id if member_id == old.id else member_id: replace(member, id=new_id) if member_id == old.id else member
        for member_id, member in transition.group.members.items()
    }
    transition.group = replace(
        transition.group,
        members=members,
        leader=new_id if old_leader == old.id else old_leader,
        pending_sync_members=transition.group.pending_sync_members - {old.id},
    )
    member = replace(members[new_id], join_ticket=None, sync_ticket=None, is_new=False)
    transition.extend_session(member)
    _update_member(transition, request, ticket, member)
    group = transition.group
    if group.state is ClassicGroupState.STABLE:
        if group.choose_protocol() == group.protocol:
            return _resume_static_member(transition, new_id, old_leader)
        prepare_rebalance(transition)
    elif group.state is ClassicGroupState.COMPLETING_REBALANCE:
        prepare_rebalance(transition)
    else:
        complete_join_if_ready(transition)
    return PARKED


def _resume_static_member(transition: GroupTransition, member_id: str, old_leader: str | None) -> Reply:
    """Let a static member continue in the current generation.

    Up to v8 the response names the old member id as the leader, so that a returning leader computes no assignment; from
    v9 on `skip_assignment` says so (KIP-814).
    """
    transition.put_member(replace(transition.group.members[member_id], join_ticket=None))
    transition.append_group_record()
    group = transition.group
    is_leader = group.leader == member_id
    if transition.context.version >= _FIRST_WITH_SKIP_ASSIGNMENT:
        return join_response(group, member_id, skip_assignment=is_leader)
    answer = join_response(group, member_id)
    answer.leader, answer.members = old_leader or "", []
    return answer


def _rebalance_timeout_ms(request: JoinGroupRequest, context: Context) -> int:
    """Return the rebalance timeout; requests of version 0 have only a session timeout."""
    return request.session_timeout_ms if context.version == 0 else request.rebalance_timeout_ms


def _protocols(request: JoinGroupRequest) -> tuple[ClassicProtocol, ...]:
    return tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
