"""The keys of the timers of consumer groups."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.timers import TimerKey, session_timer

REBALANCE: Final = "give up partitions"
REJOIN: Final = "join again"
SYNC_MEMBER: Final = "fetch the assignment"

Timers = list[tuple[TimerKey, int | None]]


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key for the time in which a member must revoke partitions."""
    return TimerKey(REBALANCE, group_id, member_id)


def rejoin_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key for the time in which a classic member must join again."""
    return TimerKey(REJOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key for the time in which a classic member must send SyncGroup."""
    return TimerKey(SYNC_MEMBER, group_id, member_id)


def cancelled_timers(group_id: str, member_id: str) -> Timers:
    """Cancel all timers of a member."""
    return [
        (session_timer(group_id, member_id), None),
        (rebalance_timer(group_id, member_id), None),
        (rejoin_timer(group_id, member_id), None),
        (sync_timer(group_id, member_id), None),
    ]
