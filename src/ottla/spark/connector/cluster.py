"""A cluster, for code that runs in no event loop: Spark's Python workers call plainly, and wait.

A worker process serves many tasks, one after the other. What it knows of a cluster is kept between them, so that a
small batch does not pay for connections and metadata anew.
"""

import asyncio
import atexit
import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.metadata import NO_LEADER, Partition, Topic, TopicPartition
from ottla.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.spark.connector.broker_connection import BrokerConnection
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.read_options import Subscription

T = TypeVar("T")


class BlockingCluster:
    """One cluster, with connections that stay open. `shared` finds the one of this process."""

    def __init__(self, settings: ClientSettings) -> None:
        self._runner = asyncio.Runner()
        self._settings = settings
        self.cluster = Cluster(
            settings.servers,
            client_id=settings.client_id,
            timeout_s=settings.api_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            connect_timeout_s=settings.connect_timeout_s,
            security=settings.security,
        )
        self._links: dict[int, list[BrokerConnection]] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the client's coroutine returns, or raises."""
        return self._runner.run(work)

    def close(self) -> None:
        for link in (link for links in self._links.values() for link in links):
            link.close()
        self._links.clear()

        async def close() -> None:
            self.cluster.close()
            await asyncio.sleep(0)  # lets the connections' tasks end

        self._runner.run(close())
        self._runner.close()

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The partitions that there are now of what is subscribed; raises UnknownTopicOrPartition for what is not."""
        return sorted(self.run(self._find(subscription)))

    def ends(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition that may be read."""
        return {key: found.offset for key, found in self._offsets(dict.fromkeys(keys, LATEST)).items()}

    def begins(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return {key: found.offset for key, found in self._offsets(dict.fromkeys(keys, EARLIEST)).items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset of this time or later in each partition, or -1 if there is none."""
        return {key: found.offset for key, found in self._offsets(times).items()}

    def leader_of(self, key: TopicPartition) -> Partition:
        """The partition, with its leader; raises LeaderNotAvailable if an election is due."""
        known = self.cluster.cached_topic(key[0])
        found = None if known is None else known.partitions.get(key[1])
        if found is not None and found.leader != NO_LEADER:
            return found  # without a turn of the event loop, which costs more than all the rest
        return self.run(self.cluster.leader_of(*key))

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic; `create` lets the broker make it, if it does that by itself."""
        return self.cluster.cached_topic(name) or self.run(self.cluster.topic(name, create=create))

    def borrow_link(self, node: int) -> BrokerConnection:
        """A connection that nobody else uses. Give it back by `return_link` if nothing is under way on it."""
        idle = self._links.get(node)
        if idle:
            return idle.pop()
        self.run(self.cluster.connection(node))  # so that a node that is gone is told as everywhere else
        address = self.cluster.nodes[node].address
        settings = self._settings
        return BrokerConnection.connect(
            address, settings.client_id, settings.connect_timeout_s, settings.request_timeout_s, settings.security
        )

    def return_link(self, node: int, link: BrokerConnection) -> None:
        self._links.setdefault(node, []).append(link)

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        if not wanted:
            return {}
        return self.run(list_offsets(self.cluster, wanted, committed=self._settings.committed))

    async def _find(self, subscription: Subscription) -> list[TopicPartition]:
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = [each for each in await self.cluster.topics() if pattern.fullmatch(each.name)]
            return [(topic.name, number) for topic in topics for number in topic.partitions]
        names = subscription.assigned or subscription.topics
        # What is remembered may be minutes old; a query plans with the partitions that there are now.
        await self.cluster.retry(lambda: self.cluster.refresh(names))
        found: list[TopicPartition] = []
        for name in names:
            known = (await self.cluster.topic(name)).partitions
            wanted = known if subscription.assigned is None else subscription.assigned[name]
            for number in wanted:
                if number not in known:
                    raise UnknownTopicOrPartition(f"topic {name!r} has no partition {number}; it has {len(known)}")
                found.append((name, number))
        return found


_kept: dict[ClientSettings, BlockingCluster] = {}


def shared(settings: ClientSettings) -> BlockingCluster:
    """The access of this process to a cluster."""
    if settings not in _kept:
        _kept[settings] = BlockingCluster(settings)
        atexit.register(_kept[settings].close)
    return _kept[settings]
