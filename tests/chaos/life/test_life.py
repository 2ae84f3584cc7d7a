"""A minute of a cluster's life: nothing grows. `python -m tests.chaos.soak --life` lives for half an hour and more."""

from pathlib import Path

import pytest

from tests.chaos.life.census import Allowance, Census, grown
from tests.chaos.life.life import FEW, MANY, Life

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc tells what a process has open")

_SHOWN = 3
"""For so many types, the message says what holds an object."""


def check(life: Life, before: dict[int, Census], after: dict[int, Census]) -> None:
    """Nothing has grown on any node whose process is still the same."""
    problems = []
    compared = [number for number in before if before[number].process == after[number].process]
    assert compared
    for number in compared:
        found = grown(before[number], after[number], Allowance())
        problems += [f"node {number}: {growth}" for growth in found]
        ours = [growth.what for growth in found if "ottla." in growth.what][:_SHOWN]
        problems += [line for kind in ours for line in life.holders(number, kind)]
    assert not problems, "\n".join(problems)


def test_nothing_grows_on_one_node(tmp_path: Path) -> None:
    life = Life(tmp_path, nodes=1, idle_partitions=1_000)
    with life.running():
        life.round(FEW)
        life.round(FEW)
        before = life.counts()
        life.round(MANY)
        check(life, before, life.counts())


def test_nothing_grows_on_three_nodes(tmp_path: Path) -> None:
    life = Life(tmp_path, nodes=3, idle_partitions=100)
    with life.running():
        life.round(FEW)
        life.round(FEW)
        before = life.counts()
        life.round(MANY)
        check(life, before, life.counts())
