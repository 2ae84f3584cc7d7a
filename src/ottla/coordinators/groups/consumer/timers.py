"""The timers of consumer groups: sessions, revocation of partitions, and the rejoin and sync of classic members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordinators.groups.consumer import regexes
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import fence_members
from ottla.coordinators.groups.consumer.member import MemberState
from ottla.coordinators.groups.consumer.settings import session_timeout_ms
from ottla.coordinators.groups.consumer.timer_keys import REBALANCE, REJOIN, SYNC_MEMBER, Timers, rebalance_timer
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey, session_timer
from ottla.storage.state_machine.decision import Decision


def expire_member(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Fence a member whose timer expired, unless it has done what the timer waited for."""
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup) or key.member not in group.members:
        return Decision((), None)
    member = group.members[key.member]
    if key.kind == REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return Decision((), None)
    if key.kind == REJOIN and key.member not in group.rejoin_deadlines:
        return Decision((), None)
    return fence_members(state, group, [member], None, context)


def timers_on_loaded(state: GroupsState, context: Context) -> Timers:
    """Return the timers of all loaded groups: every member gets its full time again."""
    timers: Timers = []
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        session_ends = context.now_ms + session_timeout_ms(group.id, context)
        for member in group.members.values():
            timers.append((session_timer(group.id, member.id), session_ends))
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timers.append((rebalance_timer(group.id, member.id), context.now_ms + member.rebalance_timeout_ms))
    return timers


EXPIRE_BY_TIMER: Final[Mapping[str, Callable[[GroupsState, TimerKey, Context], Decision[None]]]] = dict.fromkeys(
    (REBALANCE, REJOIN, SYNC_MEMBER), expire_member
) | {regexes.RESOLVE_REGEXES: regexes.continue_resolution}
"""The rules for timers that only consumer groups have. `behaviour` dispatches session timeouts by the kind of group."""
