"""The timers of classic groups, and what a coordinator does with groups that it loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_initial_join,
    complete_join,
    expel_member,
    prepare_rebalance,
)
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey, TimerKind
from ottla.storage.state_machine.decision import Decision

_NO_CHANGE: Final[Decision[None]] = Decision((), None)


def expire_session(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Remove a member whose session timed out. A member that waits for a response counts as alive, unless it is new."""
    group = state.groups.get(key.group)
    if not isinstance(group, ClassicGroup):
        return _NO_CHANGE
    transition = GroupTransition(state, group, context)
    if key.member in group.pending_join_members:
        transition.group = group.without_member(key.member)
        if transition.group.state is ClassicGroupState.PREPARING_REBALANCE and transition.group.has_all_joined:
            complete_join(transition)
        return transition.to_decision(None)
    member = group.members.get(key.member)
    if member is None or not (member.is_new or (member.join_ticket is None and member.sync_ticket is None)):
        return _NO_CHANGE
    expel_member(transition, member)
    return transition.to_decision(None)


def expire_join(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """End the join phase after the rebalance timeout."""
    group = state.groups.get(key.group)
    if not isinstance(group, ClassicGroup) or group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return _NO_CHANGE
    transition = GroupTransition(state, group, context)
    if group.initial_delay is not None:
        complete_initial_join(transition, group.initial_delay)
    else:
        complete_join(transition)
    return transition.to_decision(None)


def expire_sync(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Remove the members that did not send SyncGroup within the rebalance timeout."""
    group = state.groups.get(key.group)
    if (
        not isinstance(group, ClassicGroup)
        or group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        or not group.pending_sync_members
    ):
        return _NO_CHANGE
    transition = GroupTransition(state, group, context)
    for member_id in sorted(group.pending_sync_members):
        transition.remove_member(member_id)
    prepare_rebalance(transition)
    return transition.to_decision(None)


def on_loaded(state: GroupsState, context: Context) -> Decision[None]:
    """Start the sessions of all loaded members; rebalance groups that exceed `group.max.size`, so that they shrink."""
    timers: list[Any] = []
    max_size = context.settings("group.max.size")
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            transition = GroupTransition(state, group, context)
            for member in group.members.values():
                transition.extend_session(member)
            if len(group.members) > max_size:
                prepare_rebalance(transition)
            timers.extend(transition.timers)
            state = state.with_group(transition.group)
    return Decision((), None, state=state, timers=timers)


EXPIRE_BY_TIMER: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[Any]]]] = {
    TimerKind.SESSION: expire_session,
    TimerKind.JOIN: expire_join,
    TimerKind.SYNC: expire_sync,
}
