"""Striped placement of replicas: leaders in turn, followers on the next brokers, from a random start."""

from collections import Counter
from random import Random

import pytest

from ottla.metadata.controller.replica_placer import ReplicaPlacer, usable_brokers
from tests.unit.metadata.controller.cluster import Cluster

BROKERS = 5


def placed(partitions: int, factor: int, *, seed: int = 0) -> list[tuple[int, ...]]:
    """Return the replicas of a topic on brokers 0 to 4, which have no racks."""
    cluster = Cluster()
    for broker in range(BROKERS):
        cluster.start(broker)
    return ReplicaPlacer(usable_brokers(cluster.view)).place(partitions, factor, Random(seed))


@pytest.mark.parametrize("seed", range(10))
def test_each_broker_leads_one_of_as_many_partitions_as_there_are_brokers(seed: int) -> None:
    leaders = [replicas[0] for replicas in placed(BROKERS, 3, seed=seed)]
    assert leaders == [(leaders[0] + step) % BROKERS for step in range(BROKERS)], "in turn"


@pytest.mark.parametrize("rounds", [2, 7])
def test_no_broker_leads_more_partitions_than_another_after_whole_rounds(rounds: int) -> None:
    assert {*Counter(replicas[0] for replicas in placed(BROKERS * rounds, 3)).values()} == {rounds}


def test_followers_are_the_brokers_behind_the_leader() -> None:
    for replicas in placed(BROKERS, 3):
        assert replicas == tuple((replicas[0] + step) % BROKERS for step in range(3))


def test_the_first_leader_is_any_broker() -> None:
    assert {placed(1, 1, seed=seed)[0][0] for seed in range(50)} == {*range(BROKERS)}
