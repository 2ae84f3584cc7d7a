"""What a query writes, without Spark: the rows of one task into batches for the partitions they go to.

A row goes to the partition that its column names, else to that of its key as Kafka's own producer chooses it, else to
any: rows without a key stay together for a batch's worth of bytes.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.client.metadata import TopicPartition
from ottla.client.producer_batches import ProducerIdentity
from ottla.client.producer_requests import init_producer_id
from ottla.spark.connector.cluster import BlockingCluster, shared
from ottla.spark.connector.rows import BadRow, Indices, Rows
from ottla.spark.connector.sending import Sender
from ottla.spark.connector.write_options import WriteOptions

_UNPLACED: Final = -1


class _Filling:
    """A batch that is not full yet."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.position = 0
        self.count = 0


class TaskWriter:
    """Writes the rows of one task through a sender."""

    def __init__(
        self,
        access: BlockingCluster,
        options: WriteOptions,
        sender: Sender,
        enlist: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        """`enlist` is told of each partition before anything goes to it: a transaction's coordinator wants to know."""
        self._access = access
        self._options = options
        self._sender = sender
        self._enlist = enlist
        self._filling: dict[TopicPartition, _Filling] = {}
        self.count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Deliver all rows; raises BadRow for one that cannot be a record."""
        try:
            for batch in batches:
                self._add(batch)
            for key in self._filling:
                self._pass_on(key)
            self._sender.flush()
        finally:
            self._sender.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name) for name in batch.schema.names}
        rows = Rows(columns.get("key"), columns["value"], columns.get("headers"), batch.num_rows)
        self.count += batch.num_rows
        for topic, members in self._by_topic(columns.get("topic"), batch.num_rows):
            chosen = self._choose(topic, rows, members, columns.get("partition"))
            order = np.argsort(chosen, kind="stable")
            edges = np.flatnonzero(np.diff(chosen[order])) + 1
            groups = np.split(order, edges)
            self._announce((topic, int(chosen[group[0]])) for group in groups if len(group))
            for group in groups:
                if len(group):
                    self._encode((topic, int(chosen[group[0]])), rows, members[group])

    def _by_topic(self, column: pa.Array | None, count: int) -> Iterator[tuple[str, Indices]]:
        """The rows of each topic; the option goes before the column."""
        everyone = np.arange(count, dtype=np.int32)
        if not count:
            return
        if self._options.topic is not None:
            yield self._options.topic, everyone
            return
        assert column is not None, "the schema was checked"
        if column.null_count:
            raise BadRow("column topic: is null in a row; the option topic says where such rows go")
        coded = column.dictionary_encode()
        numbers = coded.indices.to_numpy(zero_copy_only=False)
        for number, topic in enumerate(coded.dictionary.to_pylist()):
            yield topic, everyone[numbers == number]

    def _choose(self, topic: str, rows: Rows, members: Indices, column: pa.Array | None) -> Indices:
        """The partition of each of the topic's rows."""
        partitions = len(self._access.topic(topic, create=True).partitions)
        chosen = np.full(rows.count, _UNPLACED, dtype=np.int32)
        if column is not None:
            given = column.fill_null(_UNPLACED).to_numpy(zero_copy_only=False).astype(np.int32)
            wrong = given[members][(given[members] >= partitions) | (given[members] < _UNPLACED)]
            if len(wrong):
                raise BadRow(f"column partition: topic {topic!r} has no partition {wrong[0]}; it has {partitions}")
            chosen[:] = given
        rows.place(chosen, partitions)
        own: Indices = chosen[members]
        keyless = np.flatnonzero(own == _UNPLACED)
        if len(keyless):
            size = rows.size_bytes() * len(keyless) // max(rows.count, 1)
            parts = min(size // self._options.client.batch_bytes + 1, len(keyless))
            first = random.randrange(partitions)  # noqa: S311
            for number, part in enumerate(np.array_split(keyless, parts)):
                own[part] = (first + number) % partitions
        return own

    def _announce(self, keys: Iterable[TopicPartition]) -> None:
        new = [key for key in keys if key not in self._filling]
        if new and self._enlist is not None:
            self._enlist(new)
        for key in new:
            self._filling[key] = _Filling(self._options.client.batch_bytes)

    def _encode(self, key: TopicPartition, rows: Rows, members: Indices) -> None:
        filling = self._filling[key]
        start = 0
        while start < len(members):
            taken, filling.position = rows.encode(members, start, filling.buffer, filling.position, filling.count)
            start += taken
            filling.count += taken
            if start == len(members):
                return
            if filling.count:
                self._pass_on(key)
            else:
                self._grow(key, filling)

    def _grow(self, key: TopicPartition, filling: _Filling) -> None:
        """A single record does not fit: it gets a buffer of its own, as large as a request may be."""
        most = self._options.client.max_request_bytes
        if len(filling.buffer) >= most:
            raise BadRow(
                f"topic {key[0]!r}: a record is larger than {most} bytes; the option kafka.max.request.size allows more"
            )
        filling.buffer = bytearray(min(len(filling.buffer) * 2, most))

    def _pass_on(self, key: TopicPartition) -> None:
        filling = self._filling[key]
        if filling.count:
            self._sender.put(key, memoryview(filling.buffer)[: filling.position], filling.count)
        filling.position = filling.count = 0


def write_at_least_once(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Deliver a task's rows; how many. A task that is tried again writes them again."""
    access = shared(options.client)
    identity: ProducerIdentity | None = None
    if options.client.idempotent and options.client.acks == -1:
        identity = access.run(init_producer_id(access.cluster, insists=False))
    writer = TaskWriter(access, options, Sender(access, options.client, identity))
    writer.write(batches)
    return writer.count
