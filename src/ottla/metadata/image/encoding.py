"""Records of the metadata log as bytes: one record, and the batches of the log and of snapshots.

A record's value: frame version uvarint, always 1 · type uvarint · version uvarint · the message. It has no key and no
headers. Control batches are the quorum's own: leader changes, the start and end of a snapshot, voters; a control record
says its version in its first field.
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
    """A record of the metadata log whose type or version this node does not know."""


class MetadataEntry(NamedTuple):
    """A record of the log with where and when it was written."""

    offset: int
    timestamp: int
    record: object
    version: int


class ControlEntry(NamedTuple):
    """A control record of the log; the message is None for kinds that this node does not know."""

    offset: int
    timestamp: int
    kind: ControlType
    message: object | None


def encode_record(record: object, version: int) -> bytes:
    """A record as the value it has in the log."""
    start, write = _writers.get((type(record), version)) or _writer(type(record), version)
    chunks: list[Any] = [start]
    write(record, chunks.append)
    return b"".join(chunks)


_writers: dict[tuple[type, int], tuple[bytes, Writer]] = {}
"""For each kind of record and version the bytes that it begins with, and what writes the rest."""


def _writer(kind: type, version: int) -> tuple[bytes, Writer]:
    key = schema_of(kind).key
    if METADATA_RECORDS.get(key) is not kind:
        raise UnknownRecord(f"{kind.__name__} is no record of the metadata log")
    start = ONE_BYTE[FRAME_VERSION] + write_uvarint(key) + write_uvarint(version)
    found = _writers[kind, version] = start, writer_of(kind, version)
    return found


def decode_record(data: Buffer) -> tuple[Any, int]:
    """The record that a value of the log is, and its version."""
    read = _readers.get(bytes(data[:3]))
    if read is None:
        return _decode_record(data)
    message, end = read(memoryview(data), 3)
    if end != len(data):
        return _decode_record(data)  # which says what is wrong
    return message, data[2]


_readers: dict[bytes, Reader] = {}
"""Readers of records by their first three bytes, where frame version, type and version take one each."""


def _decode_record(data: Buffer) -> tuple[Any, int]:
    frame, pos = read_uvarint(data, 0)
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"metadata record of frame version {frame}, not {FRAME_VERSION}")
    key, pos = read_uvarint(data, pos)
    version, pos = read_uvarint(data, pos)
    cls = METADATA_RECORDS.get(key)
    if cls is None:
        raise UnknownRecord(f"metadata record of type {key} (version {version})")
    if version not in schema_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} of version {version}; known are {schema_of(cls).versions}")
    if pos == 3:
        _readers[bytes(data[:3])] = reader_of(cls, version)
    return decode(cls, version, memoryview(data)[pos:]), version


def entries(buf: Buffer, pos: int = 0, header: BatchHeader | None = None) -> Iterator[MetadataEntry | ControlEntry]:
    """What the batch at a position holds: records of the log, or control records."""
    header = header or read_header(buf, pos)
    found = read_records(buf, pos, header)
    return map(_control_entry, found) if header.is_control else map(_metadata_entry, found)


def metadata_batch(records: Iterable[tuple[object, int]], *, base_offset: int, epoch: int, timestamp: int) -> bytearray:
    """A batch of (record, version)."""
    values = [encode_record(record, version) for record, version in records]
    return build_batch_of_values(values, base_offset=base_offset, timestamp=timestamp, leader_epoch=epoch)


def control_batch(messages: Sequence[Any], *, base_offset: int, epoch: int, timestamp: int) -> bytearray:
    """A batch of control records, each written in the version that it says."""
    return build_batch(
        [
            Record(base_offset + number, timestamp, control_key(_CONTROL_TYPES[type(each)]), encode(each, each.version))
            for number, each in enumerate(messages)
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def decode_control(record: Record) -> tuple[ControlType, Any]:
    """A control record's kind and message; kinds of the future, and those of data logs, have no message."""
    kind = control_type(record)
    cls = CONTROL_RECORDS.get(kind)
    if cls is None:
        return kind, None
    if record.value is None or len(record.value) < 2:
        raise ProtocolError(f"{kind.name} control record with value {record.value!r}")
    (version,) = _read_version(record.value)
    if version not in schema_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} of version {version}; known are {schema_of(cls).versions}")
    return kind, decode(cls, version, record.value)


def _metadata_entry(record: Record) -> MetadataEntry:
    if record.key is not None or record.headers or record.value is None:
        raise ProtocolError(f"metadata record at offset {record.offset} has a key, headers, or no value")
    message, version = decode_record(record.value)
    return MetadataEntry(record.offset, record.timestamp, message, version)


def _control_entry(record: Record) -> ControlEntry:
    return ControlEntry(record.offset, record.timestamp, *decode_control(record))
