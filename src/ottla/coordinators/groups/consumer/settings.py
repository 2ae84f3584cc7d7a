"""The settings of consumer groups."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.consumer.assignor import Assignor
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.group_settings import group_setting

MAX_SIZE: Final = "group.consumer.max.size"
CLASSIC_MAX_SIZE: Final = "group.max.size"
ASSIGNORS: Final = "group.consumer.assignors"
MIGRATION_POLICY: Final = "group.consumer.migration.policy"

_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def session_timeout_ms(group_id: str, context: Context) -> int:
    """Return the time after which a silent member is fenced."""
    return group_setting(context, "consumer", group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """Return the heartbeat interval of members."""
    return group_setting(context, "consumer", group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """Return the minimum lifetime of a target, so that many members that join at once cause one new target."""
    return group_setting(context, "consumer", group_id, "assignment.interval.ms")


def built_in_assignor(name: str) -> str | None:
    """Return the built-in assignor that a setting names, by name or by Kafka's class; None for others."""
    assignor = _CLASSES.get(name, name)
    return assignor if assignor in _CLASSES.values() else None


def available_assignors(context: Context) -> dict[str, str | Assignor]:
    """Return the assignors that members may request, by name; a built-in one is its name. The first is the default."""
    by_name: dict[str, str | Assignor] = {}
    for entry in context.settings(ASSIGNORS):
        plugin = context.assignors.get(entry)
        if plugin is not None:
            by_name[plugin.name] = plugin
        elif (built_in := built_in_assignor(str(entry))) is not None:
            by_name[built_in] = built_in
    return by_name or {"uniform": "uniform"}


def choose_assignor(preferred: str | None, context: Context) -> str:
    """Return the preferred assignor of the members, or the default if it is no longer configured."""
    available = available_assignors(context)
    return preferred if preferred in available else next(iter(available))


def may_upgrade(context: Context) -> bool:
    """Whether a classic group with members may become a consumer group."""
    return _policy(context) in ("UPGRADE", "BIDIRECTIONAL")


def may_downgrade(context: Context) -> bool:
    """Whether a consumer group with members may become a classic group."""
    return _policy(context) in ("DOWNGRADE", "BIDIRECTIONAL")


def allows_mixed_members(context: Context) -> bool:
    """Whether members of both protocols may be in one group."""
    return _policy(context) != "DISABLED"


def _policy(context: Context) -> str:
    return str(context.settings(MIGRATION_POLICY)).upper()
