"""The settings in force for one group: its own within the broker's bounds, or else the broker's."""

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
    """After how long a silent member is fenced."""
    return group_setting(context, "consumer", group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """How often members are asked to speak."""
    return group_setting(context, "consumer", group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """How long a target lasts at least, so that many members who come at once cost one new target."""
    return group_setting(context, "consumer", group_id, "assignment.interval.ms")


def built_in_assignor(name: str) -> str | None:
    """The assignor of the coordinator's own that a setting names, by its name or Kafka's class; None for others."""
    found = _CLASSES.get(name, name)
    return found if found in _CLASSES.values() else None


def available_assignors(context: Context) -> dict[str, str | Assignor]:
    """The assignors that members may ask for, by name, the first for those who do not: names stand for our own."""
    found: dict[str, str | Assignor] = {}
    for each in context.settings(ASSIGNORS):
        brought = context.assignors.get(each)
        if brought is not None:
            found[brought.name] = brought
        elif (own := built_in_assignor(str(each))) is not None:
            found[own] = own
    return found or {"uniform": "uniform"}


def choose_assignor(preferred: str | None, context: Context) -> str:
    """The name of the assignor in force: what the members prefer, unless the operator has taken it away since."""
    known = available_assignors(context)
    return preferred if preferred in known else next(iter(known))


def may_upgrade(context: Context) -> bool:
    """Whether a classic group may become a consumer group while it is in use."""
    return _policy(context) in ("UPGRADE", "BIDIRECTIONAL")


def may_downgrade(context: Context) -> bool:
    """Whether a consumer group may become a classic group while it is in use."""
    return _policy(context) in ("DOWNGRADE", "BIDIRECTIONAL")


def allows_mixed_members(context: Context) -> bool:
    """Whether members of both protocols may be in one group."""
    return _policy(context) != "DISABLED"


def _policy(context: Context) -> str:
    return str(context.settings(MIGRATION_POLICY)).upper()
