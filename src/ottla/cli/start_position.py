"""Parses start positions in a topic: an end, an offset, a time, or a duration before now."""

import re
import time
from typing import TYPE_CHECKING, Final

from ottla.cli.command import InvalidUsage

if TYPE_CHECKING:
    from ottla.client.consumer import FromTimestamp


_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_start(text: str, option: str) -> "int | FromTimestamp":
    """Return an offset, EARLIEST or LATEST (`client/offsets.py`), or a time."""
    from ottla.client.consumer import FromTimestamp
    from ottla.client.offsets import EARLIEST, LATEST

    if text in ("beginning", "earliest"):
        return EARLIEST
    if text in ("end", "latest"):
        return LATEST
    if text.isdecimal():
        return int(text)
    if text.startswith("@") and text[1:].isdecimal():
        return FromTimestamp(int(text[1:]))
    if matched := re.fullmatch(r"(\d+)([smhd])", text):
        return FromTimestamp(time.time_ns() // 1_000_000 - int(matched[1]) * _UNIT_MS[matched[2]])
    return FromTimestamp(_parse_time(text, option))


def _parse_time(text: str, option: str) -> int:
    from datetime import UTC, datetime

    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidUsage(
            f"{option} {text} is invalid: use beginning, end, an offset, a time (2026-01-31T12:00) or a duration (15m)"
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return int(parsed.timestamp() * 1000)
