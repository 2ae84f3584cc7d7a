"""The sink without Spark: groups the rows of one task into batches by partition.

A row goes to the partition in its column `partition`. Without one, its key decides, as in Kafka's own producer. Rows
with neither go to random partitions, one batch's worth of bytes at a time.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.client.metadata import TopicPartition
from ottla.client.producer_batches import ProducerIdentity
from ottla.client.producer_requests import init_producer_id
from ottla.spark.connector.cluster import BlockingCluster, shared_cluster
from ottla.spark.connector.rows import BadRow, Indices, Rows
from ottla.spark.connector.sender import Sender
from ottla.spark.connector.write_options import WriteOptions

_UNPLACED: Final = -1


class _OpenBatch:
    """A batch that is not full yet."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.position = 0
        self.count = 0


class TaskWriter:
    """Writes the rows of one task through a sender."""

    def __init__(
        self,
        cluster: BlockingCluster,
        options: WriteOptions,
        sender: Sender,
        enlist: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        """Call `enlist` for each partition before the first write to it, as the transaction coordinator requires."""
        self._cluster = cluster
        self._options = options
        self._sender = sender
        self._enlist = enlist
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self.count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Deliver all rows; raise BadRow for a row that cannot be a record."""
        try:
            for batch in batches:
                self._add(batch)
            for key in self._open:
                self._send(key)
            self._sender.flush()
        finally:
            self._sender.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name) for name in batch.schema.names}
        rows = Rows(columns.get("key"), columns["value"], columns.get("headers"), batch.num_rows)
        self.count += batch.num_rows
        for topic, members in self._group_by_topic(columns.get("topic"), batch.num_rows):
            chosen = self._choose_partitions(topic, rows, members, columns.get("partition"))
            order = np.argsort(chosen, kind="stable")
            edges = np.flatnonzero(np.diff(chosen[order])) + 1
            groups = np.split(order, edges)
            self._open_batches((topic, int(chosen[group[0]])) for group in groups if len(group))
            for group in groups:
                if len(group):
                    self._encode((topic, int(chosen[group[0]])), rows, members[group])

    def _group_by_topic(self, column: pa.Array | None, count: int) -> Iterator[tuple[str, Indices]]:
        """Yield the rows of each topic. The option takes precedence over the column."""
        indices = np.arange(count, dtype=np.int32)
        if not count:
            return
        if self._options.topic is not None:
            yield self._options.topic, indices
            return
        assert column is not None, "the schema was checked"
        if column.null_count:
            raise BadRow(
                "column topic: a row has null; fill the column, or write all rows to one topic by the option topic"
            )
        encoded = column.dictionary_encode()
        topic_indices = encoded.indices.to_numpy(zero_copy_only=False)
        for topic_index, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, indices[topic_indices == topic_index]

    def _choose_partitions(self, topic: str, rows: Rows, members: Indices, column: pa.Array | None) -> Indices:
        """Return the partition of each of the topic's rows."""
        partitions = len(self._cluster.topic(topic, create=True).partitions)
        chosen = np.full(rows.count, _UNPLACED, dtype=np.int32)
        if column is not None:
            given = column.fill_null(_UNPLACED).to_numpy(zero_copy_only=False).astype(np.int32)
            wrong = given[members][(given[members] >= partitions) | (given[members] < _UNPLACED)]
            if len(wrong):
                raise BadRow(
                    f"column partition: topic {topic!r} has no partition {wrong[0]}; use 0 to {partitions - 1}, "
                    "or null to choose by key"
                )
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

    def _open_batches(self, keys: Iterable[TopicPartition]) -> None:
        new = [key for key in keys if key not in self._open]
        if new and self._enlist is not None:
            self._enlist(new)
        for key in new:
            self._open[key] = _OpenBatch(self._options.client.batch_bytes)

    def _encode(self, key: TopicPartition, rows: Rows, members: Indices) -> None:
        open_batch = self._open[key]
        start = 0
        while start < len(members):
            taken, open_batch.position = rows.encode(
                members, start, open_batch.buffer, open_batch.position, open_batch.count
            )
            start += taken
            open_batch.count += taken
            if start == len(members):
                return
            if open_batch.count:
                self._send(key)
            else:
                self._grow(key, open_batch)

    def _grow(self, key: TopicPartition, open_batch: _OpenBatch) -> None:
        """Enlarge the buffer for a record that does not fit, up to the largest request."""
        most = self._options.client.max_request_bytes
        if len(open_batch.buffer) >= most:
            raise BadRow(
                f"topic {key[0]!r}: a record is larger than kafka.max.request.size={most} bytes; raise this option"
            )
        open_batch.buffer = bytearray(min(len(open_batch.buffer) * 2, most))

    def _send(self, key: TopicPartition) -> None:
        open_batch = self._open[key]
        if open_batch.count:
            self._sender.put(key, memoryview(open_batch.buffer)[: open_batch.position], open_batch.count)
        open_batch.position = open_batch.count = 0


def write_at_least_once(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Deliver a task's rows and return their count. A retried task writes its rows again."""
    cluster = shared_cluster(options.client)
    identity: ProducerIdentity | None = None
    if options.client.idempotent and options.client.acks == -1:
        identity = cluster.run(init_producer_id(cluster.async_cluster, required=False))
    writer = TaskWriter(cluster, options, Sender(cluster, options.client, identity))
    writer.write(batches)
    return writer.count
