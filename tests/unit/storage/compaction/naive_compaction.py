"""Compaction by the book, on lists in memory: what a pass must leave, for the cleaner to be compared with.

It looks at the whole log as often as it likes: a transaction was aborted if the next marker of its producer says so,
and a record is the newest of its key if no later one in the mapped range has that key.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.protocol.wire.batch import BatchHeader
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import Record, read_records
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.producers import LastEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch with all that compaction may change or must keep."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer: tuple[int, int, int]
    """Its id, epoch and base sequence."""
    transactional: bool
    control: bool
    compression: Compression
    horizon: int | None
    records: tuple[Record, ...]

    @property
    def marker(self) -> ControlType | None:
        return control_type(self.records[0]) if self.control and self.records else None


def to_batch(header: BatchHeader, block: bytes, at: int) -> Batch:
    return Batch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        transactional=header.is_transactional,
        control=header.is_control,
        compression=header.compression,
        horizon=header.delete_horizon,
        records=tuple(read_records(block, at, header)),
    )


def batches_of(log: PartitionLog) -> list[Batch]:
    """All batches that the segments hold."""
    return [to_batch(header, block, at) for s in log.segments for _, header, block, at in s.batches()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The circumstances of one pass."""

    first_dirty: int
    end: int
    """No segment from here on may be cleaned."""
    bases: Sequence[int]
    """Where the log's segments begin."""
    capacity: int
    now_ms: int
    delete_retention_ms: int
    last_entries: Mapping[int, LastEntry]


def compact(batches: Sequence[Batch], circumstances: Pass) -> tuple[list[Batch], int]:
    """The batches that a pass leaves, but for those that only keep the end of a segment; and where the next begins."""
    it = circumstances
    aborted = {id(batch) for number, batch in enumerate(batches) if _fate(batches, number) is ControlType.ABORT}
    newest, covered = _newest(batches, aborted, it)
    untouched_from = min((base for base in it.bases if base >= covered), default=covered)
    left: list[Batch] = []
    for number, batch in enumerate(batches):
        if batch.base_offset >= untouched_from:
            left.append(batch)
            continue
        horizon = batch.horizon
        due = horizon is not None and horizon <= it.now_ms
        kept: Iterable[Record]
        if batch.control:
            orphan = batch.marker is None or (
                batch.marker in (ControlType.ABORT, ControlType.COMMIT) and not _has_batches(batches, number)
            )
            kept = () if orphan and due else batch.records
            expires = orphan
        elif id(batch) in aborted:
            kept, expires = (), False
        else:
            kept = [
                record
                for record in batch.records
                if record.offset >= covered
                or (
                    record.key is not None
                    and record.offset >= newest.get(record.key, -1)
                    and not (record.value is None and due)
                )
            ]
            expires = any(record.value is None for record in kept)
        if kept:
            if expires and horizon is None:
                horizon = it.now_ms + it.delete_retention_ms
            left.append(replace(batch, records=tuple(kept), horizon=horizon))
        elif batch.last_offset + 1 == it.end or _is_last_of_producer(batch, it.last_entries):
            left.append(replace(batch, records=(), horizon=None, compression=Compression.NONE))
    return left, covered


def without_ends(batches: Iterable[Batch], end: int) -> list[Batch]:
    """The batches without the headers of nobody that keep the end of a segment."""
    return [b for b in batches if b.records or b.producer[0] >= 0 or b.last_offset + 1 == end]


def committed_state(batches: Sequence[Batch], upto: int) -> dict[bytes | None, bytes]:
    """The last value of each key, for a reader who leaves aborted transactions out; deleted keys are missing."""
    state: dict[bytes | None, bytes] = {}
    for number, batch in enumerate(batches):
        if batch.control or _fate(batches, number) is ControlType.ABORT:
            continue
        for record in batch.records:
            if record.offset < upto:
                state.pop(record.key, None)
                if record.value is not None:
                    state[record.key] = record.value
    return state


def _fate(batches: Sequence[Batch], number: int) -> ControlType | None:
    """How the transaction of a data batch ended."""
    batch = batches[number]
    if batch.control or not batch.transactional:
        return None
    ends = (b.marker for b in batches[number:] if b.control and b.producer[0] == batch.producer[0])
    return next((end for end in ends if end is not None), None)


def _has_batches(batches: Sequence[Batch], number: int) -> bool:
    """Whether the transaction that a marker ended has batches."""
    marker = batches[number]
    for batch in reversed(batches[:number]):
        if batch.producer[0] == marker.producer[0] and batch.transactional and (not batch.control or batch.records):
            return not batch.control
    return False


def _newest(batches: Sequence[Batch], aborted: Collection[int], it: Pass) -> tuple[dict[bytes, int], int]:
    """The newest offset of each key from the first dirty offset on, and how far the map reached."""
    newest: dict[bytes, int] = {}
    covered = it.first_dirty
    for batch in batches:
        if batch.base_offset >= it.end:
            break
        # Where batches are missing the map still covers the whole of the segments before.
        starts = [base for base in it.bases if covered < base <= batch.base_offset]
        covered = max([covered, *starts])
        if batch.last_offset < it.first_dirty:
            continue
        if not batch.control and id(batch) not in aborted:
            for record in batch.records:
                if record.key is None or record.offset < it.first_dirty:
                    continue
                if len(newest) >= it.capacity:
                    return newest, covered
                newest[record.key] = record.offset
                covered = record.offset + 1
        covered = batch.last_offset + 1
    return newest, it.end


def _is_last_of_producer(batch: Batch, last_entries: Mapping[int, LastEntry]) -> bool:
    last = last_entries.get(batch.producer[0])
    if last is None:
        return False
    if last.last_data_offset is None:
        return batch.control and batch.producer[1] == last.producer_epoch
    return batch.last_offset == last.last_data_offset
