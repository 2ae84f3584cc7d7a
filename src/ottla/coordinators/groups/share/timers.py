"""What members of share groups must do in time: speak."""

from __future__ import annotations

from typing import Any

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import fence
from ottla.coordinators.groups.share.settings import session_timeout_ms
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey, session_of
from ottla.storage.state_machine.decision import Decision


def expired(group: ShareGroup, key: TimerKey, context: Context) -> Decision[Any]:
    """A member was silent for too long, if it is still there."""
    member = group.members.get(key.member)
    return Decision((), None) if member is None else fence(group, member, None, context)


def take_over(state: GroupsState, context: Context) -> list[tuple[TimerKey, int | None]]:
    """The timers of all share groups that were just loaded: everyone has all its time again."""
    return [
        (session_of(group.id, member_id), context.now_ms + session_timeout_ms(group.id, context))
        for group in state.groups.values()
        if isinstance(group, ShareGroup)
        for member_id in group.members
    ]
