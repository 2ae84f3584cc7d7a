"""Prints tables, sizes and times for people, JSON for programs, and progress on a terminal."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def print_json(value: Any) -> None:
    """Print one JSON document."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns with titles; columns of numbers are aligned right."""
    cells = [[show(cell) for cell in row] for row in rows]
    numeric = [_are_numbers([row[column] for row in cells]) for column in range(len(titles))]
    widths = [max(len(row[column]) for row in ([*titles], *cells)) for column in range(len(titles))]
    for row in ([*titles], *cells):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(padded).rstrip())


def show(cell: object) -> str:
    """Return the text of a table cell: a dash for an empty value, commas between the items of a list."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, tuple | list):
        return ",".join(map(str, cell)) or "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 partition`, `3 partitions`."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def show_bytes(size: int) -> str:
    """Return a size with its unit; a negative size is unknown."""
    if size < 0:
        return "-"
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def show_time(timestamp_ms: int) -> str:
    """Return a record's timestamp in UTC; a negative timestamp is unknown."""
    if timestamp_ms < 0:
        return "-"
    try:
        parts = time.gmtime(timestamp_ms // 1000)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return time.strftime("%Y-%m-%dT%H:%M:%S", parts) + f".{timestamp_ms % 1000:03d}Z"


def show_id(id_: bytes) -> str:
    """Return an id as Kafka's tools show it: 22 characters of URL-safe base64."""
    import base64

    return base64.urlsafe_b64encode(id_).decode().rstrip("=")


class Progress:
    """A line on the terminal that counts; silent if standard error is not a terminal."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._is_shown = sys.stderr.isatty()
        self._started_s = self._last_s = time.monotonic()
        self._was_shown = False

    def update(self, count: int) -> None:
        if not self._is_shown or (now_s := time.monotonic()) - self._last_s < 0.2:
            return
        self._last_s, self._was_shown = now_s, True
        rate = count / max(now_s - self._started_s, 0.001)
        print(f"\r\x1b[K{counted(count, self._noun)}, {rate:,.0f} a second", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._was_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _are_numbers(cells: Sequence[str]) -> bool:
    values = [cell for cell in cells if cell != "-"]
    return bool(values) and all(cell.removeprefix("-").isdecimal() for cell in values)
