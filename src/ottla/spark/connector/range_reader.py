"""Reads a range of one partition's offsets from its leader, as Arrow batches.

The next fetch is in flight while the last one is decoded. The reader follows the partition to a new leader. It skips
offsets without visible records (control batches, aborted transactions, compacted records); only offsets that the broker
no longer has count as data loss.
"""

import logging
import time
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from ottla.client.fetched_records import AbortedTransactions
from ottla.client.metadata import partition_label
from ottla.client.retries import Deadline, add_location, backoff_s, error_from_code, is_transient
from ottla.protocol.errors import ApiError, CorruptMessage, OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.wire.batch import HEADER_BYTES, BatchHeader, check_crc, check_stored, read_batches
from ottla.protocol.wire.compression import Compression, decompress
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import MAX_PAYLOAD_BYTES, read_records
from ottla.protocol.wire.types import ZERO_UUID
from ottla.spark.connector.broker_connection import BrokerConnection
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.cluster import BlockingCluster
from ottla.spark.connector.columns import ColumnDecoder, DecompressedBatch

_LAST_WITH_NAMES: Final = 12
_FIRST_FETCH_BYTES: Final = 1 << 20
_ROWS: Final = 10_000
_BYTES: Final = 2 << 20
"""An Arrow batch ends after this many rows or bytes. Allocators return larger buffers to the system, and mapping new
pages for each batch costs more than filling them."""

_log = logging.getLogger(__name__)


class DataLost(Exception):
    """The query was to read offsets that the partition no longer has."""


class Range(NamedTuple):
    """The offsets of one partition from `start` up to, but excluding, `stop`."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{partition_label(self.topic, self.partition)}, offsets {self.start} to {self.stop - 1}"


class RangeReader:
    """Reads one range. An instance is used once."""

    def __init__(
        self,
        cluster: BlockingCluster,
        settings: ClientSettings,
        wanted: Range,
        schema: pa.Schema,
        *,
        fail_on_data_loss: bool,
        patience_s: float,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._wanted = wanted
        self._key = wanted.topic, wanted.partition
        self._columns = ColumnDecoder(schema, *self._key)
        self._fail_on_data_loss = fail_on_data_loss
        self._patience_s = patience_s
        self._position = wanted.start
        self._max_bytes = min(_FIRST_FETCH_BYTES, settings.partition_fetch_bytes)
        self._node = -1
        self._connection: BrokerConnection | None = None

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of the range. A permanent error is raised with the topic, partition and offset."""
        patience = Deadline(self._patience_s)
        attempts = 0
        try:
            while self._position < self._wanted.stop:
                try:
                    data = self._fetch()
                except OffsetOutOfRange as error:
                    self._skip_lost(error)
                    continue
                except ApiError as error:
                    self._drop_connection()
                    stale = isinstance(error, UnknownTopicOrPartition) and attempts < 3
                    if not (stale or is_transient(error)) or patience.has_passed:
                        raise add_location(error, str(self._wanted)) from error
                    self._cluster.async_cluster.forget(self._wanted.topic)
                    time.sleep(backoff_s(attempts))
                    attempts += 1
                    continue
                before = self._position
                yield from self._decode(data)
                if self._position > before:
                    patience, attempts = Deadline(self._patience_s), 0
                elif patience.has_passed:
                    raise RequestTimedOut(
                        f"{self._wanted}: no records from offset {before} within {self._patience_s:g} s; check the "
                        "partition's leader, or raise kafkaConsumer.pollTimeoutMs"
                    )
            self._release_connection()
        finally:
            # The garbage collector may finalize an abandoned reader after its socket, so nothing is sent here.
            self._drop_connection()

    def _fetch(self) -> PartitionData:
        """Return the response to the fetch at the position; the request may have been sent ahead."""
        connection = self._connected()
        if connection.is_idle:
            self._send(connection, self._position)
        answer: FetchResponse = connection.receive(self._settings.fetch_max_wait_s)
        if answer.error_code:
            raise error_from_code(answer.error_code, None, f"fetch from {connection.address}")
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise error_from_code(
                        data.error_code, None, f"{partition_label(*self._key)}, offset {self._position}"
                    )
                return data
        raise RequestTimedOut(f"the response of {connection.address} lacks {partition_label(*self._key)}")

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            self._node = self._cluster.leader_of(self._key).leader
            self._connection = self._cluster.borrow_connection(self._node)
        return self._connection

    def _send(self, connection: BrokerConnection, position: int) -> None:
        topic, partition = self._key
        topic_id = self._cluster.topic(topic).id
        partition_request = FetchPartition(
            partition=partition,
            current_leader_epoch=self._cluster.leader_of(self._key).leader_epoch,
            fetch_offset=position,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=int(self._settings.fetch_max_wait_s * 1000),
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=max(self._settings.fetch_max_bytes, self._max_bytes),
            isolation_level=int(self._settings.committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition_request])],
        )
        connection.send(
            request, connection.version_of(ApiKey.FETCH, at_most=_LAST_WITH_NAMES if topic_id == ZERO_UUID else None)
        )
        self._max_bytes = min(self._max_bytes * 2, self._settings.partition_fetch_bytes)

    def _send_ahead(self, connection: BrokerConnection) -> None:
        try:
            self._send(connection, self._position)
        except ApiError:
            self._drop_connection()  # the next fetch fails in the same way, and its caller decides whether to retry

    def _decode(self, data: PartitionData) -> Iterator[pa.RecordBatch]:
        """Decode a response. The next fetch is sent as soon as the response is validated."""
        first, stop = self._position, self._wanted.stop
        buffer = memoryview(data.records) if data.records else memoryview(b"")  # type: ignore[arg-type]
        try:
            visible = self._visible_batches(data, buffer)
            if first < self._position < stop and self._connection is not None:
                self._send_ahead(self._connection)
            pieces: list[DecompressedBatch] = []
            rows = size = 0
            for position, header in visible:
                payload = _payload(buffer, position, header)
                pieces.append(DecompressedBatch(header, payload))
                rows += header.record_count
                size += len(payload)
                if rows >= _ROWS or size >= _BYTES:
                    yield self._columns.decode(pieces, first, stop)
                    pieces, rows, size = [], 0, 0
            if pieces:
                yield self._columns.decode(pieces, first, stop)
        except ProtocolError as error:
            raise CorruptMessage(f"{partition_label(*self._key)}, at offset {first} or later: {error}") from error

    def _visible_batches(self, data: PartitionData, buffer: memoryview) -> list[tuple[int, BatchHeader]]:
        """Return the visible batches with their places in the buffer, and advance the position past them."""
        committed = self._settings.committed
        aborted = AbortedTransactions(data.aborted_transactions or ()) if committed else None
        visible: list[tuple[int, BatchHeader]] = []
        for position, header in read_batches(buffer, partial_tail=True):
            if header.last_offset < self._position:
                continue
            if header.base_offset >= self._wanted.stop:
                self._position = self._wanted.stop
                break
            check_crc(buffer, position, header)
            check_stored(header)
            if header.is_control:
                if aborted is not None:
                    aborted.pass_marker(header, read_records(buffer, position, header))
            elif header.record_count and (aborted is None or not aborted.hides(header)):
                visible.append((position, header))
            self._position = min(header.next_offset, self._wanted.stop)
        return visible

    def _skip_lost(self, error: OffsetOutOfRange) -> None:
        self._drop_connection()
        begin, end = self._cluster.begins([self._key])[self._key], self._cluster.ends([self._key])[self._key]
        lost = f"{self._wanted}: offset {self._position} does not exist; the partition has offsets {begin} to {end - 1}"
        if self._fail_on_data_loss:
            raise DataLost(
                f"{lost}. Records were deleted, or the topic was recreated. "
                "To continue with the remaining records, set failOnDataLoss=false"
            ) from error
        _log.warning("%s; skipping the missing offsets because failOnDataLoss=false", lost)
        stop = self._wanted.stop
        self._position = min(begin, stop) if begin > self._position else stop

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _release_connection(self) -> None:
        if self._connection is not None and self._connection.is_idle:
            self._cluster.return_connection(self._node, self._connection)
            self._connection = None


def _payload(buffer: memoryview, position: int, header: BatchHeader) -> bytes | memoryview:
    content = buffer[position + HEADER_BYTES : position + header.size_bytes]
    if header.compression is Compression.NONE:
        return content
    return decompress(header.compression, content, limit=MAX_PAYLOAD_BYTES)
