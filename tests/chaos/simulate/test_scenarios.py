"""Whole clusters on simulated time, network and disk. `python -m tests.chaos.simulate` runs more seeds."""

import pytest

from tests.chaos.simulate.scenarios import faults, last_in_sync, power_failures


@pytest.mark.parametrize("seed", range(6))
def test_invariants_hold_under_faults(seed: int) -> None:
    faults(seed)


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_invariants_hold_when_machines_lose_power(seed: int) -> None:
    power_failures(seed)


@pytest.mark.parametrize("seed", range(2))
def test_invariants_hold_when_the_last_in_sync_replica_loses_power(seed: int) -> None:
    last_in_sync(seed)
