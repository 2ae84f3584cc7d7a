"""Whole clusters on simulated time, network and disk. `python -m tests.chaos.simulate` runs more of them."""

import pytest

from tests.chaos.simulate.stories import faults, power_failures


@pytest.mark.parametrize("seed", range(6))
def test_nothing_promised_is_broken_by_faults(seed: int) -> None:
    faults(seed)


@pytest.mark.parametrize("seed", range(3))
def test_one_machine_after_the_other_may_lose_its_power(seed: int) -> None:
    power_failures(seed)
