"""The keys of the timers of streams groups."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.timers import TimerKey, session_timer

REBALANCE: Final = "give up tasks"
INITIAL_DELAY: Final = "make a first target"

Timers = list[tuple[TimerKey, int | None]]


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key for the time in which a member must revoke tasks."""
    return TimerKey(REBALANCE, group_id, member_id)


def initial_delay_timer(group_id: str) -> TimerKey:
    """Return the key for the initial delay of a group."""
    return TimerKey(INITIAL_DELAY, group_id)


def cancelled_timers(group_id: str, member_id: str) -> Timers:
    """Cancel all timers of a member."""
    return [(session_timer(group_id, member_id), None), (rebalance_timer(group_id, member_id), None)]
