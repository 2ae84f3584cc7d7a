"""A transaction is read completely or not at all, in order and once, after any loss, repetition or failover."""

import pytest

from ottla.coordinators.transactions.state import TransactionStatus
from tests.unit.coordinators.transactions.world import Attempt, World


def of(attempt: Attempt, values: list[str]) -> list[str]:
    return [each for each in values if each.startswith(attempt.name + "/")]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_transactions_are_atomic(seed: int, version: int) -> None:
    world = World(seed, version)
    world.run(1500)
    world.settle()
    committed = {where: world.committed(where) for where in world.partitions}
    for where, log in world.partitions.items():
        assert not list(log.producers.open_transactions()), f"a transaction hangs on {where}"
        assert log.last_stable_offset == log.log_end_offset
        assert len(set(committed[where])) == len(committed[where]), "a record was read twice"
    for attempt in world.attempts:
        seen = {where: of(attempt, values) for where, values in committed.items()}
        is_seen = any(seen.values())
        if attempt.committed is True:
            assert is_seen, f"{attempt} was committed and is lost"
        if attempt.committed is False or not attempt.asked_to_commit:
            assert not is_seen, f"{attempt} was not committed and is read: {seen}"
        if is_seen:
            assert {where: values for where, values in seen.items() if values} == dict(attempt.values)
    for found in world.coordinator.machine.state:
        assert found.status.is_over, found
        assert found.status is TransactionStatus.EMPTY or not found.partitions


def test_the_model_sees_all_outcomes() -> None:
    """Among all seeds there are commits, aborts, fenced producers and outcomes that the producer never learned."""
    outcomes = set()
    for seed in range(8):
        world = World(seed, 2)
        world.run(1500)
        outcomes |= {(attempt.asked_to_commit, attempt.committed) for attempt in world.attempts if attempt.values}
    assert outcomes >= {(True, True), (False, False), (True, None), (False, None)}
