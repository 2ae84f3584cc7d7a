"""Record batches of magic 2: read and check headers in place, and rewrite the few fields that a broker sets.

A batch travels through a broker unchanged, and nothing here looks at its records. Functions take a buffer and the
position of a batch in it. They copy nothing. For bytes that they cannot accept, they raise the ProtocolError that is
named after the producer's error code: CorruptBatch, InvalidBatch or BatchTooLarge.

    0 base offset i64 · 8 batch length i32 (after it) · 12 partition leader epoch i32 · 16 magic i8 · 17 CRC u32
    21 attributes i16 · 23 last offset delta i32 · 27 base timestamp i64 · 35 max timestamp i64
    43 producer id i64 · 51 producer epoch i16 · 53 base sequence i32 · 57 record count i32 · 61 records

The CRC-32C covers the bytes from the attributes to the end, so a broker can set the base offset and the leader epoch
without computing it again. Attributes: bits 0-2 compression · 3 LogAppendTime · 4 transactional · 5 control · 6 the
base timestamp is a delete horizon (KIP-534).
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.crc import crc32c
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.varint import Buffer

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""The bytes that the batch length does not count: the base offset and the length itself."""
LENGTH_OFFSET = 8
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
"""The CRC covers the bytes from here to the end of the batch."""
ATTRIBUTES_LOW_BYTE = 22
"""The byte of the attributes that holds the bits below."""
MAX_TIMESTAMP_OFFSET = 35

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_SEQUENCE = NO_LEADER_EPOCH = -1

MAX_INT32 = 0x7FFF_FFFF
MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF

HEADER = struct.Struct(">qiibIhiqqqhii")
read_length = struct.Struct(">i").unpack_from
"""Reads the batch length at LENGTH_OFFSET behind the start of a batch."""
read_bounds = struct.Struct(">qi11xi").unpack_from
"""Reads base offset, batch length and last offset delta from the start of a batch."""
_write_offset = struct.Struct(">q").pack_into
_write_epoch = struct.Struct(">i").pack_into
write_start = struct.Struct(">qii").pack_into
"""Writes base offset, batch length and leader epoch: the fields in front of the magic."""
_write_crc = struct.Struct(">I").pack_into
_write_attributes = struct.Struct(">h").pack_into
_write_max_timestamp = struct.Struct(">q").pack_into
_COMPRESSIONS = tuple(Compression)


class CorruptBatch(ProtocolError):
    """The bytes are not the ones that were sent. The producer's error is CORRUPT_MESSAGE."""


class InvalidBatch(ProtocolError):
    """The batch is intact but must not be appended. The producer's error is INVALID_RECORD."""


class BatchTooLarge(ProtocolError):
    """The batch is larger than the topic allows. The producer's error is MESSAGE_TOO_LARGE."""


class TimestampType(IntEnum):
    """Whether the producer or the broker set a batch's timestamps."""

    CREATE = 0
    LOG_APPEND = 1


class BatchHeader(NamedTuple):
    """The fields of the 61 bytes before the records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        code = self.attributes & COMPRESSION_MASK
        if code >= len(_COMPRESSIONS):
            raise InvalidBatch(f"unknown compression {code}", within="a batch header")
        return _COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon(self) -> int | None:
        """The time in milliseconds from which the cleaner may remove the batch's tombstones and markers."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1 if the batch has none. Sequences wrap from the largest int32 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_INT32


_new_header = tuple.__new__
_unpack_header = HEADER.unpack_from


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header at a position. The records after it need not be in the buffer."""
    try:
        # `tuple.__new__` takes half the time of a constructor call with thirteen arguments.
        header = _new_header(BatchHeader, _unpack_header(buf, pos))
    except struct.error:
        raise CorruptBatch(
            f"batch header needs {HEADER_BYTES} bytes, {max(len(buf) - pos, 0)} left", position=pos
        ) from None
    if header.magic != 2 or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise _malformed(header.batch_length, header.magic, pos)
    return header


def read_batches(
    buf: Buffer, *, start: int = 0, end: int | None = None, partial_tail: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each batch from `start` to `end`.

    The range must end at the end of a batch, unless `partial_tail` is set: a fetch response may end inside a batch.
    """
    pos = start
    end = len(buf) if end is None else end
    while pos < end:
        left = end - pos
        if left < HEADER_BYTES:
            if left >= LENGTH_PREFIX_BYTES:
                _check_start(buf, pos, left)
            if partial_tail:
                return
            raise CorruptBatch(f"batch header needs {HEADER_BYTES} bytes, {left} left", position=pos)
        header = read_header(buf, pos)
        size = header.batch_length + LENGTH_PREFIX_BYTES
        if size > left:
            if partial_tail:
                return
            raise CorruptBatch(f"batch of {size} bytes, {left} left", position=pos)
        yield pos, header
        pos += size


def compute_crc(buf: Buffer, pos: int, size_bytes: int) -> int:
    """Return the CRC-32C of the batch's bytes."""
    if pos + size_bytes > len(buf):
        raise CorruptBatch(f"batch of {size_bytes} bytes, {len(buf) - pos} left", position=pos)
    return crc32c(memoryview(buf)[pos + ATTRIBUTES_OFFSET : pos + size_bytes])


def assign_crc(buf: bytearray | memoryview, pos: int, size_bytes: int) -> None:
    """Compute the CRC-32C of the batch and write it into the header."""
    _write_crc(buf, pos + CRC_OFFSET, compute_crc(buf, pos, size_bytes))


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptBatch if the CRC in the header does not match the bytes."""
    crc = compute_crc(buf, pos, header.batch_length + LENGTH_PREFIX_BYTES)
    if crc != header.crc:
        raise CorruptBatch(f"the header's CRC is {header.crc:#010x}, but the bytes have {crc:#010x}", position=pos)


def check_produced(header: BatchHeader, *, max_bytes: int) -> None:
    """Raise if the header shows that a producer must not send this batch. The caller checks the CRC."""
    if header.base_offset != 0:
        raise InvalidBatch(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    if header.batch_length + LENGTH_PREFIX_BYTES > max_bytes:
        raise BatchTooLarge(f"batch of {header.size_bytes} bytes, at most {max_bytes} are allowed")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.record_count} records with last offset delta {header.last_offset_delta}")
    if header.attributes & COMPRESSION_MASK >= len(_COMPRESSIONS):
        raise InvalidBatch(f"unknown compression {header.attributes & COMPRESSION_MASK}")
    if header.attributes & CONTROL_BIT:
        raise InvalidBatch("producers may not write control records")
    if header.producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidBatch(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
            )
    elif header.attributes & TRANSACTIONAL_BIT:
        raise InvalidBatch("transactional batch without a producer id")


def check_stored(header: BatchHeader) -> None:
    """Raise CorruptBatch if a log cannot hold this batch. Replication and recovery use this check.

    A compacted batch has fewer records than offsets. It has none if only its producer state is still needed.
    """
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset >= MAX_INT64:
        raise CorruptBatch(f"offsets {header.base_offset} to {header.last_offset}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(f"{header.record_count} records with last offset delta {header.last_offset_delta}")
    if header.attributes & COMPRESSION_MASK >= len(_COMPRESSIONS):
        raise CorruptBatch(f"unknown compression {header.attributes & COMPRESSION_MASK}")


def assign_offset(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch. The CRC covers neither."""
    _write_offset(buf, pos, base_offset)
    _write_epoch(buf, pos + LEADER_EPOCH_OFFSET, leader_epoch)


def set_max_timestamp(
    buf: bytearray | memoryview, pos: int, timestamp: int, timestamp_type: TimestampType = TimestampType.LOG_APPEND
) -> None:
    """Write the max timestamp, the timestamp type and the CRC.

    With LogAppendTime the max timestamp is the timestamp of every record. The records keep deltas that have no meaning.
    """
    header = read_header(buf, pos)
    if pos + header.size_bytes > len(buf):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes, {len(buf) - pos} left", position=pos)
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
    if timestamp == header.max_timestamp and attributes == header.attributes:
        return
    _write_attributes(buf, pos + ATTRIBUTES_OFFSET, attributes)
    _write_max_timestamp(buf, pos + MAX_TIMESTAMP_OFFSET, timestamp)
    assign_crc(buf, pos, header.size_bytes)


def _check_start(buf: Buffer, pos: int, left: int) -> None:
    """Check as much of a batch as an incomplete header allows."""
    (length,) = read_length(buf, pos + LENGTH_OFFSET)
    magic = memoryview(buf)[pos + MAGIC_OFFSET] if left > MAGIC_OFFSET else 2
    if magic != 2 or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise _malformed(length, magic, pos)


def _malformed(length: int, magic: int, pos: int) -> ProtocolError:
    if magic in (0, 1):
        return InvalidBatch(f"batch of magic {magic}; only 2 is supported", position=pos)
    if magic != 2:
        return CorruptBatch(f"batch of magic {magic}, which is not a known format", position=pos)
    return CorruptBatch(f"batch length {length} is shorter than a header", position=pos)
