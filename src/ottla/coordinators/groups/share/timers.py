"""The timers of share groups: sessions."""

from __future__ import annotations

from typing import Any

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import fence
from ottla.coordinators.groups.share.settings import session_timeout_ms
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey, session_timer
from ottla.storage.state_machine.decision import Decision


def expire_member(group: ShareGroup, key: TimerKey, context: Context) -> Decision[Any]:
    """Fence a member whose session timed out."""
    member = group.members.get(key.member)
    return Decision((), None) if member is None else fence(group, member, None, context)


def timers_on_loaded(state: GroupsState, context: Context) -> list[tuple[TimerKey, int | None]]:
    """Return the session timers of all loaded groups: every member gets its full time again."""
    return [
        (session_timer(group.id, member_id), context.now_ms + session_timeout_ms(group.id, context))
        for group in state.groups.values()
        if isinstance(group, ShareGroup)
        for member_id in group.members
    ]
