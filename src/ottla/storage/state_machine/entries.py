"""The entries of coordinators' logs: records with a key and a value, some of them transactional, and markers.

A key begins with the record's type as an i16, a value with its version as an i16; a null value deletes. Records of a
transaction count only once its marker commits it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_type, coordinator_epoch
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.protocol.wire.varint import Buffer

logger = logging.getLogger(__name__)

Kinds = Mapping[int, tuple[type, type]]
"""The classes of key and value by the type that a key begins with."""

_KEY_VERSION: Final = 0
_prefix = struct.Struct(">h")


class Stored(NamedTuple):
    """A record: the value of a key, or None if the key is deleted."""

    key: Any
    value: Any | None
    version: int | None = None
    """The version of the value to write; None for the latest."""
    producer_id: int = NO_PRODUCER_ID
    """The producer whose transaction the record is part of; the same for all records of a decision."""
    producer_epoch: int = NO_PRODUCER_EPOCH


class Marker(NamedTuple):
    """The end of a producer's transaction in this log. A decision has no other records beside it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


Entry = Stored | Marker


def batch_of(entries: Sequence[Stored], *, timestamp: int, compression: Compression = Compression.NONE) -> bytearray:
    """Build one batch of records."""
    first = entries[0]
    is_transactional = first.producer_id != NO_PRODUCER_ID
    return build_batch(
        [
            Record(number, timestamp, encode_key(entry.key), encode_value(entry.value, entry.version))
            for number, entry in enumerate(entries)
        ],
        compression=compression,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        transactional=is_transactional,
    )


def entries_of(kinds: Kinds, buf: Buffer, pos: int, header: BatchHeader) -> Iterator[Entry]:
    """Yield the entries of the batch at a position, without records of unknown types."""
    for record in read_records(buf, pos, header):
        if header.is_control:
            kind = control_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                is_commit = kind is ControlType.COMMIT
                yield Marker(header.producer_id, header.producer_epoch, is_commit, coordinator_epoch(record))
            continue
        decoded = decode_record(kinds, record)
        if decoded is not None:
            key, value, version = decoded
            if header.is_transactional:
                yield Stored(key, value, version, header.producer_id, header.producer_epoch)
            else:
                yield Stored(key, value, version)


def encode_key(key: Any) -> bytes:
    """Encode a key for the log."""
    return _prefix.pack(schema_of(type(key)).key) + encode(key, _KEY_VERSION)


def encode_value(value: Any | None, version: int | None = None) -> bytes | None:
    """Encode a value for the log."""
    if value is None:
        return None
    if version is None:
        version = schema_of(type(value)).versions.last
    return _prefix.pack(version) + encode(value, version)


def decode_record(kinds: Kinds, record: Record) -> tuple[Any, Any | None, int | None] | None:
    """Return the key, the value and its version; None if the type or version is unknown to this node."""
    if record.key is None or len(record.key) < _prefix.size:
        raise ProtocolError(f"the record at offset {record.offset} has the key {record.key!r}")
    (kind,) = _prefix.unpack_from(record.key)
    classes = kinds.get(kind)
    if classes is None:
        logger.warning("Skipped the record at offset %d of unknown type %d", record.offset, kind)
        return None
    key: Any = decode(classes[0], _KEY_VERSION, memoryview(record.key)[_prefix.size :])
    if record.value is None:
        return key, None, None
    if len(record.value) < _prefix.size:
        raise ProtocolError(f"the record at offset {record.offset} has a value of {len(record.value)} bytes")
    (version,) = _prefix.unpack_from(record.value)
    if version not in schema_of(classes[1]).versions:
        logger.warning("Skipped %s at offset %d of unknown version %d", classes[1].__name__, record.offset, version)
        return None
    return key, decode(classes[1], version, memoryview(record.value)[_prefix.size :]), version
