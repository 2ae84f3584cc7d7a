"""Whether readers of committed records see every row once: what was sent held against what was written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A record of an output, in the order of its partition."""

    key: str
    value: str


def check_rows(sent: Sequence[Row], found: Sequence[Row]) -> list[str]:
    """The same rows, each once, in whatever order."""
    wanted, there = Counter(sent), Counter(found)
    return _told("rows", there - wanted, "too often") + _told("rows", wanted - there, "missing")


def groups_of(sent: Sequence[Row], size: int) -> list[Row]:
    """What the stateful query makes of them: each group of so many numbers, once."""
    found = {int(row.value) // size for row in sent}
    return [Row(str(group), str(group)) for group in sorted(found)]


def _told(what: str, odd: Mapping[Row, int], how: str) -> list[str]:
    if not odd:
        return []
    some = ", ".join(f"{row.key}={row.value}" for row in list(odd)[:5])
    return [f"{sum(odd.values())} {what} {how}, such as {some}"]
