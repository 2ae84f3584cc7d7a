"""The encoding of metadata records and batches."""

from typing import Any

import pytest

from ottla.metadata.image.encoding import (
    CONTROL_RECORDS,
    ControlEntry,
    MetadataEntry,
    UnknownRecord,
    control_batch,
    decode_control,
    decode_record,
    encode_record,
    entries,
    metadata_batch,
)
from ottla.protocol.messages.records.metadata_records import METADATA_RECORDS, NoOpRecord, TopicRecord
from ottla.protocol.messages.records.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersVoter,
)
from ottla.protocol.wire.batch import read_header
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_key
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch
from tests.unit.metadata.image.stories import uuid

TOPIC = TopicRecord(name="t", topic_id=uuid(1))


def test_a_record_is_framed_by_type_and_version() -> None:
    assert encode_record(TOPIC, 0) == b"\x01\x02\x00" + b"\x02t" + uuid(1) + b"\x00"
    assert decode_record(encode_record(TOPIC, 0)) == (TOPIC, 0)


@pytest.mark.parametrize("cls", METADATA_RECORDS.values(), ids=lambda cls: cls.__name__)
def test_every_record_is_framed_in_every_version(cls: type[Any]) -> None:
    versions = schema_of(cls).versions
    for version in range(versions.first, versions.last + 1):
        assert decode_record(encode_record(cls(), version)) == (cls(), version)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x06\x00", r"type 6 \(version 0\)"),
        (b"\x01\x63\x07", r"type 99 \(version 7\)"),
        (b"\x01\x02\x01", "TopicRecord of version 1; supported versions are 0-0"),
        (b"\x01", "inside a varint"),
        (encode_record(TOPIC, 0)[:-3], "TopicRecord v0"),
        (encode_record(TOPIC, 0) + b"x", "1 bytes follow"),
    ],
)
def test_an_unknown_record_is_named_in_the_error(data: bytes, complaint: str) -> None:
    decode_record(encode_record(TOPIC, 0))  # a known type takes the fast path
    with pytest.raises(ProtocolError, match=complaint):
        decode_record(data)


def test_only_metadata_records_are_framed() -> None:
    with pytest.raises(UnknownRecord, match="SnapshotFooterRecord is not a record"):
        encode_record(SnapshotFooterRecord(), 0)
    with pytest.raises(ProtocolError, match="no version 3"):
        encode_record(TOPIC, 3)


def test_a_batch_returns_its_records() -> None:
    batch = metadata_batch([(TOPIC, 0), (NoOpRecord(), 0)], base_offset=7, epoch=3, timestamp=99)
    assert read_header(batch).leader_epoch == 3
    assert list(entries(batch)) == [MetadataEntry(7, 99, TOPIC, 0), MetadataEntry(8, 99, NoOpRecord(), 0)]


def test_a_compressed_batch_returns_its_records() -> None:
    values = [encode_record(TOPIC, 0), encode_record(NoOpRecord(), 0)]
    given = [Record(offset, 99, None, value) for offset, value in enumerate(values, 7)]
    batch = build_batch(given, base_offset=7, compression=Compression.LZ4)
    assert list(entries(batch)) == [MetadataEntry(7, 99, TOPIC, 0), MetadataEntry(8, 99, NoOpRecord(), 0)]


def test_control_records_are_decoded_by_type() -> None:
    messages = [
        SnapshotHeaderRecord(last_contained_log_timestamp=5),
        KRaftVersionRecord(kraft_version=1),
        VotersRecord(voters=[VotersVoter(voter_id=1)]),
        LeaderChangeMessage(leader_id=1),
        LeaderChangeMessage(version=1, leader_id=1),
        SnapshotFooterRecord(),
    ]
    batch = control_batch(messages, base_offset=4, epoch=1, timestamp=9)
    found = list(entries(batch))
    assert all(isinstance(entry, ControlEntry) for entry in found)
    assert [CONTROL_RECORDS[entry.kind] for entry in found if isinstance(entry, ControlEntry)] == [
        type(message) for message in messages
    ]
    assert [entry.message for entry in found if isinstance(entry, ControlEntry)] == messages
    assert [entry.offset for entry in found] == [4, 5, 6, 7, 8, 9]


def test_control_records_of_other_kinds_have_no_message() -> None:
    assert decode_control(Record(0, 0, control_key(ControlType.COMMIT), b"")) == (ControlType.COMMIT, None)
    assert decode_control(Record(0, 0, b"\x00\x00\x00\x63", b"")) == (ControlType.UNKNOWN, None)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x09"])
def test_a_malformed_control_record_is_rejected(value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_control(Record(0, 0, control_key(ControlType.SNAPSHOT_HEADER), value))


@pytest.mark.parametrize(
    "record",
    [
        Record(3, 0, b"key", encode_record(TOPIC, 0)),
        Record(3, 0, None, encode_record(TOPIC, 0), [("h", b"")]),
        Record(3, 0, None, None),
    ],
)
def test_a_record_is_only_a_value(record: Record) -> None:
    with pytest.raises(ProtocolError, match="offset 3"):
        list(entries(build_batch([record], base_offset=3)))
