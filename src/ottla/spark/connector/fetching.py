"""A range of one partition's offsets, fetched from its leader, as Arrow batches.

The next fetch is under way while the last one is decoded. Leaders that move are followed. Offsets that hold nothing
that may be seen (markers, aborted transactions, what compaction took) are passed over: only offsets that the broker no
longer has are data that was lost.
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
from ottla.spark.connector.columns import Columns, Piece

_LAST_WITH_NAMES: Final = 12
_FIRST_FETCH_BYTES: Final = 1 << 20
_ROWS: Final = 10_000
_BYTES: Final = 2 << 20
"""An Arrow batch ends behind so many rows or bytes. Allocators give larger buffers back to the system: new pages for
each batch cost more than to fill them."""

_log = logging.getLogger(__name__)


class DataLost(Exception):
    """Offsets that a query was to read are no longer there."""


class Range(NamedTuple):
    """The offsets of one partition from `start` up to before `stop`."""

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
    """Reads one range, once."""

    def __init__(
        self,
        access: BlockingCluster,
        settings: ClientSettings,
        wanted: Range,
        schema: pa.Schema,
        *,
        fail_on_data_loss: bool,
        patience_s: float,
    ) -> None:
        self._access = access
        self._settings = settings
        self._wanted = wanted
        self._key = wanted.topic, wanted.partition
        self._columns = Columns(schema, *self._key)
        self._fail_on_data_loss = fail_on_data_loss
        self._patience_s = patience_s
        self._position = wanted.start
        self._max_bytes = min(_FIRST_FETCH_BYTES, settings.partition_fetch_bytes)
        self._node = -1
        self._link: BrokerConnection | None = None

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The records of the range; raises what is not going to pass, with its topic, partition and offset."""
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
                    self._drop_link()
                    stale = isinstance(error, UnknownTopicOrPartition) and attempts < 3
                    if not (stale or is_transient(error)) or patience.has_passed:
                        raise add_location(error, str(self._wanted)) from error
                    self._access.cluster.forget(self._wanted.topic)
                    time.sleep(backoff_s(attempts))
                    attempts += 1
                    continue
                before = self._position
                yield from self._decode(data)
                if self._position > before:
                    patience, attempts = Deadline(self._patience_s), 0
                elif patience.has_passed:
                    raise RequestTimedOut(
                        f"{self._wanted}: nothing came from offset {before} on within {self._patience_s:g} s"
                    )
            self._release_link()
        finally:
            # A reader that was left behind may be ended by the garbage collector, after the link's own socket.
            self._drop_link()

    def _fetch(self) -> PartitionData:
        """The answer to the fetch at the position; it may have been sent a while ago."""
        link = self._connected()
        if link.is_idle:
            self._send(link, self._position)
        answer: FetchResponse = link.take(self._settings.fetch_max_wait_s)
        if answer.error_code:
            raise error_from_code(answer.error_code, None, f"fetch from {link.address}")
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise error_from_code(
                        data.error_code, None, f"{partition_label(*self._key)}, offset {self._position}"
                    )
                return data
        raise RequestTimedOut(f"{link.address} left out {partition_label(*self._key)} from its answer")

    def _connected(self) -> BrokerConnection:
        if self._link is None:
            self._node = self._access.leader_of(self._key).leader
            self._link = self._access.borrow_link(self._node)
        return self._link

    def _send(self, link: BrokerConnection, position: int) -> None:
        topic, partition = self._key
        topic_id = self._access.topic(topic).id
        asked = FetchPartition(
            partition=partition,
            current_leader_epoch=self._access.leader_of(self._key).leader_epoch,
            fetch_offset=position,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=int(self._settings.fetch_max_wait_s * 1000),
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=max(self._settings.fetch_max_bytes, self._max_bytes),
            isolation_level=int(self._settings.committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
        )
        link.send(request, link.version_of(ApiKey.FETCH, at_most=_LAST_WITH_NAMES if topic_id == ZERO_UUID else None))
        self._max_bytes = min(self._max_bytes * 2, self._settings.partition_fetch_bytes)

    def _send_ahead(self, link: BrokerConnection) -> None:
        try:
            self._send(link, self._position)
        except ApiError:
            self._drop_link()  # the next fetch finds out what is wrong, and whether it passes

    def _decode(self, data: PartitionData) -> Iterator[pa.RecordBatch]:
        """What a fetch brought. Once all of it is known to be sound, the next fetch goes out."""
        first, stop = self._position, self._wanted.stop
        buffer = memoryview(data.records) if data.records else memoryview(b"")  # type: ignore[arg-type]
        try:
            found = self._visible(data, buffer)
            if first < self._position < stop and self._link is not None:
                self._send_ahead(self._link)
            pieces: list[Piece] = []
            rows = size = 0
            for position, header in found:
                payload = _payload(buffer, position, header)
                pieces.append(Piece(header, payload))
                rows += header.record_count
                size += len(payload)
                if rows >= _ROWS or size >= _BYTES:
                    yield self._columns.decode(pieces, first, stop)
                    pieces, rows, size = [], 0, 0
            if pieces:
                yield self._columns.decode(pieces, first, stop)
        except ProtocolError as error:
            raise CorruptMessage(f"{partition_label(*self._key)}, at offset {first} or behind: {error}") from error

    def _visible(self, data: PartitionData, buffer: memoryview) -> list[tuple[int, BatchHeader]]:
        """The batches that may be seen, and behind them the new position."""
        committed = self._settings.committed
        aborted = AbortedTransactions(data.aborted_transactions or ()) if committed else None
        found: list[tuple[int, BatchHeader]] = []
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
                found.append((position, header))
            self._position = min(header.next_offset, self._wanted.stop)
        return found

    def _skip_lost(self, error: OffsetOutOfRange) -> None:
        self._drop_link()
        begin, end = self._access.begins([self._key])[self._key], self._access.ends([self._key])[self._key]
        lost = f"{self._wanted}: offset {self._position} is not there; the partition has {begin} to {end - 1}"
        if self._fail_on_data_loss:
            raise DataLost(
                f"{lost}. Records were removed, or the topic was made anew; failOnDataLoss=false reads what is left"
            ) from error
        _log.warning("%s; passed over", lost)
        stop = self._wanted.stop
        self._position = min(begin, stop) if begin > self._position else stop

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _release_link(self) -> None:
        if self._link is not None and self._link.is_idle:
            self._access.return_link(self._node, self._link)
            self._link = None


def _payload(buffer: memoryview, position: int, header: BatchHeader) -> bytes | memoryview:
    content = buffer[position + HEADER_BYTES : position + header.size_bytes]
    if header.compression is Compression.NONE:
        return content
    return decompress(header.compression, content, limit=MAX_PAYLOAD_BYTES)
