"""Coordinators' records as batches: round trips with transactions, markers and unknown types."""

import pytest

from ottla.protocol.messages.records.group_records import GROUP_RECORDS, OffsetCommitKey, OffsetCommitValue
from ottla.protocol.wire.batch import read_header
from ottla.protocol.wire.control import transaction_marker
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.state_machine.entries import Entry, Marker, Stored, batch_of, encode_key, encode_value, entries_of

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
VALUE = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=5)


def read(batch: bytearray) -> list[Entry]:
    return list(entries_of(GROUP_RECORDS, batch, 0, read_header(batch, 0)))


def test_a_record_comes_back_as_it_went_in() -> None:
    assert read(batch_of([Stored(KEY, VALUE, 3), Stored(KEY, None)], timestamp=9)) == [
        Stored(KEY, VALUE, 3),
        Stored(KEY, None),
    ]


def test_keys_and_values_begin_with_type_and_version() -> None:
    assert encode_key(KEY) == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    value = encode_value(VALUE, 1)
    assert value is not None
    assert value[:2] == b"\x00\x01"
    latest = encode_value(VALUE)
    assert latest is not None
    assert latest[:2] == b"\x00\x04"
    assert encode_value(None) is None


def test_records_of_a_transaction_know_their_producer() -> None:
    batch = batch_of([Stored(KEY, VALUE, 3, producer_id=11, producer_epoch=4)], timestamp=9)
    header = read_header(batch, 0)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (11, 4)
    assert read(batch) == [Stored(KEY, VALUE, 3, 11, 4)]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read(commit: bool) -> None:
    batch = transaction_marker(commit=commit, producer_id=11, producer_epoch=4, coordinator_epoch=6, timestamp=9)
    assert read(batch) == [Marker(11, 4, commit, 6)]


def test_unknown_types_are_left_out() -> None:
    batch = build_batch(
        [
            Record(0, 9, b"\x00\x63" + b"whatever", b"\x00\x00"),
            Record(1, 9, encode_key(KEY), b"\x00\x63" + b"from the future"),
            Record(2, 9, encode_key(KEY), encode_value(VALUE, 3)),
        ]
    )
    assert read(batch) == [Stored(KEY, VALUE, 3)]


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"\x00", None), (encode_key(KEY), b"\x00")])
def test_an_invalid_record_is_rejected(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        read(build_batch([Record(0, 9, key, value)]))
