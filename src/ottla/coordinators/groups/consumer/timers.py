"""What members must do in time: speak, give up partitions, and if they are classic join again and sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordinators.groups.consumer import regexes
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import fence
from ottla.coordinators.groups.consumer.member import MemberState
from ottla.coordinators.groups.consumer.settings import session_timeout_ms
from ottla.coordinators.groups.consumer.timer_keys import REBALANCE, REJOIN, SYNC_MEMBER, Timers, rebalance_of
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey, session_of
from ottla.storage.state_machine.decision import Decision


def expired(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """A member had long enough: fence it, unless it has done meanwhile what it should."""
    if key.due == regexes.MATCH:
        return regexes.go_on(state, key, context)
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup) or key.member not in group.members:
        return Decision((), None)
    member = group.members[key.member]
    if key.due == REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return Decision((), None)
    if key.due == REJOIN and key.member not in group.rejoining:
        return Decision((), None)
    return fence(state, group, [member], None, context)


def take_over(state: GroupsState, context: Context) -> Timers:
    """The timers of all groups that were just loaded: everyone has all its time again."""
    timers: Timers = []
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        session_ends = context.now_ms + session_timeout_ms(group.id, context)
        for member in group.members.values():
            timers.append((session_of(group.id, member.id), session_ends))
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timers.append((rebalance_of(group.id, member.id), context.now_ms + member.rebalance_timeout_ms))
    return timers


EXPIRED: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[None]]]] = dict.fromkeys(
    (REBALANCE, REJOIN, SYNC_MEMBER, regexes.MATCH), expired
)
"""The timers that only consumer groups have. That of a session may be a classic group's: the group decides."""
