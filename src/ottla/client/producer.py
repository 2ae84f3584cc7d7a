"""A producer: records in, batches out to the leaders of their partitions, in order, tried again while it makes sense.

    async with Producer(cluster, compression=Compression.LZ4) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        print((await delivery).offset)

With acks=-1 it is idempotent where the broker allows: what is sent twice is written once. Leaving the block flushes.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from ottla.client.cluster import Cluster
from ottla.client.metadata import Topic, TopicPartition, partition_label
from ottla.client.partitioning import StickyPartitioner, partition_for_key
from ottla.client.producer_batches import Batch, BatchResult, Delivery, PartitionQueue, ProducerIdentity, record_bytes
from ottla.client.producer_requests import BatchAnswer, init_producer_id, send_batches
from ottla.client.retries import Deadline, add_location, backoff_s
from ottla.protocol.errors import (
    ApiError,
    DuplicateSequenceNumber,
    InvalidRecord,
    MessageTooLarge,
    NetworkFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.errors import ProtocolError

ALL: Final = -1
"""Acks from all replicas that are in sync."""


class Producer:
    """Sends records to a cluster; used from one event loop. Its cluster may be shared."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ALL,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        idempotent: bool | None = None,
        linger_s: float = 0.005,
        batch_bytes: int = 256 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        delivery_timeout_s: float = 120.0,
        create_topics: bool = True,
    ) -> None:
        """`idempotent` None means where it can be; True makes it an error where it cannot."""
        assert acks in (-1, 0, 1), f"acks is -1, 0 or 1, not {acks}"
        assert not (idempotent and acks != ALL), "an idempotent producer needs acks of all replicas"
        self.cluster = cluster
        self.acks = acks
        self.records_sent = 0
        self._compression = compression
        self._level = level
        self._idempotent = acks == ALL and idempotent is not False
        self._insists = idempotent is True
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._buffered_bytes = 0
        self._timeout_s = delivery_timeout_s
        self._create_topics = create_topics
        self._random = random.Random()  # noqa: S311
        self._sticky: dict[str, StickyPartitioner] = {}
        self._lanes: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: set[PartitionQueue] = set()
        """Lanes that have something to send and are not sending."""
        self._unsettled: set[Batch] = set()
        self._failure: ApiError | None = None
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand over a record; waits only for room in the buffer. Awaiting the result waits for the broker."""
        found = self.cluster.cached_topic(topic) or await self.cluster.topic(topic, create=self._create_topics)
        size = record_bytes(key, value, headers)
        while self._buffered_bytes and self._buffered_bytes + size > self._buffer_bytes:
            self._room.clear()
            await self._room.wait()
        if partition is None:
            partition = self._choose(found, key, size)
        elif partition not in found.partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has {len(found.partitions)} partitions; {partition} is none"
            )
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch = self._batch_for(topic, partition, size)
        batch.payload_bytes += size
        self._buffered_bytes += size
        number = batch.add(timestamp, key, value, headers)
        if number == 0:
            await asyncio.sleep(0)  # the batch before it may be full: let it go
        return Delivery(topic, partition, batch, number)

    async def flush(self) -> None:
        """Return when everything that was handed over is settled; raises the first failure since the last flush."""
        while self._unsettled:
            for batch in self._unsettled:
                batch.is_due = True
            self._work.set()
            await asyncio.wait([batch.done for batch in self._unsettled])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, and stop."""
        try:
            await self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop at once: what is not settled never will be."""
        for task in self._tasks:
            task.cancel()
        if self._sender is not None:
            self._sender.cancel()
        for batch in self._unsettled:
            batch.done.set_exception(NetworkFailed("the producer was closed before the record was written"))
            batch.done.exception()
        self._unsettled.clear()

    def _choose(self, topic: Topic, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        if topic.name not in self._sticky:
            self._sticky[topic.name] = StickyPartitioner(self._batch_bytes, self._random)
        return self._sticky[topic.name].choose(topic, size)

    def _batch_for(self, topic: str, partition: int, size: int) -> Batch:
        """The batch that is being filled, or a new one if that is full or on its way."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = PartitionQueue(topic, partition)
        if (filling := lane.open_batch(size, self._batch_bytes)) is not None:
            return filling
        batch = Batch(time.monotonic(), Deadline(self._timeout_s))
        lane.queue.append(batch)
        self._unsettled.add(batch)
        if not lane.is_busy:
            self._waiting.add(lane)
            self._work.set()
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._run())
        return batch

    async def _run(self) -> None:
        """Send what is ready, then sleep until something is."""
        while True:
            self._work.clear()
            now_s = time.monotonic()
            ready, next_s = [], now_s + 60.0
            for lane in self._waiting:
                at_s = lane.ready_at_s(self._linger_s, self._batch_bytes)
                if at_s <= now_s:
                    ready.append(lane)
                else:
                    next_s = min(next_s, at_s)
            if ready:
                self._dispatch(ready)
                continue
            try:
                async with asyncio.timeout(next_s - now_s):
                    await self._work.wait()
            except TimeoutError:
                continue

    def _dispatch(self, lanes: list[PartitionQueue]) -> None:
        for lane in lanes:
            lane.is_busy = True
            self._waiting.discard(lane)
        task = asyncio.ensure_future(self._deliver(lanes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, lanes: list[PartitionQueue]) -> None:
        """Send the first batch of each lane to its leader, all of a node in one request."""
        by_node: dict[int, list[PartitionQueue]] = {}
        identity = None
        for lane in lanes:
            try:
                identity = await self._identify()
                leader = await self.cluster.leader_of(lane.topic, lane.partition)
            except ApiError as error:
                self._fail(lane, error)
            else:
                by_node.setdefault(leader.leader, []).append(lane)
        await asyncio.gather(*(self._deliver_to(node, part, identity) for node, part in by_node.items()))

    async def _deliver_to(self, node: int, lanes: list[PartitionQueue], identity: ProducerIdentity | None) -> None:
        payloads = {}
        for lane in lanes:
            # Numbered and built in one step: nothing may be added to a batch that has its place in the sequence.
            lane.assign_sequence(lane.queue[0], identity)
            try:
                payloads[lane.topic, lane.partition] = lane.queue[0].build(self._compression, self._level)
            except ProtocolError as error:
                self._fail(lane, InvalidRecord(str(error)))
        sent = [lane for lane in lanes if (lane.topic, lane.partition) in payloads]
        answers: Mapping[TopicPartition, BatchAnswer]
        try:
            answers = await send_batches(self.cluster, node, payloads, self.acks) if payloads else {}
        except ApiError as error:
            answers = dict.fromkeys(payloads, (error, False))
        for lane in sent:
            match answers[lane.topic, lane.partition]:
                case BatchResult() as settled:
                    self._settle(lane, settled)
                case (refused, moved):
                    self._fail(lane, refused, moved=moved)

    async def _identify(self) -> ProducerIdentity | None:
        async with self._identifying:
            if self._identity is None and self._idempotent:
                self._identity = await init_producer_id(self.cluster, insists=self._insists)
                self._idempotent = self._identity is not None
            return self._identity

    def _settle(self, lane: PartitionQueue, settled: BatchResult) -> None:
        batch = lane.queue.popleft()
        batch.done.set_result(settled)
        self.records_sent += len(batch.records)
        self._drop(batch)
        self._resume(lane)

    def _fail(self, lane: PartitionQueue, error: ApiError, *, moved: bool = False) -> None:
        """Try the lane's first batch again, in halves if it is too large, or give it up."""
        batch = lane.queue[0]
        if isinstance(error, DuplicateSequenceNumber):
            self._settle(lane, BatchResult(-1, -1))  # written before, and too long ago for the broker to know where
            return
        pause_s = 0.0 if moved and not batch.attempts else backoff_s(batch.attempts)
        batch.attempts += 1
        if error.retriable and pause_s < batch.deadline.left_s:
            if not moved:
                self.cluster.forget(lane.topic)
            lane.not_before_s = time.monotonic() + pause_s
        elif isinstance(error, MessageTooLarge) and len(batch.records) > 1:
            self._unsettled.discard(batch)
            self._unsettled.update(lane.split_first())
        else:
            self._give_up(lane, error)
        self._resume(lane)

    def _give_up(self, lane: PartitionQueue, error: ApiError) -> None:
        batch = lane.queue.popleft()
        if batch.identity is not None and batch.identity == self._identity:
            # It may have been written or not, and the next sequence with it: brokers start afresh with a new id.
            self._identity = None
        told = add_location(error, partition_label(lane.topic, lane.partition))
        batch.done.set_exception(told)
        batch.done.exception()  # nobody need wait for it: flush will tell
        self._failure = self._failure or told
        self._drop(batch)

    def _drop(self, batch: Batch) -> None:
        self._unsettled.discard(batch)
        self._buffered_bytes -= batch.payload_bytes
        self._room.set()

    def _resume(self, lane: PartitionQueue) -> None:
        lane.is_busy = False
        if lane.queue:
            self._waiting.add(lane)
            self._work.set()
