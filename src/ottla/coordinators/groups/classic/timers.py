"""What becomes of classic groups when time has passed, and when another coordinator takes them over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.classic.rebalance import (
    GroupTransition,
    complete_initial_join,
    complete_join,
    prepare,
    remove_member,
)
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import Due, TimerKey
from ottla.storage.state_machine.decision import Decision

_NOTHING: Final[Decision[None]] = Decision((), None)


def expire_session(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """A member was not heard of in time: it is out. One that waits for an answer is known to be there, if not new."""
    group = state.groups.get(key.group)
    if not isinstance(group, ClassicGroup):
        return _NOTHING
    turn = GroupTransition(state, group, context)
    if key.member in group.pending:
        turn.group = group.without_member(key.member)
        if turn.group.state is State.PREPARING and turn.group.has_all_joined:
            complete_join(turn)
        return turn.decision(None)
    member = group.members.get(key.member)
    if member is None or not (member.is_new or (member.joining is None and member.syncing is None)):
        return _NOTHING
    remove_member(turn, member)
    return turn.decision(None)


def expire_join(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Members had long enough to join: the next generation begins with those that did."""
    group = state.groups.get(key.group)
    if not isinstance(group, ClassicGroup) or group.state is not State.PREPARING:
        return _NOTHING
    turn = GroupTransition(state, group, context)
    if group.initial is not None:
        complete_initial_join(turn, group.initial)
    else:
        complete_join(turn)
    return turn.decision(None)


def expire_sync(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Members had long enough to ask for their assignment: those that did not are out."""
    group = state.groups.get(key.group)
    if not isinstance(group, ClassicGroup) or group.state not in (State.COMPLETING, State.STABLE) or not group.unsynced:
        return _NOTHING
    turn = GroupTransition(state, group, context)
    for member_id in sorted(group.unsynced):
        turn.drop(member_id)
    prepare(turn)
    return turn.decision(None)


def take_over(state: GroupsState, context: Context) -> Decision[None]:
    """Give each member that was loaded a session of its own, from now on; too large groups shrink in a rebalance."""
    timers: list[Any] = []
    largest = context.settings("group.max.size")
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            turn = GroupTransition(state, group, context)
            for member in group.members.values():
                turn.extend_session(member)
            if len(group.members) > largest:
                prepare(turn)
            timers.extend(turn.timers)
            state = state.with_group(turn.group)
    return Decision((), None, state=state, timers=timers)


EXPIRED: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[Any]]]] = {
    Due.SESSION: expire_session,
    Due.JOIN: expire_join,
    Due.SYNC: expire_sync,
}
