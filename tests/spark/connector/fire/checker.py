"""Checks that readers of committed records see every row once, by comparing sent and written rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A record of an output topic."""

    key: str
    value: str


def check_rows(sent: Sequence[Row], written: Sequence[Row]) -> list[str]:
    """Return the differences between the rows, in any order."""
    wanted, actual = Counter(sent), Counter(written)
    return _describe(actual - wanted, "too often") + _describe(wanted - actual, "missing")


def groups_of(sent: Sequence[Row], size: int) -> list[Row]:
    """Return the rows that the stateful query writes: one for each group of `size` numbers."""
    groups = {int(row.value) // size for row in sent}
    return [Row(str(group), str(group)) for group in sorted(groups)]


def _describe(rows: Mapping[Row, int], problem: str) -> list[str]:
    if not rows:
        return []
    examples = ", ".join(f"{row.key}={row.value}" for row in list(rows)[:5])
    return [f"{sum(rows.values())} rows {problem}, such as {examples}"]
