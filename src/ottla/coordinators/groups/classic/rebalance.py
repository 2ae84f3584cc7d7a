"""Rebalances of a classic group, from one generation to the next.

Each step happens within one decision. A `GroupTransition` collects the changed group, its records, the responses to
parked requests and the timers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, TypeVar

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupMember, ClassicGroupState, InitialDelay
from ottla.coordinators.groups.classic.records import record_group
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import join_timer, session_timer, sync_timer
from ottla.protocol.errors import NONE, ApiError, RebalanceInProgress, UnknownMemberId
from ottla.protocol.messages.rpc.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.rpc.sync_group import SyncGroupResponse
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")


class GroupTransition:
    """The changes that one decision makes to one group."""

    def __init__(self, state: GroupsState, group: ClassicGroup, context: Context) -> None:
        self._state = state
        self.group = group
        self.context = context
        self.records: list[Stored] = []
        self.answers: list[tuple[Ticket, Any]] = []
        self.timers: list[tuple[Hashable, int | None]] = []

    def to_decision(self, reply: R) -> Decision[R]:
        """Return the collected changes with the reply to the current request."""
        state = self._state.with_group(self.group)
        return Decision(self.records, reply, state=state, answers=self.answers, timers=self.timers)

    def transition_to(self, state: ClassicGroupState, **changes: Any) -> None:
        """Put the group into a state."""
        self.group = replace(self.group, state=state, state_since_ms=self.context.now_ms, **changes)

    def put_member(self, member: ClassicGroupMember) -> None:
        """Add or replace a member."""
        self.group = self.group.with_member(member)

    def append_group_record(self) -> None:
        """Write the group's record."""
        self.group, record = record_group(self.group)
        self.records.append(record)

    def schedule(self, key: Hashable, delay_ms: int) -> None:
        """Set a timer."""
        self.timers.append((key, self.context.now_ms + delay_ms))

    def cancel_timer(self, key: Hashable) -> None:
        """Cancel a timer, if it is set."""
        self.timers.append((key, None))

    def extend_session(self, member: ClassicGroupMember) -> None:
        """Start a member's session timeout again."""
        self.schedule(session_timer(self.group.id, member.id), member.session_timeout_ms)

    def remove_member(self, member_id: str) -> None:
        """Remove a member. Its parked requests fail with UNKNOWN_MEMBER_ID."""
        member = self.group.members.get(member_id)
        if member is not None:
            if member.join_ticket is not None:
                self.answers.append(
                    (member.join_ticket, JoinGroupResponse(error_code=UnknownMemberId.code, protocol_name=None))
                )
            if member.sync_ticket is not None:
                self.answers.append((member.sync_ticket, sync_error(UnknownMemberId())))
        self.group = self.group.without_member(member_id)
        self.cancel_timer(session_timer(self.group.id, member_id))


def rebalance_or_complete_join(transition: GroupTransition) -> None:
    """Begin a rebalance after a change of members, or complete the current one if all members have joined."""
    if transition.group.state is ClassicGroupState.PREPARING_REBALANCE:
        complete_join_if_ready(transition)
    else:
        prepare_rebalance(transition)


def complete_join_if_ready(transition: GroupTransition) -> None:
    """End the join phase if all members have joined; the first rebalance waits for its delay in any case."""
    group = transition.group
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.initial_delay is None and group.has_all_joined:
        complete_join(transition)


def prepare_rebalance(transition: GroupTransition) -> None:
    """Begin a rebalance: all members must join again."""
    if transition.group.state is ClassicGroupState.COMPLETING_REBALANCE:
        _fail_pending_syncs(transition)
    transition.cancel_timer(sync_timer(transition.group.id))
    if transition.group.state is ClassicGroupState.EMPTY:
        delay_ms = transition.context.settings("group.initial.rebalance.delay.ms")
        remaining_ms = max(transition.group.rebalance_timeout_ms - delay_ms, 0)
        transition.transition_to(
            ClassicGroupState.PREPARING_REBALANCE,
            pending_sync_members=frozenset(),
            initial_delay=InitialDelay(delay_ms, remaining_ms),
        )
        transition.schedule(join_timer(transition.group.id), delay_ms)
        return
    transition.transition_to(
        ClassicGroupState.PREPARING_REBALANCE, pending_sync_members=frozenset(), initial_delay=None
    )
    if transition.group.has_all_joined:
        complete_join(transition)
    else:
        transition.schedule(join_timer(transition.group.id), transition.group.rebalance_timeout_ms)


def complete_initial_join(transition: GroupTransition, initial_delay: InitialDelay) -> None:
    """Extend the initial delay if members joined during it and time is left; complete the join phase otherwise."""
    if not initial_delay.has_new_members or initial_delay.remaining_ms == 0:
        complete_join(transition)
        return
    delay_ms = min(transition.context.settings("group.initial.rebalance.delay.ms"), initial_delay.remaining_ms)
    remaining_ms = max(initial_delay.remaining_ms - initial_delay.delay_ms, 0)
    transition.group = replace(transition.group, initial_delay=InitialDelay(delay_ms, remaining_ms))
    transition.schedule(join_timer(transition.group.id), delay_ms)


def complete_join(transition: GroupTransition) -> None:
    """Begin the next generation. Members that did not join are removed, except static ones, which may return."""
    transition.cancel_timer(join_timer(transition.group.id))
    for member in list(transition.group.members.values()):
        if member.join_ticket is None and member.instance_id is None:
            transition.remove_member(member.id)
    group = transition.group
    if group.members and not _elect_leader(transition):
        transition.schedule(join_timer(group.id), group.rebalance_timeout_ms)  # no member that joined can lead: wait on
        return
    generation = transition.group.generation + 1
    if not group.members:
        transition.transition_to(
            ClassicGroupState.EMPTY,
            generation=generation,
            protocol=None,
            pending_sync_members=frozenset(),
            initial_delay=None,
        )
        transition.group = replace(transition.group, topics=transition.group.subscribed_topics())
        transition.append_group_record()
        return
    protocol = transition.group.choose_protocol()
    members = frozenset(transition.group.members)
    transition.transition_to(
        ClassicGroupState.COMPLETING_REBALANCE,
        generation=generation,
        protocol=protocol,
        pending_sync_members=members,
        initial_delay=None,
    )
    transition.group = replace(transition.group, topics=transition.group.subscribed_topics())
    new_group = transition.group
    for member in new_group.members.values():
        transition.extend_session(member)
        if member.join_ticket is not None:
            transition.answers.append((member.join_ticket, join_response(new_group, member.id)))
        transition.put_member(replace(member, join_ticket=None, is_new=False))
    transition.schedule(sync_timer(new_group.id), new_group.rebalance_timeout_ms)


def expel_member(transition: GroupTransition, member: ClassicGroupMember) -> None:
    """Remove a member whose session timed out: the others rebalance, or no longer wait for it."""
    transition.remove_member(member.id)
    if transition.group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
        prepare_rebalance(transition)
    elif transition.group.state is ClassicGroupState.PREPARING_REBALANCE and transition.group.has_all_joined:
        complete_join(transition)


def join_response(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return the response that announces the generation to a member; the leader's lists all members."""
    members = []
    if group.leader == member_id:
        members = [
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(group.protocol)
            )
            for member in group.members.values()
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


def sync_response(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    """Return the response with a member's assignment."""
    return SyncGroupResponse(
        error_code=NONE, protocol_type=group.type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_error(error: ApiError) -> SyncGroupResponse:
    """Return the response to a member that gets no assignment."""
    return SyncGroupResponse(error_code=error.code)


def _fail_pending_syncs(transition: GroupTransition) -> None:
    """Fail the SyncGroup requests that wait, and drop the assignments: another generation follows."""
    for member in transition.group.members.values():
        if member.sync_ticket is not None:
            transition.answers.append((member.sync_ticket, sync_error(RebalanceInProgress())))
            transition.extend_session(member)
        transition.put_member(replace(member, sync_ticket=None, assignment=b""))


def _elect_leader(transition: GroupTransition) -> bool:
    """Make sure that the leader is a member that has joined; return whether there is one."""
    group = transition.group
    if group.leader is None:
        return False
    if group.members[group.leader].join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            transition.group = replace(group, leader=member.id)
            return True
    return False
