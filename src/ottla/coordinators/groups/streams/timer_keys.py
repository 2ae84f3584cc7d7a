"""The keys of the timers that only streams groups have."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.timers import TimerKey, session_of

REBALANCE: Final = "give up tasks"
FIRST_TARGET: Final = "make a first target"

Timers = list[tuple[TimerKey, int | None]]


def rebalance_of(group_id: str, member_id: str) -> TimerKey:
    """A member must give up the tasks that it was told to."""
    return TimerKey(REBALANCE, group_id, member_id)


def first_target_of(group_id: str) -> TimerKey:
    """A group has waited long enough for more members."""
    return TimerKey(FIRST_TARGET, group_id)


def all_cancelled(group_id: str, member_id: str) -> Timers:
    """None of a member's timers any more."""
    return [(session_of(group_id, member_id), None), (rebalance_of(group_id, member_id), None)]
