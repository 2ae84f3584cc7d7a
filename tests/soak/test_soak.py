"""A short soak: clients of two makes at work while nodes and network fail. `python -m tests.soak` runs long ones."""

from pathlib import Path

from tests.soak.soak import Soak


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=11, seconds=6, topology="combined", with_java=True, quiet=True)
    outcome = soak.run()
    assert not outcome.problems, "\n".join(outcome.problems)
    for what in ("faults", "acknowledged", "polled", "offset commits", "transactions: commit"):
        assert outcome.counts[what], f"there were none: {what}"
