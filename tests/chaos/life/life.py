"""A cluster under a repeated workload, whose resource usage is counted at the same point of each round.

    life = Life(tmp_path, nodes=1, idle_partitions=1_000)
    with life.running():
        life.run_round(FEW)         # causes all one-time allocations
        before = life.count()
        life.run_round(MANY)
        after = life.count()

A round creates and deletes topics, runs groups of all four types, opens and closes connections, commits and aborts
transactions, writes to compacted topics and topics with retention, and changes configs and quotas. On three nodes, it
also moves replicas and stops a follower. Consumers, share consumers and followers wait during all rounds, mostly on
idle partitions. All retention times of nodes are about a second, so that everything expires after a round.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.life.census import Census, CountedNode, minimum
from tests.chaos.life.clients import Clients
from tests.chaos.life.waiting_clients import (
    CreateReader,
    WaitingClients,
    session_consumer,
    share_consumer,
    subscribed_consumer,
)
from tests.support.ottla_cluster import OttlaCluster

SETTINGS: Final = {
    "auto.leader.rebalance.enable": "false",
    "compression.type": "producer",
    "controller.quorum.election.timeout.ms": "5000",
    "controller.quorum.fetch.timeout.ms": "10000",
    "broker.session.timeout.ms": "9000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "1000",
    "log.roll.ms": "5000",
    "log.segment.delete.delay.ms": "500",
    "max.incremental.fetch.session.cache.slots": "100",
    "metadata.log.max.record.bytes.between.snapshots": "200000",
    "metadata.log.segment.bytes": "8388608",
    "metadata.max.retention.bytes": "8388608",
    "offsets.retention.check.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "500",
    "producer.id.expiration.ms": "1000",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "transactional.id.expiration.ms": "1000",
}
_SETTLE_S: Final = 2.5
_COUNTS, _COUNT_INTERVAL_S = 3, 0.15
_DOWN_S: Final = 1.5
_STOP_INTERVAL: Final = 6
"""A follower is stopped in every sixth round, beginning with the first, because a new process has to warm up."""
_WRITTEN, _COMPACTED, _RETAINED, _MOVED, _TRANSACTIONAL = "written", "compacted", "retained", "moved", "transactional"
_SHARED = "shared"
_SHARED_PARTITIONS, _MOVES = 100, 3
_IDLE = "idle"
_KEPT_GROUPS: Final = ("waiting-classic", "waiting-consumer", "waiting-share")
_CACHED_KEYS: Final = 5_000
"""More than the number of names in a node's cache of hashes."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a round."""

    topics: int
    groups: int
    """Of each type."""
    transactions: int
    producers: int
    connections: int
    """To each node."""
    settings: int
    batches: int
    """For the compacted topic and for the topic with retention."""


FEW: Final = Size(topics=20, groups=5, transactions=8, producers=10, connections=12, settings=10, batches=20)
MANY: Final = Size(topics=300, groups=20, transactions=40, producers=100, connections=60, settings=100, batches=20)


class Life:
    """A cluster and its clients."""

    def __init__(self, folder: Path, *, nodes: int, idle_partitions: int) -> None:
        """Create a cluster where each node leads this number of idle partitions."""
        kinds = dict.fromkeys(range(1, nodes + 1), CountedNode)
        replicas = str(nodes)
        self.cluster = OttlaCluster(
            folder,
            nodes=nodes,
            settings={**SETTINGS, "share.coordinator.state.topic.replication.factor": replicas},
            node_classes=kinds,
        )
        self._idle_partitions = idle_partitions
        self._numbers = [*kinds]
        ports = {number: node.ports["PLAINTEXT"] for number, node in self.cluster.nodes.items()}
        self._ports = ports
        self._clients = Clients(ports, self._numbers)
        self._waiting: WaitingClients | None = None
        self._rounds = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the cluster and the waiting clients."""
        with self.cluster.running():
            try:
                self._create_topics()
                self._waiting = WaitingClients(self._waiting_readers())
                yield
                self._waiting.check()
            finally:
                if self._waiting is not None:
                    self._waiting.close()
                self._clients.close()
                for number in self._numbers:
                    self._node(number).disconnect()

    def run_round(self, size: Size) -> None:
        """Run every activity once. At the end, nearly everything that they created is gone."""
        clients = self._clients
        self._rounds += 1
        activities: tuple[Callable[[], None], ...] = (
            lambda: clients.run_groups(size.groups, _WRITTEN),
            lambda: clients.run_connections(size.connections, _WRITTEN),
            lambda: clients.run_transactions(size.transactions, _TRANSACTIONAL),
            lambda: clients.run_producers(size.producers, _WRITTEN),
            lambda: clients.run_rewrites(_COMPACTED, size.batches, keys=100),
            lambda: clients.run_rewrites(_RETAINED, size.batches, keys=100),
            lambda: clients.delete_records(_WRITTEN),
            lambda: clients.produce(_SHARED, [(None, b"value")]),
            lambda: clients.run_settings(size.settings, _RETAINED),
            self._move_and_fail,
            clients.run_admin_requests,
            lambda: clients.delete_abandoned_groups(_KEPT_GROUPS),
            # This is the last change of metadata: a node must release deleted topics without waiting for the next one.
            lambda: clients.run_topics(size.topics),
        )
        for activity in activities:
            clients.change_client_id()
            activity()
        self.check()

    def count(self) -> dict[int, Census]:
        """Wait until everything has expired, then count the resources of each node."""
        self._clients.elect_preferred_leaders()
        self._clients.wait(lambda: self._clients.are_in_sync(self._topics), "all replicas are in sync")
        time.sleep(_SETTLE_S)
        self.check()
        counts: dict[int, list[Census]] = {number: [] for number in self._numbers}
        for _ in range(_COUNTS):
            for number, censuses in counts.items():
                censuses.append(self._node(number).census())
            time.sleep(_COUNT_INTERVAL_S)
        return {number: minimum(censuses) for number, censuses in counts.items()}

    def find_holders(self, number: int, kind: str) -> list[str]:
        return self._node(number).find_holders(kind)

    def check(self) -> None:
        """Raise the exception that stopped a waiting client, if any."""
        if self._waiting is not None:
            self._waiting.check()

    def _node(self, number: int) -> CountedNode:
        node = self.cluster.nodes[number]
        assert isinstance(node, CountedNode)
        return node

    def _create_topics(self) -> None:
        """Create the topics that live as long as the cluster."""
        clients = self._clients
        for number in self._numbers:
            others = [other for other in self._numbers if other != number]
            clients.create(f"{_IDLE}-{number}", self._idle_partitions, [[number, *others]])
        clients.create(_WRITTEN, 1)
        clients.create(_TRANSACTIONAL, 1, retention_ms="1000", segment_ms="1000")
        clients.create(_COMPACTED, 1, cleanup_policy="compact", segment_ms="1000")
        clients.create(_RETAINED, 1, retention_ms="1000", segment_ms="1000")
        clients.create(_MOVED, _MOVES)
        clients.create(_SHARED, _SHARED_PARTITIONS, retention_ms="1000", segment_ms="1000")
        clients.fill_caches(_CACHED_KEYS)

    @property
    def _topics(self) -> list[str]:
        workload_topics = (_WRITTEN, _TRANSACTIONAL, _COMPACTED, _RETAINED, _MOVED, _SHARED)
        idle_topics = (f"{_IDLE}-{number}" for number in self._numbers)
        return [*workload_topics, *idle_topics, "__consumer_offsets", "__transaction_state"]

    def _waiting_readers(self) -> Iterator[CreateReader]:
        for number, port in self._ports.items():
            yield session_consumer(port, {f"{_IDLE}-{number}": self._idle_partitions})
        if len(self._numbers) == 1:
            yield share_consumer(self._ports[self._numbers[0]], "waiting-share", {_SHARED: _SHARED_PARTITIONS})
        yield subscribed_consumer(self.cluster.address, "waiting-classic", _SHARED)
        yield subscribed_consumer(self.cluster.address, "waiting-consumer", _SHARED, **{"group.protocol": "consumer"})

    def _move_and_fail(self) -> None:
        """Run the activities that need several nodes."""
        if len(self._numbers) > 1:
            self._clients.reassign(_MOVED, _MOVES)
            self._interrupt_follower()

    def _interrupt_follower(self) -> None:
        """Pause a follower, or stop and start it. The active controller stays up, so that counts are comparable."""
        controller = self.cluster.controller()
        paused, stopped = [number for number in self._numbers if number != controller][:2]
        if self._rounds % _STOP_INTERVAL == 1:
            self.cluster.stop(stopped)
            time.sleep(_DOWN_S)
            self.cluster.start(stopped)
        else:
            self.cluster.pause(paused)
            time.sleep(_DOWN_S)
            self.cluster.resume(paused)
