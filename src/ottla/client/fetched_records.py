"""Unpacks the batches of a fetch response into the records that a consumer may see.

A consumer never sees markers. A read_committed consumer sees no record of an aborted transaction: the broker lists the
aborted transactions with their first offsets, and a marker in the log ends each.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import NamedTuple

from ottla.client.metadata import partition_label
from ottla.protocol.errors import CorruptMessage
from ottla.protocol.messages.rpc.fetch import AbortedTransaction, PartitionData
from ottla.protocol.wire.batch import BatchHeader, TimestampType, check_crc, read_batches
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, read_records


class Chunk(NamedTuple):
    """Records of one partition, in order, from one batch."""

    topic: str
    partition: int
    records: list[Record]
    timestamp_type: TimestampType
    leader_epoch: int
    next_offset: int
    """The offset to read next. Hidden or compacted records can lie between it and the last record."""
    high_watermark: int


def unpack(
    topic: str, partition: int, data: PartitionData, *, offset: int, stop: int | None, committed: bool
) -> Iterator[Chunk]:
    """Yield the records from `offset` to before `stop`. Raise CorruptMessage for corrupt batches."""
    buffer = data.records
    if not buffer:
        return
    assert isinstance(buffer, bytes | bytearray | memoryview), "records from a socket are in memory"
    aborted = AbortedTransactions(data.aborted_transactions or ()) if committed else None
    try:
        for position, header in read_batches(buffer, partial_tail=True):
            if header.last_offset < offset:
                continue
            if stop is not None and header.base_offset >= stop:
                return
            check_crc(buffer, position, header)
            visible = [] if header.is_control else _visible(buffer, position, header, aborted)
            if header.is_control and aborted is not None:
                aborted.pass_marker(header, read_records(buffer, position, header))
            if visible and (visible[0].offset < offset or (stop is not None and header.last_offset >= stop)):
                visible = [r for r in visible if r.offset >= offset and (stop is None or r.offset < stop)]
            yield Chunk(
                topic,
                partition,
                visible,
                header.timestamp_type,
                header.leader_epoch,
                header.next_offset if stop is None else min(header.next_offset, stop),
                data.high_watermark,
            )
    except ProtocolError as error:
        raise CorruptMessage(f"{partition_label(topic, partition)}, after offset {offset}: {error}") from error


def _visible(
    buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader, aborted: "AbortedTransactions | None"
) -> list[Record]:
    if aborted is not None and aborted.hides(header):
        return []
    return list(read_records(buffer, position, header))


class AbortedTransactions:
    """Tracks the producers whose transaction is aborted at the current batch."""

    def __init__(self, listed: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction.producer_id) for transaction in listed]
        heapify(self._coming)
        self._current: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction. Call it for the batches in order."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._current.add(heappop(self._coming)[1])
        return header.is_transactional and header.producer_id in self._current

    def pass_marker(self, header: BatchHeader, marker: Iterator[Record]) -> None:
        """End the producer's aborted transaction at its marker."""
        self.hides(header)  # the transaction may begin before the fetched batches, and end here
        if any(control_type(record) is ControlType.ABORT for record in marker):
            self._current.discard(header.producer_id)
