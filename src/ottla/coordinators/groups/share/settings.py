"""The settings of share groups."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.group_settings import group_setting

MAX_SIZE: Final = "group.share.max.size"
RETRY_INTERVAL: Final = "group.share.initialize.retry.interval.ms"


def session_timeout_ms(group_id: str, context: Context) -> int:
    """Return the time after which a silent member is fenced."""
    return group_setting(context, "share", group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """Return the heartbeat interval of members."""
    return group_setting(context, "share", group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """Return the minimum lifetime of a target."""
    return group_setting(context, "share", group_id, "assignment.interval.ms")
