"""A producer, which sends records in batches to the leaders of their partitions, in order and with retries.

    async with Producer(cluster, compression=Compression.LZ4) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        print((await delivery).offset)

With acks=-1 it is idempotent if the broker allows that, so a retry never writes a record twice. Leaving the block
flushes.
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
"""Acknowledgement by all in-sync replicas."""


class Producer:
    """Sends records to a cluster, from one event loop. Several clients may share the cluster object."""

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
        """`idempotent` None means if the broker allows it; with True it is an error if the broker does not."""
        assert acks in (-1, 0, 1), f"acks must be -1, 0 or 1, not {acks}"
        assert not (idempotent and acks != ALL), "an idempotent producer needs acks=-1"
        self.cluster = cluster
        self.acks = acks
        self.records_sent = 0
        self._compression = compression
        self._level = level
        self._idempotent = acks == ALL and idempotent is not False
        self._requires_identity = idempotent is True
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
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: set[PartitionQueue] = set()
        """Queues with a batch to send and none in flight."""
        self._incomplete: set[Batch] = set()
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
        """Queue a record, waiting only for buffer space. Awaiting the returned delivery waits for the broker."""
        target = self.cluster.cached_topic(topic) or await self.cluster.topic(topic, create=self._create_topics)
        size = record_bytes(key, value, headers)
        while self._buffered_bytes and self._buffered_bytes + size > self._buffer_bytes:
            self._room.clear()
            await self._room.wait()
        if partition is None:
            partition = self._choose(target, key, size)
        elif partition not in target.partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has no partition {partition}; it has {len(target.partitions)}"
            )
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch = self._batch_for(topic, partition, size)
        batch.payload_bytes += size
        self._buffered_bytes += size
        number = batch.add(timestamp, key, value, headers)
        if number == 0:
            await asyncio.sleep(0)  # let the sender send the previous batch, which may be full
        return Delivery(topic, partition, batch, number)

    async def flush(self) -> None:
        """Wait until all queued records are delivered or failed. Raise the first error since the last flush."""
        while self._incomplete:
            for batch in self._incomplete:
                batch.is_due = True
            self._work.set()
            await asyncio.wait([batch.done for batch in self._incomplete])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush and stop."""
        try:
            await self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop at once. Records that are not delivered fail."""
        for task in self._tasks:
            task.cancel()
        if self._sender is not None:
            self._sender.cancel()
        for batch in self._incomplete:
            batch.done.set_exception(NetworkFailed("the producer was closed before the record was written"))
            batch.done.exception()
        self._incomplete.clear()

    def _choose(self, topic: Topic, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        if topic.name not in self._sticky:
            self._sticky[topic.name] = StickyPartitioner(self._batch_bytes, self._random)
        return self._sticky[topic.name].choose(topic, size)

    def _batch_for(self, topic: str, partition: int, size: int) -> Batch:
        """Return the open batch of a partition, or a new one if it is full or in flight."""
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition)
        if (batch := queue.open_batch(size, self._batch_bytes)) is not None:
            return batch
        batch = Batch(time.monotonic(), Deadline(self._timeout_s))
        queue.batches.append(batch)
        self._incomplete.add(batch)
        if not queue.is_busy:
            self._waiting.add(queue)
            self._work.set()
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._run())
        return batch

    async def _run(self) -> None:
        """Send batches that are ready, and sleep until the next is ready."""
        while True:
            self._work.clear()
            now_s = time.monotonic()
            ready, next_s = [], now_s + 60.0
            for queue in self._waiting:
                at_s = queue.ready_at_s(self._linger_s, self._batch_bytes)
                if at_s <= now_s:
                    ready.append(queue)
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

    def _dispatch(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            queue.is_busy = True
            self._waiting.discard(queue)
        task = asyncio.ensure_future(self._deliver(queues))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, queues: list[PartitionQueue]) -> None:
        """Send the first batch of each queue to its leader, with one request per node."""
        by_node: dict[int, list[PartitionQueue]] = {}
        identity = None
        for queue in queues:
            try:
                identity = await self._identify()
                leader = await self.cluster.leader_of(queue.topic, queue.partition)
            except ApiError as error:
                self._fail(queue, error)
            else:
                by_node.setdefault(leader.leader, []).append(queue)
        await asyncio.gather(*(self._deliver_to(node, part, identity) for node, part in by_node.items()))

    async def _deliver_to(self, node: int, queues: list[PartitionQueue], identity: ProducerIdentity | None) -> None:
        payloads = {}
        for queue in queues:
            # Without an await in between: a batch with a sequence must not grow.
            queue.assign_sequence(queue.batches[0], identity)
            try:
                payloads[queue.topic, queue.partition] = queue.batches[0].build(self._compression, self._level)
            except ProtocolError as error:
                self._fail(queue, InvalidRecord(str(error)))
        sent = [queue for queue in queues if (queue.topic, queue.partition) in payloads]
        answers: Mapping[TopicPartition, BatchAnswer]
        try:
            answers = await send_batches(self.cluster, node, payloads, self.acks) if payloads else {}
        except ApiError as error:
            answers = dict.fromkeys(payloads, (error, False))
        for queue in sent:
            match answers[queue.topic, queue.partition]:
                case BatchResult() as result:
                    self._complete(queue, result)
                case (failure, moved):
                    self._fail(queue, failure, moved=moved)

    async def _identify(self) -> ProducerIdentity | None:
        async with self._identifying:
            if self._identity is None and self._idempotent:
                self._identity = await init_producer_id(self.cluster, required=self._requires_identity)
                self._idempotent = self._identity is not None
            return self._identity

    def _complete(self, queue: PartitionQueue, result: BatchResult) -> None:
        batch = queue.batches.popleft()
        batch.done.set_result(result)
        self.records_sent += len(batch.records)
        self._release(batch)
        self._resume(queue)

    def _fail(self, queue: PartitionQueue, error: ApiError, *, moved: bool = False) -> None:
        """Retry the first batch of a queue, in two halves if it is too large, or give it up."""
        batch = queue.batches[0]
        if isinstance(error, DuplicateSequenceNumber):
            self._complete(queue, BatchResult(-1, -1))  # already written, but the broker no longer knows its offset
            return
        pause_s = 0.0 if moved and not batch.attempts else backoff_s(batch.attempts)
        batch.attempts += 1
        if error.retriable and pause_s < batch.deadline.left_s:
            if not moved:
                self.cluster.forget(queue.topic)
            queue.not_before_s = time.monotonic() + pause_s
        elif isinstance(error, MessageTooLarge) and len(batch.records) > 1:
            self._incomplete.discard(batch)
            self._incomplete.update(queue.split_first())
        else:
            self._give_up(queue, error)
        self._resume(queue)

    def _give_up(self, queue: PartitionQueue, error: ApiError) -> None:
        batch = queue.batches.popleft()
        if batch.identity is not None and batch.identity == self._identity:
            # The batch may have been written, so the next sequence is unknown. A new producer id starts a new sequence.
            self._identity = None
        error = add_location(error, partition_label(queue.topic, queue.partition))
        batch.done.set_exception(error)
        batch.done.exception()  # marks it as retrieved: flush raises it too
        self._failure = self._failure or error
        self._release(batch)

    def _release(self, batch: Batch) -> None:
        self._incomplete.discard(batch)
        self._buffered_bytes -= batch.payload_bytes
        self._room.set()

    def _resume(self, queue: PartitionQueue) -> None:
        queue.is_busy = False
        if queue.batches:
            self._waiting.add(queue)
            self._work.set()
