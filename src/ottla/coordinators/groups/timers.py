"""The timers that decisions about groups set, each under a key that names its kind, group and member."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TimerKind(StrEnum):
    """The timers of classic groups, and the one for offsets. Other kinds of groups define more."""

    SESSION = "session"
    """The session of a member, or the time for a pending member to join with its new id."""
    JOIN = "join"
    """The time for members to join the next generation of a classic group."""
    SYNC = "sync"
    """The time for members of a classic group to send SyncGroup."""
    OFFSET_EXPIRY = "offset expiry"
    """The next check for expired offsets."""


class TimerKey(NamedTuple):
    """The key of a timer. Setting a timer under the same key replaces it."""

    kind: str
    group: str = ""
    member: str = ""


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    return TimerKey(TimerKind.JOIN, group_id)


def sync_timer(group_id: str) -> TimerKey:
    return TimerKey(TimerKind.SYNC, group_id)


OFFSET_EXPIRY = TimerKey(TimerKind.OFFSET_EXPIRY)
