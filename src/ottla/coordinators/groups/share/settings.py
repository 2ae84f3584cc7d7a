"""The settings in force for one share group: its own within the broker's bounds, or else the broker's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.coordinators.groups.context import Context
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType

MAX_SIZE: Final = "group.share.max.size"
RETRY_INTERVAL: Final = "group.share.initialize.retry.interval.ms"


def session_timeout_ms(group_id: str, context: Context) -> int:
    """After how long a silent member is fenced."""
    return _of(context, group_id, "session.timeout.ms")


def heartbeat_interval_ms(group_id: str, context: Context) -> int:
    """How often members are asked to speak."""
    return _of(context, group_id, "heartbeat.interval.ms")


def assignment_interval_ms(group_id: str, context: Context) -> int:
    """How long a target lasts at least."""
    return _of(context, group_id, "assignment.interval.ms")


def in_force(image: Image, settings: Callable[[str], Any], group_id: str, name: str) -> int:
    """A number that a share group may set for itself, by its name without the prefix."""
    own = image.config(ResourceType.GROUP, group_id).get(f"share.{name}")
    if own is None:
        return int(settings(f"group.share.{name}"))
    # The bounds may have changed since it was set.
    return max(int(settings(f"group.share.min.{name}")), min(int(own), int(settings(f"group.share.max.{name}"))))


def _of(context: Context, group_id: str, name: str) -> int:
    return in_force(context.image, context.settings, group_id, name)
