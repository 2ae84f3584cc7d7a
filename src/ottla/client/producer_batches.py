"""The undelivered records of a producer, in batches that are queued per partition.

A queue has one batch in flight at a time, so that records stay in order even after errors. A retry sends the same bytes
with the same sequence, so that a broker recognizes a batch that it already has.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.retries import Deadline
from ottla.protocol.wire.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch

_RECORD_OVERHEAD: Final = 21
"""The largest size of the lengths and deltas of a record of less than 2 GiB."""


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of a delivered record. With acks=0 the offset is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class BatchResult(NamedTuple):
    """A broker's result for a batch: its first offset, and its append time with LogAppendTime, else -1."""

    base_offset: int
    append_time_ms: int


class ProducerIdentity(NamedTuple):
    """The producer id and epoch, with which brokers recognize duplicates."""

    producer_id: int
    epoch: int


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an upper bound for the size of a record before compression."""
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


class Batch:
    """Records that are sent together, with one future for all of them."""

    __slots__ = (
        "attempts",
        "deadline",
        "done",
        "halves",
        "identity",
        "is_due",
        "payload",
        "payload_bytes",
        "records",
        "sequence",
        "started_s",
    )

    def __init__(self, now_s: float, deadline: Deadline) -> None:
        self.records: list[Record] = []
        self.payload_bytes = 0
        """An upper bound for the size of the records before compression. The code that adds records updates it."""
        self.started_s = now_s
        self.deadline = deadline
        self.done: asyncio.Future[BatchResult | None] = asyncio.get_running_loop().create_future()
        self.halves: tuple[Batch, Batch] | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = NO_SEQUENCE
        self.payload: bytearray | None = None
        self.attempts = 0
        self.is_due = False

    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> int:
        """Add a record and return its number in the batch."""
        number = len(self.records)
        self.records.append(Record(number, timestamp, key, value, headers))
        return number

    def build(self, compression: Compression, level: int | None) -> bytearray:
        """Return the batch as bytes, which are built once."""
        if self.payload is None:
            identity = self.identity or ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            self.payload = build_batch(
                self.records,
                compression=compression,
                level=level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.sequence,
            )
        return self.payload

    def split(self) -> tuple["Batch", "Batch"]:
        """Split a batch that is too large for the broker into two."""
        middle = len(self.records) // 2
        halves = Batch(self.started_s, self.deadline), Batch(self.started_s, self.deadline)
        for half, records in zip(halves, (self.records[:middle], self.records[middle:]), strict=True):
            half.is_due = True
            for _, timestamp, key, value, headers in records:
                half.payload_bytes += record_bytes(key, value, headers)
                half.add(timestamp, key, value, headers)
        self.halves = halves
        self.done.set_result(None)
        return halves


class Delivery:
    """A record in delivery. Awaiting it returns the record's metadata, or raises the error of the delivery."""

    __slots__ = ("_batch", "_number", "_partition", "_topic")

    def __init__(self, topic: str, partition: int, batch: Batch, number: int) -> None:
        self._topic = topic
        self._partition = partition
        self._batch = batch
        self._number = number

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, number = self._batch, self._number
        while True:
            # Cancelling one waiter must not cancel the future for the other records of the batch.
            result = yield from asyncio.shield(batch.done).__await__()
            if batch.halves is None:
                break
            first, second = batch.halves
            batch, number = (first, number) if number < len(first.records) else (second, number - len(first.records))
        assert result is not None, "only a batch that was split ends without a result"
        base, append_time_ms = result
        timestamp = append_time_ms if append_time_ms >= 0 else batch.records[number].timestamp
        return RecordMetadata(self._topic, self._partition, base + number if base >= 0 else -1, timestamp)


class PartitionQueue:
    """The batches of one partition, in order."""

    __slots__ = ("batches", "identity", "is_busy", "next_sequence", "not_before_s", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.is_busy = False
        self.not_before_s = 0.0
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0

    def open_batch(self, size: int, batch_bytes: int) -> Batch | None:
        """Return the last batch if it can take another record: it is not full and was not sent."""
        if not self.batches or (self.is_busy and len(self.batches) == 1):
            return None
        last = self.batches[-1]
        return last if last.payload is None and last.payload_bytes + size <= batch_bytes else None

    def ready_at_s(self, linger_s: float, batch_bytes: int) -> float:
        """Return when the first batch may be sent: at once if it is full, else after it has lingered."""
        first = self.batches[0]
        full = len(self.batches) > 1 or first.payload_bytes >= batch_bytes
        at_once = full or first.is_due or first.attempts > 0
        return self.not_before_s if at_once else max(self.not_before_s, first.started_s + linger_s)

    def assign_sequence(self, batch: Batch, identity: ProducerIdentity | None) -> None:
        """Assign the batch its sequence before it is sent for the first time."""
        if batch.payload is not None or identity is None:
            return
        if self.identity != identity:
            self.identity, self.next_sequence = identity, 0
        batch.identity = identity
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + len(batch.records)) & MAX_INT32

    def split_first(self) -> tuple[Batch, Batch]:
        """Replace the first batch, which no broker has written, by two halves."""
        whole = self.batches.popleft()
        if whole.identity is not None:
            self.next_sequence = whole.sequence
        halves = whole.split()
        self.batches.extendleft(reversed(halves))
        return halves
