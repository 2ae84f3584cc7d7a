"""Short soaks with faults of nodes and network. `python -m tests.chaos.soak` runs long ones."""

from pathlib import Path

import pytest

from tests.chaos.soak.soak import Soak


@pytest.mark.parametrize(("topology", "seed"), [("combined", 11), ("apart", 12)])
def test_no_acknowledged_record_is_lost(tmp_path: Path, topology: str, seed: int) -> None:
    soak = Soak(tmp_path, seed=seed, seconds=6, topology=topology, with_java=topology == "combined", quiet=True)
    outcome = soak.run()
    assert not outcome.problems, "\n".join(outcome.problems)
    for name in ("faults", "acknowledged", "polled", "offset commits", "transactions: commit"):
        assert outcome.counts[name], f"the soak had none: {name}"
