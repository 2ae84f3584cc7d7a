"""Batch headers: fields, bounds, in-place changes, and the batches that a broker may append."""

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    TimestampType,
    assign_crc,
    assign_offset,
    check_crc,
    check_produced,
    check_stored,
    compute_crc,
    read_batches,
    read_header,
    set_max_timestamp,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, read_records

# Written by Kafka 4.3.1's Java client with CreateTime, and then given LogAppendTime by its `setMaxTimestamp`.
JAVA_CREATE = bytes.fromhex(
    "000000000000002a00000077ffffffff02477daefb0000000000020000018bcfe568000000018bcfe56864ffffffffffffffffff"
    "ffffffffff0000000362000000046b313e6f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e6504026802"
    "78086e6f6e65011400c80102010674776f0010000104046b330100"
)
JAVA_APPEND = bytes.fromhex(
    "000000000000002a00000077ffffffff02894869890008000000020000018bcfe56800000001a3185c5000ffffffffffffffffff"
    "ffffffffff0000000362000000046b313e6f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e6504026802"
    "78086e6f6e65011400c80102010674776f0010000104046b330100"
)


def example(count: int = 3, **fields: Any) -> bytearray:
    return build_batch([Record(i, 1000 + i, b"k%d" % i, b"v" * 20) for i in range(count)], **fields)


def header(**fields: int) -> BatchHeader:
    """Return the header of a valid produced batch with the given changes."""
    return read_header(example())._replace(**fields)


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@given(
    st.tuples(
        ints(64), st.integers(49, 2**31 - 1), ints(32), st.just(2), st.integers(0, 2**32 - 1), ints(16), ints(32),
        ints(64), ints(64), ints(64), ints(16), ints(32), ints(32),
    ),
    st.binary(max_size=5),
)  # fmt: skip
def test_every_field_is_read_from_its_offset(fields: tuple[int, ...], before: bytes) -> None:
    encoded = before + b"".join(struct.pack(f">{w}", value) for w, value in zip("qiibIhiqqqhii", fields, strict=True))
    for buf in (encoded, bytearray(encoded), memoryview(encoded)):
        assert read_header(buf, len(before)) == fields


def test_a_header_written_by_java_is_read() -> None:
    assert read_header(JAVA_CREATE) == BatchHeader(
        base_offset=42,
        batch_length=0x77,
        leader_epoch=-1,
        magic=2,
        crc=0x477DAEFB,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_100,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    check_crc(JAVA_CREATE, 0, read_header(JAVA_CREATE))


def test_properties_interpret_the_fields() -> None:
    read = header(base_offset=40, batch_length=100, last_offset_delta=2)
    assert (read.size_bytes, read.last_offset, read.next_offset) == (112, 42, 43)
    assert not any((read.is_transactional, read.is_control, read.has_delete_horizon, read.has_producer_id))
    assert (read.compression, read.timestamp_type, read.delete_horizon) == (
        Compression.NONE,
        TimestampType.CREATE,
        None,
    )
    assert header(attributes=0x10).is_transactional
    assert header(attributes=0x20).is_control
    assert header(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND
    assert header(attributes=0x40, base_timestamp=77).has_delete_horizon
    assert header(attributes=0x40, base_timestamp=77).delete_horizon == 77
    assert [header(attributes=code | 0x78).compression for code in range(5)] == list(Compression)
    assert header(producer_id=0).has_producer_id


@pytest.mark.parametrize("code", [5, 6, 7])
def test_an_unknown_compression_is_rejected_on_access(code: int) -> None:
    with pytest.raises(InvalidBatch, match=f"unknown compression {code}"):
        _ = header(attributes=code).compression


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (0, 0, 0), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    assert header(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_batches_are_yielded_in_order_with_their_positions() -> None:
    parts = [example(1), example(2, base_offset=0), example(3, compression=Compression.ZSTD)]
    joined = b"".join(parts)
    expected = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    for buf in (joined, bytearray(joined), memoryview(joined)):
        batches = list(read_batches(buf))
        assert [pos for pos, _ in batches] == expected
        assert [h.record_count for _, h in batches] == [1, 2, 3]
    middle = list(read_batches(joined, start=expected[1], end=expected[2]))
    assert middle == [(expected[1], read_header(parts[1]))]
    assert list(read_batches(b"")) == []
    assert list(read_batches(b"", partial_tail=True)) == []


def test_batches_are_read_lazily() -> None:
    batches = read_batches(bytes(example()) + b"\xff" * 100)
    assert next(batches)[0] == 0
    with pytest.raises(ProtocolError):
        next(batches)


def test_a_partial_batch_is_rejected_or_ignored_as_requested() -> None:
    first, second = example(), example(2)
    joined = bytes(first + second)
    for cut in range(1, len(joined)):
        whole = cut // len(first)
        assert len(list(read_batches(joined[:cut], partial_tail=True))) == whole
        assert len(list(read_batches(joined, end=cut, partial_tail=True))) == whole
        if cut == len(first):
            continue
        for found in (read_batches(joined[:cut]), read_batches(joined, end=cut)):
            with pytest.raises(CorruptBatch, match=f"at byte {whole * len(first)}$"):
                list(found)


@pytest.mark.parametrize("length", [48, 0, -1, -12, -(2**31)])
@pytest.mark.parametrize("size", [HEADER_BYTES + 40, 20, 12])
@pytest.mark.parametrize("partial_tail", [True, False])
def test_a_length_below_a_header_is_rejected_even_in_a_tail(length: int, size: int, partial_tail: bool) -> None:
    batch = example()
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch):
        list(read_batches(batch[:size], partial_tail=partial_tail))


@pytest.mark.parametrize("length", [2**31 - 1, 10_000])
def test_a_length_beyond_the_buffer_is_rejected(length: int) -> None:
    batch = example()
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch, match=f"batch of {length + 12} bytes, {len(batch)} left"):
        list(read_batches(batch))
    assert list(read_batches(batch, partial_tail=True)) == []
    with pytest.raises(ProtocolError, match="left"):
        check_crc(batch, 0, read_header(batch))
    with pytest.raises(ProtocolError, match="left"):
        read_records(batch)
    with pytest.raises(ProtocolError, match="left"):
        set_max_timestamp(batch, 0, 5)


@pytest.mark.parametrize(
    ("magic", "kind"), [(0, InvalidBatch), (1, InvalidBatch), (3, CorruptBatch), (0xFF, CorruptBatch)]
)
@pytest.mark.parametrize("size", [81, 20])
def test_other_magics_are_rejected(magic: int, kind: type[ProtocolError], size: int) -> None:
    batch = example()
    batch[16] = magic
    for partial_tail in (True, False):
        with pytest.raises(kind, match="magic"):
            list(read_batches(batch[:size], partial_tail=partial_tail))


@given(st.binary(max_size=150), st.booleans())
def test_any_bytes_give_batches_or_a_protocol_error(junk: bytes, partial_tail: bool) -> None:
    for data in (junk, junk[:8] + b"\x00\x00\x00" + junk[8:9] + junk[9:13] + b"\x02" + junk[13:]):
        try:
            for pos, found in read_batches(data, partial_tail=partial_tail):
                assert pos + found.size_bytes <= len(data)
        except ProtocolError:
            continue


def test_the_crc_covers_all_but_offset_length_epoch_and_magic() -> None:
    batch = example()
    assert read_header(batch).crc == crc32c(bytes(batch[21:])) == compute_crc(batch, 0, len(batch))
    check_crc(batch, 0, read_header(batch))
    for place in range(len(batch)):
        flipped = bytearray(batch)
        flipped[place] ^= 0x10
        if place < 8 or 12 <= place < 16:
            check_crc(flipped, 0, read_header(flipped))
        else:
            with pytest.raises(ProtocolError):
                check_crc(flipped, 0, read_header(flipped))


def test_the_crc_is_computed_at_any_position() -> None:
    batch = example()
    within = memoryview(b"front" + bytes(batch) + b"back")
    check_crc(within, 5, read_header(within, 5))


@given(ints(64), ints(32))
def test_offset_and_epoch_are_rewritten_without_the_crc(offset: int, epoch: int) -> None:
    batch = example()
    whole = bytearray(b"front" + batch + b"back")
    for buf in (whole, memoryview(whole)):
        assign_offset(buf, 5, offset, epoch)
        assert read_header(whole, 5) == read_header(batch)._replace(base_offset=offset, leader_epoch=epoch)
        check_crc(whole, 5, read_header(whole, 5))
    assert bytes(whole) == b"front" + whole[5:66] + batch[61:] + b"back"


def test_log_append_time_is_written_as_java_writes_it() -> None:
    batch = bytearray(JAVA_CREATE)
    set_max_timestamp(batch, 0, 1_800_000_000_000)
    assert batch == JAVA_APPEND
    assert {record.timestamp for record in read_records(batch)} == {1_800_000_000_000}


def test_the_timestamp_type_changes_both_ways_and_keeps_other_attributes() -> None:
    batch = example(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True, compression=Compression.LZ4)
    original = bytes(batch)
    for buf in (batch, memoryview(batch)):
        set_max_timestamp(buf, 0, 9999)
        read = read_header(batch)
        check_crc(batch, 0, read)
        assert (read.max_timestamp, read.timestamp_type) == (9999, TimestampType.LOG_APPEND)
        assert read.is_transactional
        assert read.compression is Compression.LZ4
        set_max_timestamp(buf, 0, 1002, TimestampType.CREATE)
        assert batch == original


def test_an_equal_timestamp_is_not_rewritten() -> None:
    batch = example()
    batch[17:21] = b"\x00\x00\x00\x00"
    set_max_timestamp(batch, 0, 1002, TimestampType.CREATE)
    assert read_header(batch).crc == 0
    assign_crc(batch, 0, len(batch))
    check_crc(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 2**62, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1, "attributes": 0x10},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": 4},
    ],
)
def test_batches_of_producers_are_allowed(fields: dict[str, int]) -> None:
    check_produced(header(**fields), max_bytes=len(example()))
    check_stored(header(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"base_offset": -1},
        {"record_count": 0},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"record_count": 2},
        {"record_count": 4},
        {"last_offset_delta": 2**31 - 1, "record_count": -(2**31)},
        {"attributes": 5},
        {"attributes": 0x20},
        {"attributes": 0x10},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 1, "producer_epoch": -1, "base_sequence": 0},
    ],
)
def test_invalid_batches_of_producers_are_rejected(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidBatch):
        check_produced(header(**fields), max_bytes=1_000_000)


def test_a_batch_that_is_one_byte_too_large_is_rejected() -> None:
    with pytest.raises(BatchTooLarge, match="are allowed"):
        check_produced(header(), max_bytes=len(example()) - 1)


@pytest.mark.parametrize(
    "fields",
    [{"record_count": 0}, {"record_count": 1}, {"attributes": 0x30, "base_sequence": -1}, {"base_offset": 2**63 - 4}],
)
def test_compacted_batches_are_allowed_in_a_log(fields: dict[str, int]) -> None:
    check_stored(header(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": -1},
        {"base_offset": 2**63 - 3},
        {"last_offset_delta": -1},
        {"record_count": -1},
        {"record_count": 4},
        {"record_count": 2**31 - 1},
        {"attributes": 7},
    ],
)
def test_invalid_stored_batches_are_rejected(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch):
        check_stored(header(**fields))


def test_flipped_bytes_pass_every_check_or_raise_a_protocol_error() -> None:
    rng = random.Random(1)
    sources = [example(compression=codec, producer_id=1, producer_epoch=0, base_sequence=0) for codec in Compression]
    for _ in range(5000):
        broken = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            for pos, found in read_batches(broken):
                check_produced(found, max_bytes=1000)
                check_stored(found)
                set_max_timestamp(broken, pos, 5)
                check_crc(broken, pos, read_header(broken, pos))
                list(read_records(broken, pos, limit=10_000))
        except ProtocolError:
            continue
