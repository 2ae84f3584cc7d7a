"""A cluster as a client sees it: its nodes and their connections, its topics and their leaders.

A connection is opened on first use, kept, and opened again after it broke. Requests that wait at the broker use a
separate connection per lane, because responses arrive in order and other requests would wait behind them.

`send` tries once. `retry` tries again after transient errors, within the cluster's time limit.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.client.addresses import Address, parse_addresses
from ottla.client.connection import Connection
from ottla.client.metadata import NO_LEADER, Node, Partition, Topic, nodes_by_id, partition_label, topic_of
from ottla.client.retries import Deadline, backoff_s, error_from_code, is_transient, raise_for_code, retry
from ottla.protocol.errors import (
    ApiError,
    BrokerNotAvailable,
    LeaderNotAvailable,
    NetworkFailed,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.wire.types import ZERO_UUID
from ottla.security.settings import PLAINTEXT, Security

T = TypeVar("T")

_GRACE_S: Final = 0.5
_CREATION_GRACE_S: Final = 3.0
"""How long a new topic may be unknown: brokers learn of it at different times, and auto-creation takes a moment."""


class Cluster:
    """A cluster, reached through its bootstrap servers. Use it in `async with`, or `close` it."""

    def __init__(
        self,
        servers: str | Sequence[Address],
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        metadata_max_age_s: float = 300.0,
        security: Security = PLAINTEXT,
    ) -> None:
        self.servers = parse_addresses(servers) if isinstance(servers, str) else tuple(servers)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.request_timeout_s = request_timeout_s
        self.nodes: Mapping[int, Node] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._connect_timeout_s = connect_timeout_s
        self._max_age_s = metadata_max_age_s
        self._security = security
        self._topics: dict[str, tuple[Topic, Deadline]] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._connecting: dict[tuple[Address, str], asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def send(
        self, request: Any, *, node: int | None = None, lane: str = "", version: int | None = None, wait_s: float = 0.0
    ) -> Any:
        """Send a request to a node, or to any, and return the response. `wait_s` extends the request timeout."""
        connection = await (self.any_connection(lane) if node is None else self.connection(node, lane))
        return await connection.send(request, version=version, timeout_s=self.request_timeout_s + wait_s)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_s: float | None = None,
        should_retry: Callable[[ApiError], bool] = is_transient,
    ) -> T:
        """Return the result of `attempt`, retrying it within the time limit after transient errors."""
        return await retry(
            attempt, timeout_s=self.timeout_s if timeout_s is None else timeout_s, should_retry=should_retry
        )

    async def ask(self, request: Any, *, node: int | None = None) -> Any:
        """Send a request to a node, or to any, and retry it while no node is reachable."""
        return await self.retry(lambda: self.send(request, node=node))

    async def connection(self, node: int, lane: str = "") -> Connection:
        """Return an open connection to a node. Raise BrokerNotAvailable if the cluster has no such node."""
        if node not in self.nodes:
            await self.refresh()
        if node not in self.nodes:
            live = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise BrokerNotAvailable(f"broker {node} is not running; the running brokers are: {live}")
        return await self._open(self.nodes[node].address, lane, str(self.nodes[node]))

    async def any_connection(self, lane: str = "") -> Connection:
        """Return an open connection to any node: one that is already open, or the first that can be opened."""
        for (_, connection_lane), connection in self._connections.items():
            if connection_lane == lane and connection.is_open:
                return connection
        addresses = [node.address for node in self.nodes.values()]
        random.shuffle(addresses)
        failures = []
        for address in dict.fromkeys((*addresses, *self.servers)):
            try:
                return await self._open(address, lane, str(address))
            except (NetworkFailed, RequestTimedOut) as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise NetworkFailed("no broker can be reached: " + "; ".join(error.message for error in failures))

    async def refresh(self, topics: Iterable[str] = (), *, create: bool = False) -> MetadataResponse:
        """Refresh the nodes, and the partitions of these topics."""
        wanted = [MetadataRequestTopic(name=name) for name in topics]
        return await self._metadata(MetadataRequest(topics=wanted, allow_auto_topic_creation=create))

    async def topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        answer = await self._metadata(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return [topic_of(topic) for topic in sorted(answer.topics, key=lambda topic: topic.name or "")]

    def cached_topic(self, name: str) -> Topic | None:
        """Return a topic from the cache, or None if it is missing or too old."""
        topic, deadline = self._topics.get(name, (None, None))
        return None if deadline is None or deadline.has_passed else topic

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """Return a topic from the cache, or look it up. `create` allows the broker to auto-create it.

        Raises UnknownTopicOrPartition, and other errors that a broker returns for a topic.
        """
        if topic := self.cached_topic(name):
            return topic
        grace = Deadline(_CREATION_GRACE_S if create else _GRACE_S)
        attempts = 0
        while True:
            answer = await self.retry(lambda: self.refresh([name], create=create))
            codes = (entry.error_code for entry in answer.topics if entry.name == name)
            code = next(codes, UnknownTopicOrPartition.code)
            if topic := self.cached_topic(name):
                return topic
            pause_s = backoff_s(attempts)
            if code not in (UnknownTopicOrPartition.code, LeaderNotAvailable.code) or pause_s > grace.left_s:
                unknown = "there is no such topic" if code == UnknownTopicOrPartition.code else None
                raise error_from_code(code, unknown, f"topic {name!r}")
            attempts += 1
            await asyncio.sleep(pause_s)

    async def leader_of(self, topic: str, partition: int) -> Partition:
        """Return a partition that has a leader. Raise LeaderNotAvailable if it has none."""
        chosen = (await self.topic(topic)).partitions.get(partition)
        if chosen is None or chosen.leader == NO_LEADER:
            self.forget(topic)
            partitions = (await self.topic(topic)).partitions
            chosen = partitions.get(partition)
            if chosen is None:
                last = max(partitions, default=-1)
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {partition}; the last one is {last}")
        if chosen.leader == NO_LEADER:
            raise LeaderNotAvailable(
                f"{partition_label(topic, partition)}: no leader; its replicas are {list(chosen.replicas)}"
            )
        return chosen

    def forget(self, topic: str) -> None:
        """Mark the cached topic as outdated, so that it is looked up again."""
        cached = self._topics.get(topic)
        if cached is not None:
            # Keep its leader epochs, because the next broker may have older metadata.
            self._topics[topic] = cached[0], Deadline(0.0)

    def note_leader(self, topic: str, partition: int, leader: int, epoch: int, nodes: Mapping[int, Node]) -> bool:
        """Apply a broker's hint about the new leader (KIP-951). Return False if it is old or names an unknown node."""
        cached = self._topics.get(topic)
        if cached is None or partition not in cached[0].partitions or leader == NO_LEADER:
            return False
        if nodes:
            self.nodes = {**self.nodes, **nodes}
        if leader not in self.nodes or epoch <= cached[0].partitions[partition].leader_epoch:
            return False
        self._topics[topic] = cached[0].with_leader(partition, leader, epoch), cached[1]
        return True

    async def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer: MetadataResponse = await self.send(request)
        raise_for_code(answer.error_code, None, "metadata of the cluster")
        if answer.brokers:  # a node that has just started knows none yet
            self.nodes = nodes_by_id(answer.brokers)
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        for entry in answer.topics:
            if entry.error_code or entry.name is None:
                self._topics.pop(entry.name or "", None)
                continue
            topic = topic_of(entry)
            if (cached := self._topics.get(entry.name)) is not None and topic.id != ZERO_UUID:
                topic = topic.with_newer_leaders(cached[0])
            self._topics[entry.name] = topic, Deadline(self._max_age_s)
        return answer

    async def _open(self, address: Address, lane: str, name: str) -> Connection:
        key = address, lane
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_open:
                return connection
            try:
                connection = await Connection.connect(
                    address.host,
                    address.port,
                    client_id=self.client_id,
                    timeout_s=self._connect_timeout_s,
                    security=self._security,
                )
            except ApiError as error:
                hint = "" if address in self.servers else f" ({name} is from advertised.listeners of the cluster)"
                raise type(error)(error.message + hint) from error
            self._connections[key] = connection
            return connection
