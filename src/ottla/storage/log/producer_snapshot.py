"""The state of one producer, and the `.snapshot` files that store it, so that a start need not replay the whole log.

    version i16 = 1 · CRC-32C u32 of the rest · count i32 · entries
    an entry: producer id i64 · epoch i16 · last sequence i32 · last offset i64 · offset delta i32 · timestamp i64
              coordinator epoch i32 · first offset of the open transaction i64

A missing number is -1. A file is named after the offset up to which the log was replayed. As in Kafka, a snapshot has
only the last batch of each producer: after a restart, older duplicates are no longer recognized.
"""

import struct
from collections.abc import Collection
from typing import Final, NamedTuple, Self

from ottla.protocol.wire.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from ottla.protocol.wire.crc import crc32c
from ottla.storage.disk import Disk, read_file, write_all

SNAPSHOT_SUFFIX: Final = ".snapshot"
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
BATCHES_KEPT: Final = 5
"""The number of batches that an idempotent producer may have in flight, and so may retry."""

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NAME_DIGITS: Final = 20
_new_tuple = tuple.__new__  # 81 ns for a named tuple of four; the class itself takes 121


class CorruptSnapshot(ValueError):
    """The file is torn, corrupt or of an unknown version; the log must use an older snapshot."""


class SnapshotEntry(NamedTuple):
    """One producer. The timestamp is of its last batch or marker, the last offset of its last data batch."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int


class BatchSeen(NamedTuple):
    """A batch in the log, as needed to recognize its duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """The state of one producer id on one partition. Only `Producers` changes it."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_start: int | None = None
        """The first offset of the open transaction."""
        self.batches: list[BatchSeen] = []
        """The last five batches of this epoch, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def add(self, header: BatchHeader, base_offset: int, timestamp: int | None) -> None:
        """Remember a data batch, except for the transaction that it may begin."""
        if timestamp is None:
            timestamp = header.max_timestamp
        if self.epoch != header.producer_epoch:
            self.move_to(header.producer_epoch)
        delta = header.last_offset_delta
        sequence = header.base_sequence
        last_sequence = (sequence + delta) & MAX_INT32 if sequence >= 0 else NO_SEQUENCE
        batches = self.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(_new_tuple(BatchSeen, (last_sequence, base_offset + delta, delta, timestamp)))
        self.last_timestamp = timestamp

    def move_to(self, epoch: int) -> None:
        """Begin an epoch. Its sequences begin at 0, so batches of other epochs are forgotten."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()

    def take(self, later: "Producer") -> None:
        """Apply the changes that an append made to a copy without batches."""
        self.move_to(later.epoch)
        self.batches.extend(later.batches)
        del self.batches[:-BATCHES_KEPT]
        self.coordinator_epoch = later.coordinator_epoch
        self.transaction_start = later.transaction_start
        self.last_timestamp = later.last_timestamp

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_start is None and now_ms - self.last_timestamp >= expiration_ms

    def saved(self) -> SnapshotEntry:
        start = self.transaction_start
        last = self.batches[-1] if self.batches else _NO_BATCH
        return SnapshotEntry(
            producer_id=self.producer_id,
            epoch=self.epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            offset_delta=last.offset_delta,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            transaction_start=NO_OFFSET if start is None else start,
        )

    @classmethod
    def restored(cls, entry: SnapshotEntry) -> Self:
        producer = cls(entry.producer_id)
        producer.epoch = entry.epoch
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.last_timestamp = entry.timestamp
        if entry.transaction_start >= 0:
            producer.transaction_start = entry.transaction_start
        if entry.last_offset >= 0:
            batch = BatchSeen(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            producer.batches.append(batch)
        return producer


_NO_BATCH: Final = BatchSeen(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)


def snapshot_name(offset: int) -> str:
    return f"{offset:0{_NAME_DIGITS}d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """Return the offset in a file's name; None if the file is not a snapshot, or is about to be deleted."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    if len(digits) == _NAME_DIGITS and digits.isascii() and digits.isdigit() and name.endswith(SNAPSHOT_SUFFIX):
        return int(digits)
    return None


def encode(entries: Collection[SnapshotEntry]) -> bytes:
    body = b"".join((_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[SnapshotEntry]:
    """Return the entries; raise CorruptSnapshot if bytes are missing or wrong."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"snapshot of {len(data)} bytes is too short")
    version, stored_crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"snapshot has version {version}, only {_VERSION} is known")
    body = memoryview(data)[_HEAD.size :]
    crc = crc32c(body)
    if crc != stored_crc:
        raise CorruptSnapshot(f"snapshot has CRC {crc:#010x}, its header says {stored_crc:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"snapshot of {count} entries in {len(data)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def write(disk: Disk, path: str, entries: Collection[SnapshotEntry]) -> None:
    """Write and sync a snapshot. The CRC reveals a torn file, so no temporary name is needed."""
    data = encode(entries)
    file = disk.create(path)
    try:
        write_all(disk, file, data, 0)
        disk.sync(file)
    finally:
        disk.close(file)


def read(disk: Disk, path: str) -> list[SnapshotEntry]:
    return decode(read_file(disk, path))
