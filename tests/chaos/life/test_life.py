"""The resources of nodes do not grow within a minute. `python -m tests.chaos.soak --life` runs for half an hour."""

from pathlib import Path

import pytest

from tests.chaos.life.census import Allowance, Census, find_growth
from tests.chaos.life.life import FEW, MANY, Life

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to count descriptors")

_EXPLAINED_TYPES = 3
"""The number of types for which the message shows a chain of references."""


def check(life: Life, before: dict[int, Census], after: dict[int, Census]) -> None:
    """Check that nothing has grown on nodes that were not restarted."""
    problems = []
    compared = [number for number in before if before[number].process == after[number].process]
    assert compared
    for number in compared:
        growths = find_growth(before[number], after[number], Allowance())
        problems += [f"node {number}: {growth}" for growth in growths]
        ottla_types = [growth.name for growth in growths if "ottla." in growth.name][:_EXPLAINED_TYPES]
        problems += [line for kind in ottla_types for line in life.find_holders(number, kind)]
    assert not problems, "\n".join(problems)


def test_nothing_grows_on_one_node(tmp_path: Path) -> None:
    life = Life(tmp_path, nodes=1, idle_partitions=1_000)
    with life.running():
        life.run_round(FEW)
        life.run_round(FEW)
        before = life.count()
        life.run_round(MANY)
        check(life, before, life.count())


def test_nothing_grows_on_three_nodes(tmp_path: Path) -> None:
    life = Life(tmp_path, nodes=3, idle_partitions=100)
    with life.running():
        life.run_round(FEW)
        life.run_round(FEW)
        before = life.count()
        life.run_round(MANY)
        check(life, before, life.count())
