"""The way of a classic group from one generation to the next.

All of it happens inside one decision: a `GroupTransition` gathers what becomes of the group, which records are written,
who is answered and what is due when.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, TypeVar

from ottla.coordinators.groups.classic.group import ClassicGroup, InitialDelay, Member, State
from ottla.coordinators.groups.classic.records import recorded
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import join_of, session_of, sync_of
from ottla.protocol.errors import NONE, ApiError, RebalanceInProgress, UnknownMemberId
from ottla.protocol.messages.rpc.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.rpc.sync_group import SyncGroupResponse
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")


class GroupTransition:
    """A decision about one group in the making."""

    def __init__(self, state: GroupsState, group: ClassicGroup, context: Context) -> None:
        self._state = state
        self.group = group
        self.context = context
        self.records: list[Stored] = []
        self.answers: list[tuple[Ticket, Any]] = []
        self.timers: list[tuple[Hashable, int | None]] = []

    def decision(self, reply: R) -> Decision[R]:
        """What was gathered, with a reply to the request that is decided on."""
        state = self._state.with_group(self.group)
        return Decision(self.records, reply, state=state, answers=self.answers, timers=self.timers)

    def enter(self, state: State, **changes: Any) -> None:
        """Let the group be in a state from now on."""
        self.group = replace(self.group, state=state, state_since_ms=self.context.now_ms, **changes)

    def keep(self, member: Member) -> None:
        """Replace a member."""
        self.group = self.group.with_member(member)

    def record(self) -> None:
        """Write the group down."""
        self.group, record = recorded(self.group)
        self.records.append(record)

    def due_in(self, key: Hashable, delay_ms: int) -> None:
        self.timers.append((key, self.context.now_ms + delay_ms))

    def cancel(self, key: Hashable) -> None:
        self.timers.append((key, None))

    def extend_session(self, member: Member) -> None:
        """A member has been heard of."""
        self.due_in(session_of(self.group.id, member.id), member.session_timeout_ms)

    def drop(self, member_id: str) -> None:
        """Take a member out. Whoever waits on its behalf is told that it is unknown."""
        member = self.group.members.get(member_id)
        if member is not None:
            if member.joining is not None:
                self.answers.append(
                    (member.joining, JoinGroupResponse(error_code=UnknownMemberId.code, protocol_name=None))
                )
            if member.syncing is not None:
                self.answers.append((member.syncing, sync_refused(UnknownMemberId())))
        self.group = self.group.without_member(member_id)
        self.cancel(session_of(self.group.id, member_id))


def rebalance_or_complete(turn: GroupTransition) -> None:
    """Something about the members changed: begin a rebalance, or see whether the one under way is complete."""
    if turn.group.state is State.PREPARING:
        complete_if_all_joined(turn)
    else:
        prepare(turn)


def complete_if_all_joined(turn: GroupTransition) -> None:
    """End the join phase if nobody is missing; a first rebalance waits for its time all the same."""
    group = turn.group
    if group.state is State.PREPARING and group.initial is None and group.has_all_joined:
        complete_join(turn)


def prepare(turn: GroupTransition) -> None:
    """Begin a rebalance: everyone has to join again."""
    if turn.group.state is State.COMPLETING:
        _refuse_assignments(turn)
    turn.cancel(sync_of(turn.group.id))
    if turn.group.state is State.EMPTY:
        delay_ms = turn.context.settings("group.initial.rebalance.delay.ms")
        remaining_ms = max(turn.group.rebalance_timeout_ms - delay_ms, 0)
        turn.enter(State.PREPARING, unsynced=frozenset(), initial=InitialDelay(delay_ms, remaining_ms))
        turn.due_in(join_of(turn.group.id), delay_ms)
        return
    turn.enter(State.PREPARING, unsynced=frozenset(), initial=None)
    if turn.group.has_all_joined:
        complete_join(turn)
    else:
        turn.due_in(join_of(turn.group.id), turn.group.rebalance_timeout_ms)


def complete_initial_join(turn: GroupTransition, initial: InitialDelay) -> None:
    """The first rebalance has waited: once more if members came meanwhile and there is time left, else it ends."""
    if not initial.grew or initial.remaining_ms == 0:
        complete_join(turn)
        return
    delay_ms = min(turn.context.settings("group.initial.rebalance.delay.ms"), initial.remaining_ms)
    remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
    turn.group = replace(turn.group, initial=InitialDelay(delay_ms, remaining_ms))
    turn.due_in(join_of(turn.group.id), delay_ms)


def complete_join(turn: GroupTransition) -> None:
    """Begin the next generation with all who joined. Static members stay if they did not, for they may come back."""
    turn.cancel(join_of(turn.group.id))
    for member in list(turn.group.members.values()):
        if member.joining is None and member.instance_id is None:
            turn.drop(member.id)
    group = turn.group
    if group.members and not _elect_leader(turn):
        turn.due_in(join_of(group.id), group.rebalance_timeout_ms)  # nobody is there to lead: wait for somebody
        return
    generation = turn.group.generation + 1
    if not group.members:
        turn.enter(State.EMPTY, generation=generation, protocol=None, unsynced=frozenset(), initial=None)
        turn.group = replace(turn.group, topics=turn.group.subscribed_topics())
        turn.record()
        return
    protocol = turn.group.choose_protocol()
    members = frozenset(turn.group.members)
    turn.enter(State.COMPLETING, generation=generation, protocol=protocol, unsynced=members, initial=None)
    turn.group = replace(turn.group, topics=turn.group.subscribed_topics())
    told = turn.group
    for member in told.members.values():
        turn.extend_session(member)
        if member.joining is not None:
            turn.answers.append((member.joining, joined(told, member.id)))
        turn.keep(replace(member, joining=None, is_new=False))
    turn.due_in(sync_of(told.id), told.rebalance_timeout_ms)


def remove_member(turn: GroupTransition, member: Member) -> None:
    """A member is gone: the others rebalance, or need no longer wait for it."""
    turn.drop(member.id)
    if turn.group.state in (State.STABLE, State.COMPLETING):
        prepare(turn)
    elif turn.group.state is State.PREPARING and turn.group.has_all_joined:
        complete_join(turn)


def joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """What a member is told of the generation; the leader is told who is in it."""
    members = []
    if group.leader == member_id:
        members = [
            JoinGroupResponseMember(
                member_id=each.id, group_instance_id=each.instance_id, metadata=each.metadata(group.protocol)
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """A member's part of the assignment."""
    return SyncGroupResponse(
        error_code=NONE, protocol_type=group.type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_refused(error: ApiError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


def _refuse_assignments(turn: GroupTransition) -> None:
    """Whoever waits for an assignment of this generation gets none: there will be another."""
    for member in turn.group.members.values():
        if member.syncing is not None:
            turn.answers.append((member.syncing, sync_refused(RebalanceInProgress())))
            turn.extend_session(member)
        turn.keep(replace(member, syncing=None, assignment=b""))


def _elect_leader(turn: GroupTransition) -> bool:
    """Let somebody lead who has joined; whether there is anybody."""
    group = turn.group
    if group.leader is None:
        return False
    if group.members[group.leader].joining is not None:
        return True
    for member in group.members.values():
        if member.joining is not None:
            turn.group = replace(group, leader=member.id)
            return True
    return False
