"""The keys of the timers that only consumer groups have."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.timers import TimerKey, session_of

REBALANCE: Final = "give up partitions"
REJOIN: Final = "join again"
SYNC_MEMBER: Final = "fetch the assignment"

Timers = list[tuple[TimerKey, int | None]]


def rebalance_of(group_id: str, member_id: str) -> TimerKey:
    """A member must give up the partitions that it was told to."""
    return TimerKey(REBALANCE, group_id, member_id)


def rejoin_of(group_id: str, member_id: str) -> TimerKey:
    """A classic member must join again."""
    return TimerKey(REJOIN, group_id, member_id)


def sync_of(group_id: str, member_id: str) -> TimerKey:
    """A classic member that joined must ask for its assignment."""
    return TimerKey(SYNC_MEMBER, group_id, member_id)


def all_cancelled(group_id: str, member_id: str) -> Timers:
    """None of a member's timers any more."""
    return [
        (session_of(group_id, member_id), None),
        (rebalance_of(group_id, member_id), None),
        (rejoin_of(group_id, member_id), None),
        (sync_of(group_id, member_id), None),
    ]
