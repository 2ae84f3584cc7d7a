"""All fetchers of a broker, and the assignment of partitions to them.

There are up to `num.replica.fetchers` fetchers for each leader's broker, and a partition always uses the same one. A
fetcher is created with its first partition and closed after its last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from zlib import crc32

from ottla.replication.fetcher import Fetcher
from ottla.replication.partition import Partition
from ottla.replication.partition_fetch_state import Key

FetcherId = tuple[int, int]
"""The broker that is fetched from, and the number of the fetcher."""


class Runner(Protocol):
    """A fetcher and its connections."""

    fetcher: Fetcher

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the leader's broker has closed a connection, even if this was not read yet."""
        ...

    def close(self) -> None:
        """Stop sending requests, and drop requests in flight."""
        ...


Open = Callable[[FetcherId, Callable[[Partition], None]], Runner]
"""Creates a fetcher for a broker. The callback gets partitions that it stops fetching after an error."""


class Fetchers:
    """The fetchers of a broker, by the broker that they fetch from."""

    def __init__(self, open_fetcher: Open, *, per_broker: int = 1) -> None:
        self._open = open_fetcher
        self._per_broker = per_broker
        self.runners: dict[FetcherId, Runner] = {}
        self._runners_by_partition: dict[Key, Runner] = {}
        self.failed_epochs: dict[Key, int] = {}
        """Partitions that failed and wait for a new leader, and the leader epoch in which they failed."""
        self._is_closed = False

    @property
    def max_lag(self) -> int:
        """The largest lag of all partitions."""
        return max((runner.fetcher.max_lag for runner in self.runners.values()), default=0)

    @property
    def disconnected_brokers(self) -> list[int]:
        """The brokers that have closed a fetcher's connection."""
        return [source for (source, _), runner in self.runners.items() if runner.is_closed_by_peer]

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader."""
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
        """Stop fetching a partition."""
        key = partition.topic_id, partition.index
        self.failed_epochs.pop(key, None)
        runner = self._runners_by_partition.pop(key, None)
        if runner is not None:
            runner.fetcher.remove(key)

    def settle(self) -> None:
        """Close the fetchers without partitions."""
        for fetcher_id, runner in list(self.runners.items()):
            if not runner.fetcher.fetch_states:
                runner.close()
                del self.runners[fetcher_id]

    def resize(self, per_broker: int) -> None:
        """Spread the partitions over another number of fetchers per broker."""
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
        """Stop all fetchers."""
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
