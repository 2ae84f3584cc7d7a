"""The settings in force for one share group: its own within the broker's bounds, or else the broker's."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.group_settings import group_setting

MAX_SIZE: Final = "group.share.max.size"
RETRY_INTERVAL: Final = "group.share.initialize.retry.interval.ms"


def session_timeout_ms(group_id: str, context: Context) -> int:
    """After how long a silent member is fenced."""
    return group_setting(context, "share", group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """How often members are asked to speak."""
    return group_setting(context, "share", group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """How long a target lasts at least."""
    return group_setting(context, "share", group_id, "assignment.interval.ms")
