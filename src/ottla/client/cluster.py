"""A cluster as a client sees it: its nodes, a connection to each, its topics and their leaders.

Connections are opened when they are first needed, kept, and opened again when they broke. Requests that wait at the
broker go through a lane of their own: answers come in order, so that others would wait behind them.

`send` tries once. `retry` around it tries again, within the cluster's time limit, what is likely to pass.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.client.addresses import Address, parse_addresses
from ottla.client.connection import Connection
from ottla.client.metadata import NO_LEADER, Node, Partition, Topic, nodes_of, partition_label, topic_of
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
"""A broker may hear of a new topic a little later than who made it; with auto-creation it is being made meanwhile."""


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
        """Give up all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def send(
        self, request: Any, *, node: int | None = None, lane: str = "", version: int | None = None, wait_s: float = 0.0
    ) -> Any:
        """The answer of a node, or of any; `wait_s` is what the node may take on top of the usual time."""
        connection = await (self.any_connection(lane) if node is None else self.connection(node, lane))
        return await connection.send(request, version=version, timeout_s=self.request_timeout_s + wait_s)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_s: float | None = None,
        should_retry: Callable[[ApiError], bool] = is_transient,
    ) -> T:
        """What `attempt` returns, tried again within the time limit after errors that are likely to pass."""
        return await retry(
            attempt, timeout_s=self.timeout_s if timeout_s is None else timeout_s, should_retry=should_retry
        )

    async def ask(self, request: Any, *, node: int | None = None) -> Any:
        """The answer of a node, or of any, tried again while none can be reached."""
        return await self.retry(lambda: self.send(request, node=node))

    async def connection(self, node: int, lane: str = "") -> Connection:
        """An open connection to a node; raises BrokerNotAvailable if the cluster has no such node."""
        if node not in self.nodes:
            await self.refresh()
        if node not in self.nodes:
            known = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise BrokerNotAvailable(f"the cluster has no broker {node} that is up; those that are: {known}")
        return await self._open(self.nodes[node].address, lane, str(self.nodes[node]))

    async def any_connection(self, lane: str = "") -> Connection:
        """An open connection to any node: one that is open already, or the first that can be reached."""
        for (_, its_lane), connection in self._connections.items():
            if its_lane == lane and connection.is_open:
                return connection
        known = [node.address for node in self.nodes.values()]
        random.shuffle(known)
        failures = []
        for address in dict.fromkeys((*known, *self.servers)):
            try:
                return await self._open(address, lane, str(address))
            except (NetworkFailed, RequestTimedOut) as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise NetworkFailed("no broker can be reached: " + "; ".join(each.message for each in failures))

    async def refresh(self, topics: Iterable[str] = (), *, create: bool = False) -> MetadataResponse:
        """Learn anew which nodes there are, and the partitions of these topics."""
        wanted = [MetadataRequestTopic(name=name) for name in topics]
        return await self._metadata(MetadataRequest(topics=wanted, allow_auto_topic_creation=create))

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        answer = await self._metadata(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return [topic_of(each) for each in sorted(answer.topics, key=lambda each: each.name or "")]

    def cached_topic(self, name: str) -> Topic | None:
        """A topic that was looked up not too long ago."""
        topic, deadline = self._topics.get(name, (None, None))
        return None if deadline is None or deadline.has_passed else topic

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic; looked up, or remembered. `create` lets the broker make it, if it does that by itself.

        Raises UnknownTopicOrPartition, and the other errors that a broker may have for a topic.
        """
        if known := self.cached_topic(name):
            return known
        grace = Deadline(_CREATION_GRACE_S if create else _GRACE_S)
        attempts = 0
        while True:
            answer = await self.retry(lambda: self.refresh([name], create=create))
            code = next((each.error_code for each in answer.topics if each.name == name), UnknownTopicOrPartition.code)
            if known := self.cached_topic(name):
                return known
            pause_s = backoff_s(attempts)
            if code not in (UnknownTopicOrPartition.code, LeaderNotAvailable.code) or pause_s > grace.left_s:
                unknown = "there is no such topic" if code == UnknownTopicOrPartition.code else None
                raise error_from_code(code, unknown, f"topic {name!r}")
            attempts += 1
            await asyncio.sleep(pause_s)

    async def leader_of(self, topic: str, partition: int) -> Partition:
        """The partition, with a leader; raises LeaderNotAvailable if an election is due."""
        found = (await self.topic(topic)).partitions.get(partition)
        if found is None or found.leader == NO_LEADER:
            self.forget(topic)
            known = (await self.topic(topic)).partitions
            found = known.get(partition)
            if found is None:
                last = max(known, default=-1)
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {partition}; its last one is {last}")
        if found.leader == NO_LEADER:
            raise LeaderNotAvailable(
                f"{partition_label(topic, partition)}: no leader; its replicas are {list(found.replicas)}"
            )
        return found

    def forget(self, topic: str) -> None:
        """What is known of the topic is out of date: it will be looked up again."""
        known = self._topics.get(topic)
        if known is not None:
            # Kept for its epochs: the next broker that is asked may know less.
            self._topics[topic] = known[0], Deadline(0.0)

    def note_leader(self, topic: str, partition: int, leader: int, epoch: int, nodes: Mapping[int, Node]) -> bool:
        """Take a broker's hint who leads now (KIP-951). False if it is no news, or of a node that is not known."""
        known = self._topics.get(topic)
        if known is None or partition not in known[0].partitions or leader == NO_LEADER:
            return False
        if nodes:
            self.nodes = {**self.nodes, **nodes}
        if leader not in self.nodes or epoch <= known[0].partitions[partition].leader_epoch:
            return False
        self._topics[topic] = known[0].with_leader(partition, leader, epoch), known[1]
        return True

    async def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer: MetadataResponse = await self.send(request)
        raise_for_code(answer.error_code, None, "metadata of the cluster")
        if answer.brokers:  # a node that has only just started knows of none
            self.nodes = nodes_of(answer)
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        for each in answer.topics:
            if each.error_code or each.name is None:
                self._topics.pop(each.name or "", None)
                continue
            topic = topic_of(each)
            if (known := self._topics.get(each.name)) is not None and topic.id != ZERO_UUID:
                topic = topic.with_newer_leaders(known[0])
            self._topics[each.name] = topic, Deadline(self._max_age_s)
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
                hint = "" if address in self.servers else f" ({name} is the address that the cluster gives)"
                raise type(error)(error.message + hint) from error
            self._connections[key] = connection
            return connection
