"""The settings of a group's share partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.coordinators.share.partition import ShareLimits
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType

Settings = Callable[[str], Any]
_READ_COMMITTED: Final = "read_committed"
_duration = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
).fullmatch
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class StartOffsetPolicy(NamedTuple):
    """Where a group begins to read a partition (share.auto.offset.reset)."""

    is_latest: bool
    back_ms: int | None = None
    """The age of the first record to read; None for the start or the end of the log."""


def share_limits(image: Image, settings: Settings, group_id: str) -> ShareLimits:
    """Return the limits of a group: its own values within the broker's bounds, or the broker's."""
    own = image.config(ResourceType.GROUP, group_id)

    def number(name: str) -> int:
        value = own.get(f"share.{name}")
        if value is None:
            return int(settings(f"group.share.{name}"))
        # The bounds may have changed after the value was set.
        return max(int(settings(f"group.share.min.{name}")), min(int(value), int(settings(f"group.share.max.{name}"))))

    return ShareLimits(
        max_locks=number("partition.max.record.locks"),
        max_deliveries=number("delivery.count.limit"),
        lock_ms=number("record.lock.duration.ms"),
        may_renew=own.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
    )


def reads_committed(image: Image, group_id: str) -> bool:
    """Whether members get only records of committed transactions."""
    level = image.config(ResourceType.GROUP, group_id).get("share.isolation.level", "")
    return level.strip().lower() == _READ_COMMITTED


def start_offset_policy(image: Image, group_id: str) -> StartOffsetPolicy:
    """Return where a group begins to read."""
    name = image.config(ResourceType.GROUP, group_id).get("share.auto.offset.reset", "latest").strip().lower()
    if name == "earliest":
        return StartOffsetPolicy(is_latest=False)
    _, _, duration = name.partition(":")
    return (
        StartOffsetPolicy(is_latest=False, back_ms=parse_duration_ms(duration))
        if duration
        else StartOffsetPolicy(is_latest=True)
    )


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration as Java does (PnDTnHnMn.nS)."""
    match = _duration(text)
    if match is None:
        raise ValueError(f"{text!r} is not an ISO 8601 duration")
    total = sum(float((match[unit] or "0").replace(",", ".")) * ms for unit, ms in _MS.items())
    return int(-total if match["sign"] == "-" else total)
