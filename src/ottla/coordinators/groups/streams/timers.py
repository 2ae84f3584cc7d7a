"""The timers of streams groups: sessions, revocation of tasks, and the delay of the first assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.leaving import fence
from ottla.coordinators.groups.streams.member import MemberState
from ottla.coordinators.groups.streams.settings import assignment_interval_ms, session_timeout_ms
from ottla.coordinators.groups.streams.targets import compute_targets, target_records
from ottla.coordinators.groups.streams.timer_keys import INITIAL_DELAY, REBALANCE, Timers, rebalance_timer
from ottla.coordinators.groups.timers import TimerKey, session_timer
from ottla.storage.state_machine.decision import Decision


def expire_member(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Fence a member whose timer expired, unless it has done what the timer waited for."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup) or key.member not in group.members:
        return Decision((), None)
    member = group.members[key.member]
    if key.kind == REBALANCE and member.state is not MemberState.UNREVOKED_TASKS:
        return Decision((), None)
    return fence(group, member, None)


def end_initial_delay(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """End the initial delay and compute the first target; the next heartbeat does if the topics are not known yet."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup) or not group.is_delayed:
        return Decision((), None)
    after = state.with_group(replace(group, is_delayed=False))
    is_due = group.may_replace_target(assignment_interval_ms(group.id, context), context.now_ms)
    if group.is_empty or group.epoch <= group.target_epoch or not is_due or group.configured is None:
        return Decision((), None, state=after)
    targets = compute_targets(group, group.configured, group.settings, None)
    return Decision(list(target_records(group, targets, group.epoch, context.now_ms)), None, state=after)


def timers_on_loaded(state: GroupsState, context: Context) -> Timers:
    """Return the timers of all loaded groups: every member gets its full time again."""
    timers: Timers = []
    for group in state.groups.values():
        if not isinstance(group, StreamsGroup):
            continue
        session_ends = context.now_ms + session_timeout_ms(group.id, context)
        for member in group.members.values():
            timers.append((session_timer(group.id, member.id), session_ends))
            if member.state is MemberState.UNREVOKED_TASKS:
                timers.append((rebalance_timer(group.id, member.id), context.now_ms + member.rebalance_timeout_ms))
    return timers


EXPIRE_BY_TIMER: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[None]]]] = {
    REBALANCE: expire_member,
    INITIAL_DELAY: end_initial_delay,
}
"""The rules for timers that only streams groups have. `behaviour` dispatches session timeouts by the kind of group."""
