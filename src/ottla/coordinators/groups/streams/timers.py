"""What members must do in time: speak, and give up tasks; and when a group's first target is made."""

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
from ottla.coordinators.groups.streams.targets import new_targets, target_records
from ottla.coordinators.groups.streams.timer_keys import FIRST_TARGET, REBALANCE, Timers, rebalance_of
from ottla.coordinators.groups.timers import TimerKey, session_of
from ottla.storage.state_machine.decision import Decision


def expired(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """A member had long enough: fence it, unless it has done meanwhile what it should."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup) or key.member not in group.members:
        return Decision((), None)
    member = group.members[key.member]
    if key.due == REBALANCE and member.state is not MemberState.UNREVOKED_TASKS:
        return Decision((), None)
    return fence(group, member, None)


def make_first_target(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """A group has waited long enough for more members. If its topics were not looked at yet, a heartbeat does it."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup) or not group.is_delayed:
        return Decision((), None)
    after = state.with_group(replace(group, is_delayed=False))
    is_due = group.may_replace_target(assignment_interval_ms(group.id, context), context.now_ms)
    if group.is_empty or group.epoch <= group.target_epoch or not is_due or group.configured is None:
        return Decision((), None, state=after)
    targets = new_targets(group, group.configured, group.settings, None)
    return Decision(list(target_records(group, targets, group.epoch, context.now_ms)), None, state=after)


def take_over(state: GroupsState, context: Context) -> Timers:
    """The timers of all groups that were just loaded: everyone has all its time again."""
    timers: Timers = []
    for group in state.groups.values():
        if not isinstance(group, StreamsGroup):
            continue
        session_ends = context.now_ms + session_timeout_ms(group.id, context)
        for member in group.members.values():
            timers.append((session_of(group.id, member.id), session_ends))
            if member.state is MemberState.UNREVOKED_TASKS:
                timers.append((rebalance_of(group.id, member.id), context.now_ms + member.rebalance_timeout_ms))
    return timers


EXPIRED: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[None]]]] = {
    REBALANCE: expired,
    FIRST_TARGET: make_first_target,
}
"""The timers that only streams groups have. That of a session may be another group's: the group decides."""
