"""The producer state of one partition: it rejects gaps, recognizes duplicates and tracks open transactions.

The rules are those of Kafka 4.3.1. Appending one data batch is the hot path: `check` before the write, `apply` after.
Everything else (several batches, markers) goes through `begin`, which collects changes and makes none before `commit`,
so that a rejected batch also undoes the ones before it. Batches without a producer id are ignored, but the log moves
`map_end_offset` with every append.

A transaction has three states: open; ended, with its marker at or above the high watermark; and forgotten. In the first
two it holds back the last stable offset.
"""

import logging
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from ottla.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.protocol.wire.batch import (
    MAX_INT32,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.storage.log.producer_snapshot import BatchSeen, Producer, SnapshotEntry
from ottla.storage.log.verification import Guard, Guards

logger = logging.getLogger(__name__)

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""How long after its longest timeout a transaction may end before it counts as late, as in Kafka."""
MAX_PRODUCER_EPOCH: Final = 0x7FFF
_EPOCH_BUMPING_VERSION: Final = 2


class Origin(Enum):
    """The origin of an append, which decides what is checked: a replica accepts whatever its leader accepted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Completed(NamedTuple):
    """A transaction that a marker ended; the marker's offset is the last."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class LastEntry(NamedTuple):
    """What compaction must keep of a producer: its last data batch, or else its last marker."""

    last_data_offset: int | None
    producer_epoch: int


_CLIENT: Final = Origin.CLIENT
_UNKNOWN_PRODUCER: Final = Producer(NO_PRODUCER_ID)


class Producers:
    """The producers of one partition. Iterating gives each `Producer`."""

    __slots__ = ("_open", "_producers", "ended", "guards", "map_end_offset")

    def __init__(self, map_end_offset: int = 0) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """First offset → producer id of each open transaction, in the order of the offsets."""
        self.ended: dict[int, int] = {}
        """First → last offset of transactions whose marker may not be replicated yet, in the order of the markers."""
        self.guards = Guards()
        self.map_end_offset = map_end_offset
        """The offset up to which the log was applied; it names a snapshot. The log moves it with each append."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader, origin: Origin) -> BatchSeen | None:
        """Raise unless this data batch may be appended. Return the original if it is a client's duplicate."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # The state may have expired, or was deleted with the records: any sequence may follow.
            return None
        sequence = header.base_sequence
        if origin is _CLIENT and header.producer_epoch == producer.epoch and sequence >= 0:
            delta = header.last_offset_delta
            last_sequence = (sequence + delta) & MAX_INT32
            seen_last = NO_SEQUENCE
            for seen in producer.batches:
                seen_last = seen.last_sequence
                if seen_last == last_sequence and seen.offset_delta == delta:
                    return seen
            if sequence == (seen_last + 1) & MAX_INT32 and (
                producer.transaction_start is None or header.attributes & TRANSACTIONAL_BIT
            ):
                return None
        _check_data(header, origin, current=producer, updated=producer)
        return None

    def apply(self, header: BatchHeader, base_offset: int, timestamp: int | None = None) -> None:
        """Apply a data batch that `check` accepted. `timestamp` is its largest one if the log changed it."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id)
        producer.add(header, base_offset, timestamp)
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_start is None:
            producer.transaction_start = base_offset
            self._begin_transaction(base_offset, producer_id)
            self.guards.on_batch(producer_id)

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, *, names_epochs: bool, now_ms: int
    ) -> Guard | None:
        """Return a guard for a transaction that the coordinator must verify; None if it is already open here."""
        producer = self._producers.get(producer_id)
        if producer is not None:
            if epoch < producer.epoch:
                raise InvalidProducerEpoch(f"epoch {epoch} of producer {producer_id} is older than {producer.epoch}")
            if producer.transaction_start is not None and epoch == producer.epoch:
                return None
        return self.guards.begin(producer_id, epoch, sequence, names_epochs=names_epochs, now_ms=now_ms)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer has an open transaction in this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start is not None and producer.epoch == epoch

    def check_verified(self, header: BatchHeader, guard: Guard | None) -> None:
        """Raise unless the batch's transaction is open or was verified. Duplicates pass."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            if producer.transaction_start is not None and header.producer_epoch == producer.epoch:
                return
            if _find_duplicate(producer, header):
                return
        has_batches = producer is not None and bool(producer.batches)
        self.guards.check(header, guard, has_batches=has_batches)

    def check_open(self, producer_id: int, epoch: int, guard: Guard | None) -> None:
        """Raise unless the transaction is open or was verified, for a coordinator's records, which have no sequence."""
        if not self.is_open(producer_id, epoch):
            self.guards.check_current(producer_id, guard)

    def begin(self, origin: Origin) -> "ProducerChanges":
        """Begin an append of several batches, or of markers."""
        return ProducerChanges(self, origin)

    def _begin_transaction(self, first_offset: int, producer_id: int) -> None:
        assert not self._open or first_offset > next(reversed(self._open)), "transactions begin in the log's order"
        self._open[first_offset] = producer_id

    def last_stable_offset_of(self, completed: Completed) -> int:
        """Return the last stable offset after this transaction, for the index of aborted transactions."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: Completed) -> None:
        """Close a transaction. It must stay unstable until the index of aborted transactions has been written."""
        del self._open[completed.first_offset]
        self.ended[completed.first_offset] = completed.last_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or whose marker is not replicated yet."""
        if not self.ended:
            return next(iter(self._open)) if self._open else None
        first_ended = min(self.ended)
        return min(first_ended, next(iter(self._open))) if self._open else first_ended

    def on_high_watermark(self, offset: int) -> None:
        """Forget the transactions whose marker is below the high watermark."""
        ended = self.ended
        while ended:
            first_offset = next(iter(ended))
            if ended[first_offset] >= offset:
                return
            del ended[first_offset]

    def on_log_start(self, offset: int) -> None:
        """Apply a new log start. Producers whose records were deleted stay until they expire."""
        self.on_high_watermark(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    def open_transactions(self) -> Iterator[tuple[int, Producer]]:
        """Yield the first offset and the producer of each open transaction, earliest first."""
        for first_offset, producer_id in self._open.items():
            yield first_offset, self._producers[producer_id]

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether the earliest open transaction should have ended long ago, so that its coordinator may not know it."""
        for _, producer in self.open_transactions():
            last = producer.last_timestamp
            return last > 0 and now_ms - last > max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return False

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers without an open transaction; return how many."""
        idle = [key for key, producer in self._producers.items() if producer.is_expired(now_ms, expiration_ms)]
        for producer_id in idle:
            del self._producers[producer_id]
        self.guards.expire(now_ms - expiration_ms)
        return len(idle)

    def clear(self, map_end_offset: int) -> None:
        """Forget everything before the log is replayed from an offset."""
        self._producers.clear()
        self._open.clear()
        self.ended.clear()
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[SnapshotEntry], map_end_offset: int, *, now_ms: int, expiration_ms: int) -> None:
        """Replace the state with a snapshot taken at an offset, without producers that have expired since."""
        self.clear(map_end_offset)
        for entry in entries:
            producer = Producer.restored(entry)
            if not producer.is_expired(now_ms, expiration_ms):
                self._producers[entry.producer_id] = producer
        started = [(p.transaction_start, p.producer_id) for p in self if p.transaction_start is not None]
        self._open.update(sorted(started))

    def snapshot(self) -> list[SnapshotEntry]:
        """Return the entries of a snapshot at `map_end_offset`. They have only the last batch of each producer."""
        return [producer.saved() for producer in self]

    def last_entries(self) -> dict[int, LastEntry]:
        return {
            producer_id: LastEntry(producer.batches[-1].last_offset if producer.batches else None, producer.epoch)
            for producer_id, producer in self._producers.items()
        }


class ProducerChanges:
    """The changes of an append: checked batch by batch, and applied by `commit` after the write.

    Each producer's changes start from a copy without batches, as in Kafka. This matters when an unknown producer
    appends several batches, and when an epoch returns within one append.
    """

    __slots__ = ("_completed", "_markers", "_origin", "_producers", "_started", "_updated")

    def __init__(self, producers: Producers, origin: Origin) -> None:
        self._producers = producers
        self._origin = origin
        self._updated: dict[int, Producer] = {}
        self._started: list[tuple[int, int]] = []
        self._completed: list[Completed] = []
        self._markers: list[tuple[int, int]] = []

    def add(self, header: BatchHeader, base_offset: int, timestamp: int | None = None) -> BatchSeen | None:
        """Add a data batch, or raise if it may not be appended. If this returns a duplicate, drop the append."""
        current = self._producers.get(header.producer_id) or _UNKNOWN_PRODUCER
        if self._origin is _CLIENT and (seen := _find_duplicate(current, header)):
            return seen
        updated = self._copy_of(header.producer_id, current)
        _check_data(header, self._origin, current=current, updated=updated)
        updated.add(header, base_offset, timestamp)
        if header.is_transactional and updated.transaction_start is None:
            updated.transaction_start = base_offset
            self._started.append((base_offset, updated.producer_id))
        return None

    def add_marker(
        self,
        header: BatchHeader,
        offset: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int,
        transaction_version: int | None = None,
    ) -> Completed | None:
        """Add the end of a transaction. Return None if none is open here, as when a marker is written twice.

        The version comes with the coordinator's request. It is not stored, so replicas do without it.
        """
        assert transaction_version is not None or self._origin is Origin.REPLICATION, "a marker of unknown version"
        producer_id, epoch = header.producer_id, header.producer_epoch
        updated = self._copy_of(producer_id, self._producers.get(producer_id) or _UNKNOWN_PRODUCER)
        _check_marker_epoch(updated, epoch, self._origin, transaction_version or 0)
        _check_coordinator(updated, coordinator_epoch, self._origin)
        completed = None
        if updated.transaction_start is not None:
            completed = Completed(producer_id, updated.transaction_start, offset, not commit)
            self._completed.append(completed)
        updated.move_to(epoch)
        self._markers.append((producer_id, epoch))
        updated.coordinator_epoch = coordinator_epoch
        updated.transaction_start = None
        updated.last_timestamp = timestamp
        return completed

    def commit(self) -> list[Completed]:
        """Apply the changes. The caller must pass each returned transaction to `complete`."""
        producers = self._producers._producers
        for producer_id, updated in self._updated.items():
            current = producers.get(producer_id)
            if current is None:
                producers[producer_id] = updated
            else:
                current.take(updated)
        for first_offset, producer_id in self._started:
            self._producers._begin_transaction(first_offset, producer_id)
            self._producers.guards.on_batch(producer_id)
        for producer_id, epoch in self._markers:
            self._producers.guards.on_marker(producer_id, epoch)
        return self._completed

    def _copy_of(self, producer_id: int, current: Producer) -> Producer:
        updated = self._updated.get(producer_id)
        if updated is None:
            updated = self._updated[producer_id] = Producer(producer_id)
            updated.epoch = current.epoch
            updated.coordinator_epoch = current.coordinator_epoch
            updated.last_timestamp = current.last_timestamp
            updated.transaction_start = current.transaction_start
        return updated


def _find_duplicate(producer: Producer, header: BatchHeader) -> BatchSeen | None:
    if header.producer_epoch != producer.epoch:
        return None
    sequences = header.base_sequence, header.last_sequence
    for seen in producer.batches:
        if (seen.base_sequence, seen.last_sequence) == sequences:
            return seen
    return None


def _check_data(header: BatchHeader, origin: Origin, *, current: Producer, updated: Producer) -> None:
    """Raise unless a data batch may follow. `updated` is the state after earlier batches of the same append."""
    if header.producer_epoch < updated.epoch:
        _report_stale(
            f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {updated.epoch}", origin
        )
    if origin is _CLIENT:
        _check_sequence(header, current, updated)
    if updated.transaction_start is not None and not header.is_transactional:
        raise InvalidTxnState(
            f"producer {header.producer_id} sent a batch outside of its transaction, which is open since offset "
            f"{updated.transaction_start}"
        )


def _check_sequence(header: BatchHeader, current: Producer, updated: Producer) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != updated.epoch:
        if sequence != 0 and updated.epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence {sequence}, not 0"
            )
        return
    if current.epoch == NO_PRODUCER_EPOCH:
        return
    last = NO_SEQUENCE
    if updated.batches or header.producer_epoch == current.epoch:
        last = (updated if updated.batches else current).last_sequence
    expected = (last + 1) & MAX_INT32
    if sequence != expected:
        raise OutOfOrderSequenceNumber(
            f"producer {header.producer_id} of epoch {header.producer_epoch} sent sequence {sequence}, "
            f"not {expected} as expected"
        )


def _check_marker_epoch(producer: Producer, epoch: int, origin: Origin, transaction_version: int) -> None:
    """Raise if a marker's epoch is stale. From version 2 on, each transaction's marker raises the epoch (KIP-890)."""
    if transaction_version < _EPOCH_BUMPING_VERSION:
        if epoch < producer.epoch:
            _report_stale(
                f"marker's epoch {epoch} of producer {producer.producer_id} is older than {producer.epoch}", origin
            )
    elif epoch < producer.epoch or (
        # Without an open transaction, the coordinator retries after a lost response or a restart (KAFKA-19999).
        # The largest epoch cannot be raised.
        epoch == producer.epoch and producer.transaction_start is not None and epoch != MAX_PRODUCER_EPOCH
    ):
        _report_stale(
            f"marker's epoch {epoch} of producer {producer.producer_id} is not above {producer.epoch}", origin
        )


def _check_coordinator(producer: Producer, coordinator_epoch: int, origin: Origin) -> None:
    if coordinator_epoch < producer.coordinator_epoch:
        message = (
            f"marker for producer {producer.producer_id} is from coordinator epoch {coordinator_epoch}, "
            f"older than {producer.coordinator_epoch}"
        )
        if origin is not Origin.REPLICATION:
            raise TransactionCoordinatorFenced(message)
        logger.info(message)


def _report_stale(message: str, origin: Origin) -> None:
    """Raise, or only log on a replica, which must store whatever its leader stored."""
    if origin is not Origin.REPLICATION:
        raise InvalidProducerEpoch(message)
    logger.warning(message)
