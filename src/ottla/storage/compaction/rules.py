"""The rules of compaction of Kafka 4.3.1, applied batch by batch in the order of the log.

A record is kept if it is the newest of its key; a tombstone only until its delete horizon (KIP-534), which the first
pass over it writes into the batch's header. Records of aborted transactions are removed at once and do not count as the
newest. A transaction's marker is kept as long as batches of the transaction are; then it gets a horizon too. The header
is kept of a batch that has a producer's last sequence, and of the last batch of the pass.

Nothing here reads files or clocks. Offsets never change.
"""

from collections.abc import Iterable, Mapping

from ottla.protocol.wire.batch import DELETE_HORIZON_BIT, LENGTH_PREFIX_BYTES, MAX_INT64, BatchHeader
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import build_batch, read_keys, read_records
from ottla.storage.compaction.offset_map import OffsetMap, give_way
from ottla.storage.log.aborted import Aborted
from ottla.storage.log.producers import LastEntry
from ottla.storage.log.validation import rebuild


class Transactions:
    """Tracks during a pass which transactions were aborted, and which still have batches."""

    __slots__ = ("_aborted", "_coming", "_committed")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, tuple[Aborted, bool]] = {}
        """Producer id → its current aborted transaction, and whether the pass found a batch of it."""
        self._committed: set[int] = set()
        """Producers with a batch in their current transaction, which was not aborted."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction. The batch is remembered for its marker."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (aborted[0], True)
        return True

    def end(self, header: BatchHeader, kind: ControlType | None) -> tuple[bool, Aborted | None]:
        """Return whether a control batch may be removed, and otherwise its entry for the index of aborted transactions.

        `kind` is None if an earlier pass left only the header.
        """
        self._begin(header.last_offset)
        if kind is None:
            return True, None
        if kind is ControlType.COMMIT:
            had_batches = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_batches, None
        if kind is ControlType.ABORT:
            entry, had_batches = self._aborted.pop(header.producer_id, (None, False))
            return not had_batches, entry if had_batches else None
        return False, None

    def _begin(self, offset: int) -> None:
        """Begin the aborted transactions that start up to an offset."""
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))


def kind_of(block: bytes, pos: int, header: BatchHeader) -> ControlType | None:
    """Return the type of a control batch; None if its record was removed."""
    record = next(read_records(block, pos, header), None)
    return None if record is None else control_type(record)


class CompactionFilter:
    """Decides what one pass keeps, given the batches in order."""

    __slots__ = ("_delete_retention_ms", "_end_offset", "_last_entries", "_latest", "_now_ms", "_transactions", "ended")

    def __init__(
        self,
        latest: OffsetMap,
        aborted: Iterable[Aborted],
        last_entries: Mapping[int, LastEntry],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._transactions = Transactions(aborted)
        self._last_entries = last_entries
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.ended: Aborted | None = None
        """The entry that the last filtered batch adds to the index of aborted transactions."""

    def filter_batch(
        self, header: BatchHeader, block: bytes, pos: int, *, keep_end: bool = False
    ) -> bytearray | memoryview | None:
        """Return what is kept of the batch at a position: the same bytes, a smaller batch, only a header, or None.

        With `keep_end` at least an anonymous header is kept, which has the batch's last offset.
        """
        self.ended = None
        offsets: set[int] = set()
        wants_horizon = False
        if header.is_control:
            goes, self.ended = self._transactions.end(header, kind_of(block, pos, header))
            horizon = header.delete_horizon
            drop = goes and horizon is not None and horizon <= self._now_ms
            kept = 0 if drop else header.record_count
            wants_horizon = goes
        else:
            if not self._transactions.is_aborted(header):
                offsets, wants_horizon = self._retained(header, block, pos)
            kept = len(offsets)
        if kept == 0:
            return self._emptied(header, keep_end)
        sets_horizon = wants_horizon and not header.has_delete_horizon
        if kept == header.record_count and not sets_horizon:
            return memoryview(block)[pos : pos + header.batch_length + LENGTH_PREFIX_BYTES]
        staying = list(read_records(block, pos, header))
        if kept < header.record_count:
            staying = [record for record in staying if record.offset in offsets]
        horizon = min(self._now_ms + self._delete_retention_ms, MAX_INT64) if sets_horizon else None
        return rebuild(header, staying, delete_horizon=horizon)

    def _retained(self, header: BatchHeader, block: bytes, pos: int) -> tuple[set[int], bool]:
        """Return the offsets of the records to keep, and whether one of them is a tombstone."""
        newest, end = self._latest.get, self._latest.end_offset
        horizon = header.delete_horizon
        tombstones_stay = horizon is None or self._now_ms < horizon
        kept: set[int] = set()
        has_tombstones = False
        for number, (offset, _, key, is_tombstone) in enumerate(read_keys(block, pos, header)):
            # Records beyond the map are left to the next pass.
            if offset >= end or (key is not None and offset >= newest(key) and (tombstones_stay or not is_tombstone)):
                kept.add(offset)
                if is_tombstone:
                    has_tombstones = True
            if number & 0xFF == 0xFF:
                give_way()
        return kept, has_tombstones

    def _emptied(self, header: BatchHeader, keep_end: bool) -> bytearray | None:
        """Return what is kept of a batch without records."""
        if header.next_offset == self._end_offset or self._is_last_of_producer(header):
            # A header without records has no base timestamp, which would be the horizon.
            return rebuild(header._replace(attributes=header.attributes & ~DELETE_HORIZON_BIT), [])
        if keep_end:
            return build_batch(
                [],
                base_offset=header.base_offset,
                last_offset_delta=header.last_offset_delta,
                leader_epoch=header.leader_epoch,
            )
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether the batch has the producer's last sequence, or else its epoch."""
        last = self._last_entries.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch
