"""Encoding of metadata records, and of the batches of the log and of snapshots.

The value of a record is: frame version (uvarint, always 1), type (uvarint), version (uvarint), message. A record has no
key and no headers. Control batches belong to the quorum: leader changes, snapshot headers and footers, voters. The
first field of a control record is its version.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.protocol.messages.records.metadata_records import METADATA_RECORDS
from ottla.protocol.messages.records.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.wire.batch import BatchHeader, read_header
from ottla.protocol.wire.codec import decode, encode, reader_of, writer_of
from ottla.protocol.wire.control import ControlType, control_key, control_type
from ottla.protocol.wire.declare import Reader, Writer, schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, build_batch_of_values, read_records
from ottla.protocol.wire.varint import ONE_BYTE, Buffer, read_uvarint, write_uvarint

FRAME_VERSION = 1

CONTROL_RECORDS: dict[ControlType, type] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_CONTROL_TYPES = {cls: kind for kind, cls in CONTROL_RECORDS.items()}
_read_version = struct.Struct(">h").unpack_from


class UnknownRecord(ProtocolError):
    """A metadata record whose type or version this release does not know."""


class MetadataEntry(NamedTuple):
    """A record of the log with its offset and timestamp."""

    offset: int
    timestamp: int
    record: object
    version: int


class ControlEntry(NamedTuple):
    """A control record of the log. The message is None if this release does not know the type."""

    offset: int
    timestamp: int
    kind: ControlType
    message: object | None


def encode_record(record: object, version: int) -> bytes:
    """Encode a record as a value of the log."""
    start, write = _writers.get((type(record), version)) or _writer(type(record), version)
    chunks: list[Any] = [start]
    write(record, chunks.append)
    return b"".join(chunks)


_writers: dict[tuple[type, int], tuple[bytes, Writer]] = {}
"""By type and version: the first bytes of a record, and the writer of the rest."""


def _writer(kind: type, version: int) -> tuple[bytes, Writer]:
    key = schema_of(kind).key
    if METADATA_RECORDS.get(key) is not kind:
        raise UnknownRecord(f"{kind.__name__} is not a record of the metadata log")
    start = ONE_BYTE[FRAME_VERSION] + write_uvarint(key) + write_uvarint(version)
    prefix_and_writer = _writers[kind, version] = start, writer_of(kind, version)
    return prefix_and_writer


def decode_record(data: Buffer) -> tuple[Any, int]:
    """Decode a value of the log into a record and its version."""
    read = _readers.get(bytes(data[:3]))
    if read is None:
        return _decode_record(data)
    message, end = read(memoryview(data), 3)
    if end != len(data):
        return _decode_record(data)  # which raises the error
    return message, data[2]


_readers: dict[bytes, Reader] = {}
"""Readers by the first three bytes of a record, if frame version, type and version take one byte each."""


def _decode_record(data: Buffer) -> tuple[Any, int]:
    frame, pos = read_uvarint(data, 0)
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"metadata record with frame version {frame}; only {FRAME_VERSION} is supported")
    key, pos = read_uvarint(data, pos)
    version, pos = read_uvarint(data, pos)
    cls = METADATA_RECORDS.get(key)
    if cls is None:
        raise UnknownRecord(f"metadata record of type {key} (version {version})")
    if version not in schema_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} of version {version}; supported versions are {schema_of(cls).versions}")
    if pos == 3:
        _readers[bytes(data[:3])] = reader_of(cls, version)
    return decode(cls, version, memoryview(data)[pos:]), version


def entries(buf: Buffer, pos: int = 0, header: BatchHeader | None = None) -> Iterator[MetadataEntry | ControlEntry]:
    """Return the records or control records of the batch at a position."""
    header = header or read_header(buf, pos)
    records = read_records(buf, pos, header)
    return map(_control_entry, records) if header.is_control else map(_metadata_entry, records)


def metadata_batch(records: Iterable[tuple[object, int]], *, base_offset: int, epoch: int, timestamp: int) -> bytearray:
    """Build a batch from pairs of record and version."""
    values = [encode_record(record, version) for record, version in records]
    return build_batch_of_values(values, base_offset=base_offset, timestamp=timestamp, leader_epoch=epoch)


def control_batch(messages: Sequence[Any], *, base_offset: int, epoch: int, timestamp: int) -> bytearray:
    """Build a batch of control records, each in the version that its first field has."""
    return build_batch(
        [
            Record(
                base_offset + number,
                timestamp,
                control_key(_CONTROL_TYPES[type(message)]),
                encode(message, message.version),
            )
            for number, message in enumerate(messages)
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def decode_control(record: Record) -> tuple[ControlType, Any]:
    """Return the type and message of a control record. Unknown types, and those of data logs, have no message."""
    kind = control_type(record)
    cls = CONTROL_RECORDS.get(kind)
    if cls is None:
        return kind, None
    if record.value is None or len(record.value) < 2:
        raise ProtocolError(f"{kind.name} control record with value {record.value!r}")
    (version,) = _read_version(record.value)
    if version not in schema_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} of version {version}; supported versions are {schema_of(cls).versions}")
    return kind, decode(cls, version, record.value)


def _metadata_entry(record: Record) -> MetadataEntry:
    if record.key is not None or record.headers or record.value is None:
        raise ProtocolError(f"metadata record at offset {record.offset} has a key, headers, or no value")
    message, version = decode_record(record.value)
    return MetadataEntry(record.offset, record.timestamp, message, version)


def _control_entry(record: Record) -> ControlEntry:
    return ControlEntry(record.offset, record.timestamp, *decode_control(record))
