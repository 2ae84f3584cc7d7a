"""All simulations by name: whole nodes, and single parts of them, which run faster and so cover more seeds."""

from collections.abc import Callable
from typing import Final

from tests.chaos.simulate import scenarios
from tests.unit.coordinators.transactions.test_model import test_transactions_are_atomic
from tests.unit.metadata.consensus.test_simulation import test_chaos_loses_nothing, test_voters_change_amid_chaos
from tests.unit.replication.test_cluster_simulation import (
    test_brokers_may_lose_power_one_after_another,
    test_nothing_is_lost_whatever_happens_to_brokers,
    test_partitions_move_while_brokers_come_and_go,
)


def _transactions(seed: int) -> None:
    test_transactions_are_atomic(seed, 1 + seed % 2)


SCENARIOS: Final[dict[str, Callable[[int], None]]] = {
    "faults": scenarios.faults,
    "power-failures": scenarios.power_failures,
    "last-in-sync": scenarios.last_in_sync,
    "quorum": test_chaos_loses_nothing,
    "quorum-voters": test_voters_change_amid_chaos,
    "replicas": test_nothing_is_lost_whatever_happens_to_brokers,
    "replicas-power": test_brokers_may_lose_power_one_after_another,
    "replicas-moving": test_partitions_move_while_brokers_come_and_go,
    "transactions": _transactions,
}
