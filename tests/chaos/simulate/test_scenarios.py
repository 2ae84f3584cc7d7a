"""Whole clusters on simulated time, network and disk. `python -m tests.chaos.simulate` runs more seeds."""

import pytest

from tests.chaos.simulate.scenarios import faults, power_failures


@pytest.mark.parametrize("seed", range(6))
def test_invariants_hold_under_faults(seed: int) -> None:
    faults(seed)


@pytest.mark.parametrize("seed", range(3))
def test_invariants_hold_when_machines_lose_power(seed: int) -> None:
    power_failures(seed)
