"""One life of a cluster: clients wait, come and go, and what the nodes hold is counted at the same point of each round.

    life = Life(tmp_path, nodes=1, idle_partitions=1_000)
    with life.running():
        life.round(FEW)         # everything that is made once has been made
        before = life.counts()
        life.round(MANY)
        after = life.counts()

A round makes topics and deletes them; lets groups of all four kinds come and go; opens and closes connections; commits
and aborts transactions; writes, compacts and retains; changes settings and quotas; and on three nodes it moves replicas
and lets a follower be down. Consumers, share consumers and followers wait all the time, on partitions most of which
nobody writes to. Everything that a node may keep for a while is kept for a second, so that after a round it is gone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.life.census import Census, CountedNode, least
from tests.chaos.life.clients import Clients
from tests.chaos.life.waiting_clients import Make, WaitingClients, session, shared, subscribed
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
_COUNTS, _BETWEEN_S = 3, 0.15
_DOWN_S: Final = 1.5
_STOPPED_EACH: Final = 6
"""A follower is stopped once in this number of rounds, beginning with the first: a new process has to warm up."""
_WRITTEN, _COMPACTED, _RETAINED, _MOVED, _TRANSACTIONAL = "written", "compacted", "retained", "moved", "transactional"
_SHARED = "shared"
_SHARED_PARTITIONS, _MOVES = 100, 3
_IDLE = "idle"
_KEPT_GROUPS: Final = ("waiting-classic", "waiting-consumer", "waiting-share")
_CACHED_KEYS: Final = 5_000
"""More than the names whose hashes a node remembers."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much comes and goes in a round."""

    topics: int
    groups: int
    """Of each kind."""
    transactions: int
    producers: int
    connections: int
    """Of each node."""
    settings: int
    batches: int
    """For each topic that is compacted or retained."""


FEW: Final = Size(topics=20, groups=5, transactions=8, producers=10, connections=12, settings=10, batches=20)
MANY: Final = Size(topics=300, groups=20, transactions=40, producers=100, connections=60, settings=100, batches=20)


class Life:
    """One cluster and its clients."""

    def __init__(self, folder: Path, *, nodes: int, idle_partitions: int) -> None:
        """There are as many idle partitions for each node, which leads them."""
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
        """The cluster runs, and clients wait."""
        with self.cluster.running():
            try:
                self._furnish()
                self._waiting = WaitingClients(self._waiters())
                yield
                self._waiting.check()
            finally:
                if self._waiting is not None:
                    self._waiting.close()
                self._clients.close()
                for number in self._numbers:
                    self._node(number).hang_up()

    def round(self, size: Size) -> None:
        """Everything once. What was made is gone at the end, or nearly."""
        clients = self._clients
        self._rounds += 1
        activities: tuple[Callable[[], None], ...] = (
            lambda: clients.groups(size.groups, _WRITTEN),
            lambda: clients.connections(size.connections, _WRITTEN),
            lambda: clients.transactions(size.transactions, _TRANSACTIONAL),
            lambda: clients.producers(size.producers, _WRITTEN),
            lambda: clients.compacted(_COMPACTED, size.batches, keys=100),
            lambda: clients.compacted(_RETAINED, size.batches, keys=100),
            lambda: clients.delete_records(_WRITTEN),
            lambda: clients.produce(_SHARED, [(None, b"value")]),
            lambda: clients.settings(size.settings, _RETAINED),
            self._move_and_fail,
            clients.look,
            lambda: clients.remove_left_groups(_KEPT_GROUPS),
            # The last of what the metadata see: a node must not wait for the next change to let go of topics.
            lambda: clients.topics(size.topics),
        )
        for activity in activities:
            clients.become_another()
            activity()
        self.check()

    def counts(self) -> dict[int, Census]:
        """What each node holds, after what may be kept for a second is gone."""
        self._clients.balance()
        self._clients.wait(lambda: self._clients.in_sync(self._topics), "all replicas are in sync")
        time.sleep(_SETTLE_S)
        self.check()
        counts: dict[int, list[Census]] = {number: [] for number in self._numbers}
        for _ in range(_COUNTS):
            for number, found in counts.items():
                found.append(self._node(number).census())
            time.sleep(_BETWEEN_S)
        return {number: least(found) for number, found in counts.items()}

    def holders(self, number: int, kind: str) -> list[str]:
        return self._node(number).holders(kind)

    def check(self) -> None:
        """Raise what stopped a client that waits."""
        if self._waiting is not None:
            self._waiting.check()

    def _node(self, number: int) -> CountedNode:
        node = self.cluster.nodes[number]
        assert isinstance(node, CountedNode)
        return node

    def _furnish(self) -> None:
        """Make what stays."""
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
        made = (_WRITTEN, _TRANSACTIONAL, _COMPACTED, _RETAINED, _MOVED, _SHARED)
        return [*made, *(f"{_IDLE}-{number}" for number in self._numbers), "__consumer_offsets", "__transaction_state"]

    def _waiters(self) -> Iterator[Make]:
        for number, port in self._ports.items():
            yield session(port, {f"{_IDLE}-{number}": self._idle_partitions})
        if len(self._numbers) == 1:
            yield shared(self._ports[self._numbers[0]], "waiting-share", {_SHARED: _SHARED_PARTITIONS})
        yield subscribed(self.cluster.address, "waiting-classic", _SHARED)
        yield subscribed(self.cluster.address, "waiting-consumer", _SHARED, **{"group.protocol": "consumer"})

    def _move_and_fail(self) -> None:
        """What needs more nodes than one."""
        if len(self._numbers) > 1:
            self._clients.reassign(_MOVED, _MOVES)
            self._be_down()

    def _be_down(self) -> None:
        """A follower answers nothing for a while, or is stopped and started again. The active controller stays, so that
        the counts of a node can be compared."""
        controller = self.cluster.controller()
        paused, stopped = [number for number in self._numbers if number != controller][:2]
        if self._rounds % _STOPPED_EACH == 1:
            self.cluster.stop(stopped)
            time.sleep(_DOWN_S)
            self.cluster.start(stopped)
        else:
            self.cluster.pause(paused)
            time.sleep(_DOWN_S)
            self.cluster.resume(paused)
