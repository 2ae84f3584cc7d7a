"""All fetchers of a broker: which partition is fetched from whom, by which fetcher.

There are up to `num.replica.fetchers` fetchers for each broker that leads something; a partition always goes to the
same one of them. Fetchers come with their first partition and go with their last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from zlib import crc32

from ottla.replication.fetcher import Fetcher
from ottla.replication.partition import Partition
from ottla.replication.partition_fetch_state import Key

FetcherId = tuple[int, int]
"""The broker that is fetched from, and a number."""


class Runner(Protocol):
    """A fetcher with what carries its requests."""

    fetcher: Fetcher

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the broker that is fetched from has closed a connection, noticed or not."""
        ...

    def close(self) -> None:
        """Ask nothing more, and give up what is under way."""
        ...


Open = Callable[[FetcherId, Callable[[Partition], None]], Runner]
"""Makes a fetcher for a broker; takes whom to tell of partitions that it gives up."""


class Fetchers:
    """The fetchers of a broker, by the broker they fetch from."""

    def __init__(self, open_fetcher: Open, *, per_broker: int = 1) -> None:
        self._open = open_fetcher
        self._per_broker = per_broker
        self.runners: dict[FetcherId, Runner] = {}
        self._runners_by_partition: dict[Key, Runner] = {}
        self.failed_epochs: dict[Key, int] = {}
        """Partitions that are not fetched any more in a term of their leader, and that term."""
        self._is_closed = False

    @property
    def max_lag(self) -> int:
        """How far the partition is behind that is farthest behind."""
        return max((runner.fetcher.max_lag for runner in self.runners.values()), default=0)

    @property
    def disconnected_brokers(self) -> list[int]:
        """The brokers that have closed a connection over which they are fetched from."""
        return [source for (source, _), runner in self.runners.items() if runner.is_closed_by_peer]

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from the leader that it has now."""
        key = partition.topic_id, partition.index
        leader = partition.assignment.leader
        runner = self._runners_by_partition.get(key)
        if runner is not None and runner.fetcher.source == leader:
            state = runner.fetcher.fetch_states.get(key)
            if state is not None and state.leader_epoch == partition.leader_epoch:
                return
        elif self.failed_epochs.get(key) == partition.leader_epoch:
            return
        self.leave(partition)
        if leader >= 0 and not self._is_closed:
            runner = self._runners_by_partition[key] = self._runner(leader, partition)
            runner.fetcher.add(partition)

    def leave(self, partition: Partition) -> None:
        """Fetch a partition no more."""
        key = partition.topic_id, partition.index
        self.failed_epochs.pop(key, None)
        runner = self._runners_by_partition.pop(key, None)
        if runner is not None:
            runner.fetcher.remove(key)

    def settle(self) -> None:
        """Close fetchers that have nothing to fetch any more."""
        for fetcher_id, runner in list(self.runners.items()):
            if not runner.fetcher.fetch_states:
                runner.close()
                del self.runners[fetcher_id]

    def resize(self, per_broker: int) -> None:
        """Spread the partitions over another number of fetchers."""
        if per_broker == self._per_broker:
            return
        self._per_broker = per_broker
        partitions = [
            state.partition for runner in self.runners.values() for state in list(runner.fetcher.fetch_states.values())
        ]
        for partition in partitions:
            self.leave(partition)
        for partition in partitions:
            self.follow(partition)
        self.settle()

    def close(self) -> None:
        """Fetch nothing more."""
        self._is_closed = True
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()
        self._runners_by_partition.clear()

    def _runner(self, leader: int, partition: Partition) -> Runner:
        number = (crc32(partition.topic.encode()) + partition.index) % self._per_broker
        fetcher_id = leader, number
        runner = self.runners.get(fetcher_id)
        if runner is None:
            runner = self.runners[fetcher_id] = self._open(fetcher_id, self._on_given_up)
        return runner

    def _on_given_up(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        self._runners_by_partition.pop(key, None)
        self.failed_epochs[key] = partition.leader_epoch
