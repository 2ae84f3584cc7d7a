"""A cluster for code without an event loop: Spark's Python workers make blocking calls.

A worker process runs many tasks, one after the other. It keeps connections and metadata between them, because a small
batch would otherwise spend most of its time on them.
"""

import asyncio
import atexit
import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.metadata import NO_LEADER, Partition, Topic, TopicPartition
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.spark.connector.broker_connection import BrokerConnection
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.read_options import Subscription

T = TypeVar("T")


class BlockingCluster:
    """One cluster, with connections that stay open. `shared_cluster` returns the instance of this process."""

    def __init__(self, settings: ClientSettings) -> None:
        self._runner = asyncio.Runner()
        self._settings = settings
        self.async_cluster = Cluster(
            settings.servers,
            client_id=settings.client_id,
            timeout_s=settings.api_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            connect_timeout_s=settings.connect_timeout_s,
            security=settings.security,
        )
        self._idle: dict[int, list[BrokerConnection]] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client to its end; return or raise what it does."""
        return self._runner.run(work)

    def close(self) -> None:
        for connection in (connection for connections in self._idle.values() for connection in connections):
            connection.close()
        self._idle.clear()

        async def close_cluster() -> None:
            self.async_cluster.close()
            await asyncio.sleep(0)  # lets the connections' tasks end

        self._runner.run(close_cluster())
        self._runner.close()

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """Return the current partitions of a subscription; raise UnknownTopicOrPartition for a missing one."""
        return sorted(self.run(self._find_partitions(subscription)))

    def ends(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition: the last stable offset, or the high watermark for `read_uncommitted`."""
        return self._list_offsets(dict.fromkeys(keys, LATEST))

    def begins(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._list_offsets(dict.fromkeys(keys, EARLIEST))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset with this timestamp or a later one in each partition, or -1 without one."""
        return self._list_offsets(times)

    def leader_of(self, key: TopicPartition) -> Partition:
        """Return the partition, with its leader; raise LeaderNotAvailable during an election."""
        topic = self.async_cluster.cached_topic(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        if partition is not None and partition.leader != NO_LEADER:
            return partition  # an event loop iteration would cost more than the rest of a small batch
        return self.run(self.async_cluster.leader_of(*key))

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """Return a topic; `create` lets the broker create it, if the broker allows that."""
        return self.async_cluster.cached_topic(name) or self.run(self.async_cluster.topic(name, create=create))

    def borrow_connection(self, node: int) -> BrokerConnection:
        """Return a connection for exclusive use; `return_connection` takes it back when it is idle."""
        idle = self._idle.get(node)
        if idle:
            return idle.pop()
        self.run(self.async_cluster.connection(node))  # reports an unreachable node with the client's own errors
        address = self.async_cluster.nodes[node].address
        settings = self._settings
        return BrokerConnection.connect(
            address, settings.client_id, settings.connect_timeout_s, settings.request_timeout_s, settings.security
        )

    def return_connection(self, node: int, connection: BrokerConnection) -> None:
        self._idle.setdefault(node, []).append(connection)

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not timestamps:
            return {}
        offsets = self.run(list_offsets(self.async_cluster, timestamps, committed=self._settings.committed))
        return {key: position.offset for key, position in offsets.items()}

    async def _find_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = [topic for topic in await self.async_cluster.topics() if pattern.fullmatch(topic.name)]
            return [(topic.name, number) for topic in topics for number in topic.partitions]
        names = subscription.assigned or subscription.topics
        # Cached metadata may be minutes old, and a query must plan with the current partitions.
        await self.async_cluster.retry(lambda: self.async_cluster.refresh(names))
        keys: list[TopicPartition] = []
        for name in names:
            partitions = (await self.async_cluster.topic(name)).partitions
            numbers = partitions if subscription.assigned is None else subscription.assigned[name]
            for number in numbers:
                if number not in partitions:
                    raise UnknownTopicOrPartition(
                        f"topic {name!r} has no partition {number}; its partitions are 0 to {len(partitions) - 1}"
                    )
                keys.append((name, number))
        return keys


_clusters: dict[ClientSettings, BlockingCluster] = {}


def shared_cluster(settings: ClientSettings) -> BlockingCluster:
    """Return the cluster of this process for these settings."""
    if settings not in _clusters:
        _clusters[settings] = BlockingCluster(settings)
        atexit.register(_clusters[settings].close)
    return _clusters[settings]
