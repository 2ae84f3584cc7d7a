"""Short soaks: clients of two makes at work while nodes and network fail. `python -m tests.chaos.soak` runs
long ones.
"""

from pathlib import Path

import pytest

from tests.chaos.soak.soak import Soak


@pytest.mark.parametrize(("topology", "seed"), [("combined", 11), ("apart", 12)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, topology: str, seed: int) -> None:
    soak = Soak(tmp_path, seed=seed, seconds=6, topology=topology, with_java=topology == "combined", quiet=True)
    outcome = soak.run()
    assert not outcome.problems, "\n".join(outcome.problems)
    for what in ("faults", "acknowledged", "polled", "offset commits", "transactions: commit"):
        assert outcome.counts[what], f"there were none: {what}"
