"""A consumer of assigned partitions, from an offset, a timestamp or an end, up to the end or without end.

    consumer = Consumer(cluster)
    await consumer.assign("orders", start=EARLIEST)
    async for chunk in consumer.chunks():
        for record in chunk.records:
            ...

The next fetch is in flight while the caller processes a chunk. The consumer follows leader changes, and raises other
errors with their topic and partition.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.fetch_session import FetchSession, PartitionFetch
from ottla.client.fetched_records import Chunk, unpack
from ottla.client.metadata import TopicPartition, nodes_by_id, partition_label
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from ottla.client.retries import Deadline, add_location, backoff_s, error_from_code, is_transient, raise_for_code
from ottla.protocol.errors import ApiError, FetchSessionError, OffsetOutOfRange, UnknownTopicOrPartition
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.wire.types import ZERO_UUID

_LAST_WITH_NAMES: Final = 12
_LANE: Final = "fetch"


class FromTimestamp(NamedTuple):
    """Start at the first record with this timestamp or a later one, or at the end if no record has one."""

    timestamp_ms: int


class FromEnd(NamedTuple):
    """Start this number of offsets before the end."""

    offsets: int


class _Position:
    """The position of the consumer in a partition."""

    __slots__ = ("attempts", "failing_until", "leader", "not_before_s", "offset", "stop")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.stop: int | None = None
        self.leader: int | None = None
        self.attempts = 0
        self.failing_until: Deadline | None = None
        self.not_before_s = 0.0

    @property
    def is_done(self) -> bool:
        return self.stop is not None and self.offset >= self.stop


class Consumer:
    """Reads partitions of a cluster. Several clients may share the cluster object."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        committed: bool = True,
        sessions: bool = False,
        reset: int | None = None,
        max_wait_s: float = 0.5,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
    ) -> None:
        """`committed` hides records of open and aborted transactions. `reset` replaces an offset out of range."""
        self.cluster = cluster
        self._committed = committed
        self._sessions = sessions
        self._reset = reset
        self._max_wait_s = max_wait_s
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._positions: dict[TopicPartition, _Position] = {}
        self._nodes: dict[int, FetchSession] = {}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The fetch offset of each partition, which is after the chunk that the caller processes."""
        return {key: position.offset for key, position in self._positions.items()}

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: int | FromTimestamp | FromEnd = EARLIEST
    ) -> None:
        """Assign partitions of a topic, or all of them, from an offset, EARLIEST, LATEST or a timestamp."""
        existing = (await self.cluster.topic(topic)).partitions
        numbers = list(existing if partitions is None else dict.fromkeys(partitions))
        for number in numbers:
            if number not in existing:
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {number}; it has {len(existing)}")
        keys = [(topic, number) for number in numbers]
        for key, offset in (await self._resolve(keys, start)).items():
            self._positions[key] = _Position(offset)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Set the position of a partition. Must not be called while `chunks` runs."""
        self._positions[topic, partition] = _Position(offset)

    async def chunks(self, *, follow: bool = False) -> AsyncGenerator[Chunk, None]:
        """Yield records as they arrive, up to the current end of the partitions, or without end with `follow`."""
        if not follow:
            await self._set_stops()
        fetches: dict[int, asyncio.Task[list[Chunk]]] = {}
        try:
            while True:
                await self._launch(fetches)
                if not fetches and all(position.is_done for position in self._positions.values()):
                    return
                now_s = time.monotonic()
                pauses_s = [
                    state.not_before_s - now_s for state in self._positions.values() if state.not_before_s > now_s
                ]
                pause_s = min(pauses_s, default=None)
                if not fetches:
                    await asyncio.sleep(pause_s or 0.01)
                    continue
                done, _ = await asyncio.wait(fetches.values(), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                for node in [node for node, task in fetches.items() if task in done]:
                    chunks = fetches.pop(node).result()
                    await self._launch(fetches)
                    for chunk in chunks:
                        if chunk.records:
                            yield chunk
        finally:
            for task in fetches.values():
                task.cancel()
            await asyncio.gather(*fetches.values(), return_exceptions=True)

    async def _resolve(
        self, keys: list[TopicPartition], start: int | FromTimestamp | FromEnd
    ) -> dict[TopicPartition, int]:
        if isinstance(start, int) and start >= 0:
            return dict.fromkeys(keys, start)
        if isinstance(start, FromEnd):
            first, end = await self._ends(keys)
            return {key: max(first[key], end[key] - start.offsets) for key in keys}
        timestamp = start.timestamp_ms if isinstance(start, FromTimestamp) else start
        offsets = await list_offsets(self.cluster, dict.fromkeys(keys, timestamp), committed=self._committed)
        beyond = [key for key in keys if offsets[key].offset == NO_OFFSET]
        if beyond:
            offsets |= await list_offsets(self.cluster, dict.fromkeys(beyond, LATEST), committed=self._committed)
        return {key: offsets[key].offset for key in keys}

    async def _ends(self, keys: list[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        first = await list_offsets(self.cluster, dict.fromkeys(keys, EARLIEST))
        end = await list_offsets(self.cluster, dict.fromkeys(keys, LATEST), committed=self._committed)
        return {key: entry.offset for key, entry in first.items()}, {key: entry.offset for key, entry in end.items()}

    async def _set_stops(self) -> None:
        ends = await list_offsets(self.cluster, dict.fromkeys(self._positions, LATEST), committed=self._committed)
        for key, end in ends.items():
            self._positions[key].stop = end.offset

    async def _launch(self, fetches: dict[int, "asyncio.Task[list[Chunk]]"]) -> None:
        """Start a fetch on every node that leads a partition and has no fetch in flight."""
        now_s = time.monotonic()
        by_node: dict[int, list[TopicPartition]] = {}
        for key, position in self._positions.items():
            if position.is_done or position.not_before_s > now_s or position.leader in fetches:
                continue
            try:
                leader = await self.cluster.leader_of(*key)
            except ApiError as error:
                self._put_off(key, error)
                continue
            position.leader = leader.leader
            if leader.leader not in fetches:
                by_node.setdefault(leader.leader, []).append(key)
        for node, keys in by_node.items():
            fetches[node] = asyncio.ensure_future(self._fetch(node, keys))

    async def _fetch(self, node: int, keys: list[TopicPartition]) -> list[Chunk]:
        """Fetch once from a node, and advance the positions."""
        session = self._nodes.setdefault(node, FetchSession(enabled=self._sessions))
        try:
            answer, names = await self._exchange(node, keys, session)
        except ApiError as error:
            session.reset()
            for key in keys:
                self._put_off(key, error, at_once=isinstance(error, FetchSessionError))
            return []
        nodes = nodes_by_id(answer.node_endpoints)
        chunks: list[Chunk] = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                key = name, data.partition_index
                if key not in self._positions:
                    continue
                if data.error_code:
                    hint, moved = data.current_leader, False
                    if hint is not None:
                        moved = self.cluster.note_leader(*key, hint.leader_id, hint.leader_epoch, nodes)
                    await self._recover(key, data, moved=moved)
                else:
                    chunks += self._take(key, data)
        return chunks

    def _take(self, key: TopicPartition, data: PartitionData) -> list[Chunk]:
        position = self._positions[key]
        position.attempts, position.failing_until = 0, None
        chunks = list(unpack(*key, data, offset=position.offset, stop=position.stop, committed=self._committed))
        if chunks:
            position.offset = max(position.offset, chunks[-1].next_offset)
        return chunks

    async def _recover(self, key: TopicPartition, data: PartitionData, *, moved: bool) -> None:
        error = error_from_code(data.error_code, None, partition_label(*key))
        position = self._positions[key]
        if isinstance(error, OffsetOutOfRange):
            if self._reset is None:
                first, end = await self._ends([key])
                raise OffsetOutOfRange(
                    f"{partition_label(*key)}: offset {position.offset} is out of range: the partition has"
                    f" {first[key]} to {end[key] - 1}; choose another start offset"
                )
            position.offset = (await self._resolve([key], self._reset))[key]
        elif not moved:
            self._put_off(key, error)

    def _put_off(self, key: TopicPartition, error: ApiError, *, at_once: bool = False) -> None:
        """Retry the partition later, or raise an error that is not transient."""
        # A partition that was known may only be unknown to this node: the next metadata response decides.
        stale = isinstance(error, UnknownTopicOrPartition) and self.cluster.cached_topic(key[0]) is not None
        position = self._positions[key]
        if position.failing_until is None:
            position.failing_until = Deadline(self.cluster.timeout_s)
        if not (at_once or stale or is_transient(error)) or position.failing_until.has_passed:
            raise add_location(error, partition_label(*key))
        self.cluster.forget(key[0])
        position.leader = None
        position.not_before_s = time.monotonic() + (0.0 if at_once else backoff_s(position.attempts))
        position.attempts += 1

    async def _exchange(
        self, node: int, keys: list[TopicPartition], session: FetchSession
    ) -> tuple[FetchResponse, dict[bytes, str]]:
        connection = await self.cluster.connection(node, _LANE)
        wanted: dict[TopicPartition, PartitionFetch] = {}
        for key in keys:
            leader = await self.cluster.leader_of(*key)
            wanted[key] = PartitionFetch(
                self._topic_id(key[0]), self._positions[key].offset, leader.leader_epoch, self._partition_bytes
            )
        has_ids = all(asked.topic_id != ZERO_UUID for asked in wanted.values())
        version = connection.version_of(ApiKey.FETCH, at_most=None if has_ids else _LAST_WITH_NAMES)
        session_id, session_epoch = session.id, session.epoch
        topics, forgotten = session.request(wanted)
        request = FetchRequest(
            max_wait_ms=int(self._max_wait_s * 1000),
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=int(self._committed),
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer: FetchResponse = await connection.send(
            request, version=version, timeout_s=self.cluster.request_timeout_s + self._max_wait_s
        )
        raise_for_code(answer.error_code, None, f"fetch from {connection.address}")
        session.advance(answer.session_id)
        return answer, {asked.topic_id: name for (name, _), asked in wanted.items()}

    def _topic_id(self, name: str) -> bytes:
        topic = self.cluster.cached_topic(name)
        return ZERO_UUID if topic is None else topic.id
