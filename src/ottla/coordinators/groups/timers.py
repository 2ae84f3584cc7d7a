"""The times that decisions about groups set: each under a key that says what is due, and for whom."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Due(StrEnum):
    """What is due."""

    SESSION = "session"
    """A member was not heard of for too long, or has not come back with the id it was given."""
    JOIN = "join"
    """Members had long enough to join a classic group's next generation."""
    SYNC = "sync"
    """Members had long enough to ask for their assignment."""
    OFFSET_EXPIRY = "offset expiry"
    """It is time to look for offsets that nobody needs any more."""


class TimerKey(NamedTuple):
    """Of one timer; kinds of groups that need others give them names of their own."""

    due: str
    group: str = ""
    member: str = ""


def session_of(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(Due.SESSION, group_id, member_id)


def join_of(group_id: str) -> TimerKey:
    return TimerKey(Due.JOIN, group_id)


def sync_of(group_id: str) -> TimerKey:
    return TimerKey(Due.SYNC, group_id)


OFFSET_EXPIRY = TimerKey(Due.OFFSET_EXPIRY)
