"""The settings of streams groups."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.group_settings import group_setting
from ottla.metadata.image.values import ResourceType

MAX_SIZE: Final = "group.streams.max.size"
STANDBYS: Final = "num.standby.replicas"
"""The key of the number of standby replicas in the group epoch's record."""


def session_timeout_ms(group_id: str, context: Context) -> int:
    """Return the time after which a silent member is fenced."""
    return group_setting(context, "streams", group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """Return the heartbeat interval of members."""
    return group_setting(context, "streams", group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """Return the minimum lifetime of a target."""
    return group_setting(context, "streams", group_id, "assignment.interval.ms")


def initial_delay_ms(group_id: str, context: Context) -> int:
    """Return how long the first target of a group waits for more members."""
    own = _own("initial.rebalance.delay.ms", group_id, context)
    return int(context.settings("group.streams.initial.rebalance.delay.ms") if own is None else own)


def assignment_settings(group_id: str, context: Context) -> dict[str, str]:
    """Return the settings that the target depends on."""
    own = _own(STANDBYS, group_id, context)
    if own is None:
        return {STANDBYS: str(context.settings("group.streams.num.standby.replicas"))}
    return {STANDBYS: str(min(int(own), int(context.settings("group.streams.max.standby.replicas"))))}


def _own(name: str, group_id: str, context: Context) -> str | None:
    return context.image.config(ResourceType.GROUP, group_id).get(f"streams.{name}")
