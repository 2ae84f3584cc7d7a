"""What a partition knows of its producers: enough to refuse gaps, recognize repeats and tell open transactions.

The rules are those of Kafka 4.3.1. An append of one data batch is the hot path: `check` before it is written, `apply`
after. Anything else (several batches, markers) goes through `begin`, which collects changes and makes none before its
`commit`, so that a batch that is refused leaves no trace of those in front of it. Batches without a producer id are
none of this module's business, except that the log moves `map_end_offset` with every append.

A transaction goes through three states: open, ended but with its marker still above the high watermark, and forgotten.
In the first two it holds back the last stable offset.
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

MAX_PRODUCER_EPOCH: Final = 0x7FFF
_EPOCH_BUMPING_VERSION: Final = 2


class Origin(Enum):
    """Who appends, and so how much is checked: a replica repeats what its leader has accepted."""

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
    """What compaction must keep of a producer: the batch with its last data, or else its last marker."""

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
        """First offset → producer id, in the order of the offsets because logs grow at their end."""
        self.ended: dict[int, int] = {}
        """First → last offset of transactions whose marker may not be replicated, in the order of the markers."""
        self.guards = Guards()
        self.map_end_offset = map_end_offset
        """All of the log below is accounted for; a snapshot is named after it. The log moves it with each append."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader, origin: Origin) -> BatchSeen | None:
        """Raise unless this data batch may be appended. What a client's batch repeats is returned: do not append it."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Whatever was known may have expired, or gone with deleted records: any sequence may come next.
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
        """Take in a data batch that `check` let pass. The timestamp is its largest, where the log has changed it."""
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
        """A guard for a transaction that the coordinator must be asked about; None if it is open here already."""
        producer = self._producers.get(producer_id)
        if producer is not None:
            if epoch < producer.epoch:
                raise InvalidProducerEpoch(f"epoch {epoch} of producer {producer_id} is older than {producer.epoch}")
            if producer.transaction_start is not None and epoch == producer.epoch:
                return None
        return self.guards.begin(producer_id, epoch, sequence, names_epochs=names_epochs, now_ms=now_ms)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open here, in this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start is not None and producer.epoch == epoch

    def check_verified(self, header: BatchHeader, guard: Guard | None) -> None:
        """Raise unless a batch of a transaction that is not open here was asked about; a repeat is let pass."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            if producer.transaction_start is not None and header.producer_epoch == producer.epoch:
                return
            if _find_duplicate(producer, header):
                return
        has_batches = producer is not None and bool(producer.batches)
        self.guards.check(header, guard, has_batches=has_batches)

    def check_open(self, producer_id: int, epoch: int, guard: Guard | None) -> None:
        """The same for a coordinator's records, which have no sequence."""
        if not self.is_open(producer_id, epoch):
            self.guards.check_current(producer_id, guard)

    def begin(self, origin: Origin) -> "ProducerChanges":
        """Start an append of several batches, or of markers."""
        return ProducerChanges(self, origin)

    def _begin_transaction(self, first_offset: int, producer_id: int) -> None:
        assert not self._open or first_offset > next(reversed(self._open)), "transactions begin in the log's order"
        self._open[first_offset] = producer_id

    def last_stable_offset_of(self, completed: Completed) -> int:
        """The last stable offset once this transaction is complete, for the index of aborted ones."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: Completed) -> None:
        """Close a transaction. Comes after the index of aborted ones was written: until then it must stay unstable."""
        del self._open[completed.first_offset]
        self.ended[completed.first_offset] = completed.last_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or whose marker is not yet replicated."""
        if not self.ended:
            return next(iter(self._open)) if self._open else None
        first_ended = min(self.ended)
        return min(first_ended, next(iter(self._open))) if self._open else first_ended

    def on_high_watermark(self, offset: int) -> None:
        """Forget the transactions whose marker is now replicated."""
        ended = self.ended
        while ended:
            first_offset = next(iter(ended))
            if ended[first_offset] >= offset:
                return
            del ended[first_offset]

    def on_log_start(self, offset: int) -> None:
        """The log begins here now. Producers whose records are gone stay until they expire."""
        self.on_high_watermark(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    def open_transactions(self) -> Iterator[tuple[int, Producer]]:
        """First offset and producer of each open transaction, earliest first."""
        for first_offset, producer_id in self._open.items():
            yield first_offset, self._producers[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for so long and have no open transaction; how many there were."""
        idle = [key for key, producer in self._producers.items() if producer.is_expired(now_ms, expiration_ms)]
        for producer_id in idle:
            del self._producers[producer_id]
        self.guards.expire(now_ms - expiration_ms)
        return len(idle)

    def clear(self, map_end_offset: int) -> None:
        """Forget everything, before the log is read again from an offset."""
        self._producers.clear()
        self._open.clear()
        self.ended.clear()
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[SnapshotEntry], map_end_offset: int, *, now_ms: int, expiration_ms: int) -> None:
        """Replace everything by a snapshot taken at an offset, without the producers that have expired since."""
        self.clear(map_end_offset)
        for entry in entries:
            producer = Producer.restored(entry)
            if not producer.is_expired(now_ms, expiration_ms):
                self._producers[entry.producer_id] = producer
        started = [(p.transaction_start, p.producer_id) for p in self if p.transaction_start is not None]
        self._open.update(sorted(started))

    def snapshot(self) -> list[SnapshotEntry]:
        """What a snapshot at `map_end_offset` holds: of each producer only the last batch."""
        return [producer.saved() for producer in self]

    def last_entries(self) -> dict[int, LastEntry]:
        return {
            producer_id: LastEntry(producer.batches[-1].last_offset if producer.batches else None, producer.epoch)
            for producer_id, producer in self._producers.items()
        }


class ProducerChanges:
    """What an append will change, once it is written: checked batch by batch, in effect after `commit`.

    Each producer's changes start from a copy without batches, as in Kafka: it decides what an unknown producer that
    appends several batches may do, and what is left of batches when an epoch returns within one append.
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
        """A data batch: raises if it may not be appended. When a repeat is returned, the append must be given up."""
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
        """The end of a transaction; None if the producer had none open here, as when a marker is written again.

        The version comes with the coordinator's request and is not stored, so that replicas do without it.
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
        """Make the changes. What is returned is still to be passed to `complete`, one by one."""
        known = self._producers._producers
        for producer_id, updated in self._updated.items():
            current = known.get(producer_id)
            if current is None:
                known[producer_id] = updated
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
    """`current` is the state before the append, `updated` the one that earlier batches of it would leave."""
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
    """From version 2 on each transaction has an epoch of its own, which its marker raises (KIP-890)."""
    if transaction_version < _EPOCH_BUMPING_VERSION:
        if epoch < producer.epoch:
            _report_stale(
                f"marker's epoch {epoch} of producer {producer.producer_id} is older than {producer.epoch}", origin
            )
    elif epoch < producer.epoch or (
        # Without an open transaction the coordinator repeats itself after a lost answer or a restart (KAFKA-19999).
        # The last possible epoch cannot be raised.
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
    """A replica must hold what its leader holds, whatever it thinks of it."""
    if origin is not Origin.REPLICATION:
        raise InvalidProducerEpoch(message)
    logger.warning(message)
