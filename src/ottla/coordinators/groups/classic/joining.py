"""JoinGroup: a member wants to be in the next generation of a classic group.

Up to v3 a new member is let in at once. From v4 on it is given an id first, and must come back with it (KIP-394):
clients that give up in between leave nothing behind but a name that expires. A static member keeps its place under
its group.instance.id: who comes without a member id takes it over from whoever had it (KIP-345).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup, Member, Protocol, State
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_if_all_joined,
    joined,
    prepare,
    rebalance_or_complete,
    sync_refused,
)
from ottla.coordinators.groups.classic.records import recorded_as_empty
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_of
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
"""How long a new member's request is kept while a rebalance takes long: its client has given up by then."""
_FIRST_TO_REQUIRE_AN_ID: Final = 4
_FIRST_TO_SKIP_ASSIGNMENT: Final = 9

Reply = JoinGroupResponse | Parked


def check_join(request: JoinGroupRequest, context: Context) -> None:
    """Raise if no group could take the request."""
    if not request.group_id:
        raise InvalidGroupId("a group that has members must have a name")
    shortest, longest = (context.settings(f"group.{name}.session.timeout.ms") for name in ("min", "max"))
    if not shortest <= request.session_timeout_ms <= longest:
        raise InvalidSessionTimeout(f"a session of {request.session_timeout_ms} ms is not from {shortest} to {longest}")


def join_group(state: GroupsState, request: JoinGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Let a member join. Its request is parked until the next generation begins, unless it can be answered now."""
    known = state.groups.get(request.group_id)
    if known is not None and not isinstance(known, ClassicGroup):
        return Decision((), refused(InconsistentGroupProtocol()))
    if known is None and request.member_id:
        return Decision((), refused(UnknownMemberId(), request.member_id))
    group = known or ClassicGroup(request.group_id, state_since_ms=context.now_ms)
    turn = GroupTransition(state, group, context)
    reply = _join(turn, request, ticket)
    if known is None and not turn.records:
        turn.group, record = recorded_as_empty(turn.group)
        turn.records.append(record)
    return turn.decision(reply)


def refused(error: ApiError, member_id: str = "") -> JoinGroupResponse:
    """The answer to a member that cannot join."""
    return JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)


def _join(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket) -> Reply:
    group, member_id = turn.group, request.member_id
    if not _has_room(turn, member_id):
        turn.group = group.without_member(member_id)
        return refused(GroupMaxSizeReached())
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return refused(InconsistentGroupProtocol(), member_id)
    if not member_id:
        return _join_new(turn, request, ticket)
    if member_id in group.pending:
        return _add(turn, request, ticket, member_id)
    try:
        group.check_member(member_id, request.group_instance_id)
    except ApiError as error:
        return refused(error, member_id)
    return _rejoin(turn, request, ticket, group.members[member_id])


def _has_room(turn: GroupTransition, member_id: str) -> bool:
    group, largest = turn.group, turn.context.settings("group.max.size")
    member = group.members.get(member_id)
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING:
        return (member is not None and member.joining is not None) or group.waiting_joins < largest
    return member is not None or len(group.members) < largest


def _join_new(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket) -> Reply:
    context, instance_id = turn.context, request.group_instance_id
    new_id = f"{context.client_id if instance_id is None else instance_id}-{context.new_id()}"
    if instance_id is not None:
        existing = turn.group.static_member(instance_id)
        if existing is not None:
            return _replace(turn, request, ticket, turn.group.members[existing], new_id)
    elif context.version >= _FIRST_TO_REQUIRE_AN_ID:
        turn.group = replace(turn.group, pending=turn.group.pending | {new_id})
        turn.due_in(session_of(turn.group.id, new_id), request.session_timeout_ms)
        return refused(MemberIdRequired(), new_id)
    return _add(turn, request, ticket, new_id)


def _add(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member_id: str) -> Reply:
    group = turn.group
    member = Member(
        id=member_id,
        instance_id=request.group_instance_id,
        client_id=turn.context.client_id,
        client_host=turn.context.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, turn.context),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        joining=ticket,
        is_new=True,
    )
    if group.initial is not None:
        group = replace(group, initial=group.initial._replace(grew=True))
    if not group.members:
        group = replace(group, type=request.protocol_type)
    turn.group = replace(group, leader=group.leader or member_id)
    turn.keep(member)
    turn.due_in(session_of(group.id, member_id), NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete(turn)
    return PARKED


def _rejoin(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member: Member) -> Reply:
    """A member comes again: it was told to, or its subscription changed, or it missed an answer."""
    group = turn.group
    if group.state is State.EMPTY:
        return refused(UnknownMemberId(), member.id)
    is_unchanged = member.protocols == _protocols(request)
    if group.state is State.COMPLETING and is_unchanged:
        return joined(group, member.id)
    if group.state is State.STABLE and is_unchanged and group.leader != member.id:
        return joined(group, member.id)
    _update(turn, request, ticket, member)
    rebalance_or_complete(turn)
    return PARKED


def _update(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket, member: Member) -> None:
    """Let a member wait for the next generation, as it is now; a request of it that waits already is given up."""
    if member.joining is not None and member.joining is not ticket:
        turn.answers.append((member.joining, refused(RebalanceInProgress(), member.id)))
    turn.keep(
        replace(
            member,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, turn.context),
            session_timeout_ms=request.session_timeout_ms,
            protocols=_protocols(request),
            joining=ticket,
        )
    )


def _replace(turn: GroupTransition, request: JoinGroupRequest, ticket: Ticket, old: Member, new_id: str) -> Reply:
    """A static member has come back under a new id: the old one is fenced. In a stable group nothing else changes."""
    if old.joining is not None:
        turn.answers.append((old.joining, refused(FencedInstanceId(), old.id)))
    if old.syncing is not None:
        turn.answers.append((old.syncing, sync_refused(FencedInstanceId())))
    led = turn.group.leader
    turn.cancel(session_of(turn.group.id, old.id))
    members = {
        new_id if known == old.id else known: replace(member, id=new_id) if known == old.id else member
        for known, member in turn.group.members.items()
    }
    turn.group = replace(
        turn.group,
        members=members,
        leader=new_id if led == old.id else led,
        unsynced=turn.group.unsynced - {old.id},
    )
    member = replace(members[new_id], joining=None, syncing=None, is_new=False)
    turn.extend_session(member)
    _update(turn, request, ticket, member)
    group = turn.group
    if group.state is State.STABLE:
        if group.choose_protocol() == group.protocol:
            return _resume(turn, new_id, led)
        prepare(turn)
    elif group.state is State.COMPLETING:
        prepare(turn)
    else:
        complete_if_all_joined(turn)
    return PARKED


def _resume(turn: GroupTransition, member_id: str, led: str | None) -> Reply:
    """Let a static member go on in the generation that there is.

    Up to v8 a leader is told of the member it was before as the leader, lest it assigns anew; v9 says so (KIP-814).
    """
    turn.keep(replace(turn.group.members[member_id], joining=None))
    turn.record()
    group = turn.group
    is_leader = group.leader == member_id
    if turn.context.version >= _FIRST_TO_SKIP_ASSIGNMENT:
        return joined(group, member_id, skip_assignment=is_leader)
    answer = joined(group, member_id)
    answer.leader, answer.members = led or "", []
    return answer


def _rebalance_timeout_ms(request: JoinGroupRequest, context: Context) -> int:
    """Version 0 has none of its own."""
    return request.session_timeout_ms if context.version == 0 else request.rebalance_timeout_ms


def _protocols(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    return tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
