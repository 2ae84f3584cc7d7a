"""The assignment of partitions to fetchers."""

from collections.abc import Callable, Iterator

import pytest

from ottla.replication.fetch_requests import FetchLimits
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetchers import FetcherId, Fetchers
from ottla.replication.partition import Partition
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.truncation_queue import TruncationQueue
from tests.support.broker import BROKER_EPOCH, ME, Broker

PARTITIONS = 8


class Opened:
    """A fetcher that nobody runs."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.is_closed = False
        self.is_closed_by_peer = False

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """Broker 1 follows broker 2 with all partitions of a topic."""

    def __init__(self, each: int = 2) -> None:
        self.broker = Broker()
        for number in (2, 3):
            self.broker.register(number)
        self.opened: list[Opened] = []
        self.fetchers = self.broker.partitions.fetching = Fetchers(self._open, per_broker=each)
        self.broker.create_topic("t", partitions=PARTITIONS, replicas=(2, 3, ME), leader=2)

    def spread(self) -> dict[FetcherId, int]:
        return {key: len(runner.fetcher.fetch_states) for key, runner in self.fetchers.runners.items()}

    def _open(self, fetcher_id: FetcherId, on_failed: Callable[[Partition], None]) -> Opened:
        opened = Opened(
            Fetcher(
                ME,
                fetcher_id[0],
                FetchLimits(),
                self.broker.logs,
                TruncationQueue(self.broker.logs, lambda action: action(), self.broker.clock.now_ms),
                broker_epoch=lambda: BROKER_EPOCH,
                throttle=ReplicationThrottle("follower", ME, now_ms=self.broker.clock.now_ms),
                on_failed=on_failed,
                on_ready=lambda: None,
            )
        )
        self.opened.append(opened)
        return opened


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.broker.close()


def test_partitions_of_a_leader_are_spread_over_its_fetchers(bench: Bench) -> None:
    assert bench.spread() == {(2, 0): PARTITIONS // 2, (2, 1): PARTITIONS // 2}


def test_a_new_leader_is_fetched_from_and_idle_fetchers_are_closed(bench: Bench) -> None:
    for number in range(PARTITIONS):
        bench.broker.change("t", number, leader=3)
    assert {source for source, _ in bench.spread()} == {3}
    assert sum(bench.spread().values()) == PARTITIONS
    assert sum(opened.is_closed for opened in bench.opened) == 2


def test_leaders_and_partitions_without_a_leader_do_not_fetch(bench: Bench) -> None:
    bench.broker.change("t", 0, leader=ME)
    bench.broker.change("t", 1, leader=-1)
    assert sum(bench.spread().values()) == PARTITIONS - 2


def test_a_change_within_a_term_changes_nothing(bench: Bench) -> None:
    before = bench.fetchers.runners[2, 0].fetcher.fetch_states.copy()
    for number in range(PARTITIONS):
        bench.broker.change("t", number, isr=[2, 3])
    assert bench.fetchers.runners[2, 0].fetcher.fetch_states == before


def test_a_failed_partition_is_fetched_again_in_the_next_epoch_only(bench: Bench) -> None:
    partition = bench.broker.partition("t", 0)
    runner = next(
        each for each in bench.fetchers.runners.values() if (partition.topic_id, 0) in each.fetcher.fetch_states
    )
    runner.fetcher._stop(runner.fetcher.fetch_states[partition.topic_id, 0])
    bench.broker.change("t", 0, isr=[2, 3])
    assert (len(bench.fetchers.failed_epochs), sum(bench.spread().values())) == (1, PARTITIONS - 1)
    bench.broker.change("t", 0, leader=3)
    assert (len(bench.fetchers.failed_epochs), sum(bench.spread().values())) == (0, PARTITIONS)


@pytest.mark.parametrize("each", [1, 4])
def test_the_number_of_fetchers_can_be_changed(bench: Bench, each: int) -> None:
    bench.fetchers.resize(each)
    assert bench.spread() == {(2, number): PARTITIONS // each for number in range(each)}


def test_leaders_that_hung_up_are_known(bench: Bench) -> None:
    assert bench.fetchers.disconnected_brokers == []
    for opened in bench.opened:
        opened.is_closed_by_peer = True
    assert {*bench.fetchers.disconnected_brokers} == {2}


def test_a_broker_that_stops_fetches_nothing_more(bench: Bench) -> None:
    bench.fetchers.close()
    assert all(opened.is_closed for opened in bench.opened)
    bench.broker.change("t", 0, leader=3)
    assert bench.spread() == {}
