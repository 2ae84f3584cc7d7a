"""What a fetch brought: batches unpacked into the records that a consumer may see.

Markers are never shown. A committed reader sees no record of a transaction that was aborted: the broker lists those
with the offset of their first record, and a marker in the log ends each.
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
    """Records of one partition, in order, that came together."""

    topic: str
    partition: int
    records: list[Record]
    timestamp_type: TimestampType
    leader_epoch: int
    next_offset: int
    """Where reading goes on behind this chunk; above the last record's offset where others are hidden or gone."""
    high_watermark: int


def unpack(
    topic: str, partition: int, data: PartitionData, *, offset: int, stop: int | None, committed: bool
) -> Iterator[Chunk]:
    """The records from `offset` on, and below `stop`; raises CorruptMessage for bytes that are not what was sent."""
    buffer = data.records
    if not buffer:
        return
    assert isinstance(buffer, bytes | bytearray | memoryview), "what came from a socket is in memory"
    aborted = AbortedTransactions(data.aborted_transactions or ()) if committed else None
    try:
        for position, header in read_batches(buffer, partial_tail=True):
            if header.last_offset < offset:
                continue
            if stop is not None and header.base_offset >= stop:
                return
            check_crc(buffer, position, header)
            found = [] if header.is_control else _visible(buffer, position, header, aborted)
            if header.is_control and aborted is not None:
                aborted.pass_marker(header, read_records(buffer, position, header))
            if found and (found[0].offset < offset or (stop is not None and header.last_offset >= stop)):
                found = [each for each in found if each.offset >= offset and (stop is None or each.offset < stop)]
            yield Chunk(
                topic,
                partition,
                found,
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
    """Which producers' transactions were aborted, at the batch that is being looked at."""

    def __init__(self, listed: Iterable[AbortedTransaction]) -> None:
        self._coming = [(each.first_offset, each.producer_id) for each in listed]
        heapify(self._coming)
        self._current: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._current.add(heappop(self._coming)[1])
        return header.is_transactional and header.producer_id in self._current

    def pass_marker(self, header: BatchHeader, marker: Iterator[Record]) -> None:
        self.hides(header)  # a transaction may begin in front of what was fetched, and end here
        if any(control_type(record) is ControlType.ABORT for record in marker):
            self._current.discard(header.producer_id)
