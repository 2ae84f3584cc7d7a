"""Records: round trips in every compression, Java's batches, and all inconsistencies of a batch."""

import random
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.wire import compression
from ottla.protocol.wire.batch import (
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    assign_crc,
    check_crc,
    check_produced,
    check_stored,
    read_header,
    set_max_timestamp,
)
from ottla.protocol.wire.compression import PIECE_BYTES, Compression, compress
from ottla.protocol.wire.control import ControlType, control_key, control_type, coordinator_epoch, transaction_marker
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch, build_batch_of_values, read_keys, read_records
from ottla.protocol.wire.varint import write_varint, write_varlong

each_codec = pytest.mark.parametrize("codec", Compression)
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1

# The same three records of a transactional producer, as Kafka 4.3.1's Java client builds them in each compression.
JAVA_BATCHES = {
    Compression.NONE: (
        "000000000000002a000000770000000502811e91a80010000000020000018bcfe568000000018bcfe568640000000000000f"
        "a000077ffffffe0000000362000000046b313e6f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e65206f6e65"
        "0402680278086e6f6e65011400c80102010674776f0010000104046b330100"
    ),
    Compression.GZIP: (
        "000000000000002a000000700000000502921d0e1a0011000000020000018bcfe568000000018bcfe568640000000000000f"
        "a000077ffffffe000000031f8b08000000000000ff4b62606060c936b4cbcf4b55c083599832982a38f2802c461186138c4c"
        "8c6c25e5f90c020c8c2c2cd9c68c0c005bc23bb946000000"
    ),
    Compression.SNAPPY: (
        "000000000000002a0000007600000005022bbebba00012000000020000018bcfe568000000018bcfe568640000000000000f"
        "a000077ffffffe0000000382534e4150505900000000010000000100000031462c62000000046b313e6f6e65206a04007804"
        "02680278086e6f6e65011400c80102010674776f0010000104046b330100"
    ),
    Compression.LZ4: (
        "000000000000002a000000710000000502edcd8d8e0013000000020000018bcfe568000000018bcfe568640000000000000f"
        "a000077ffffffe0000000304224d1860408231000000cf62000000046b313e6f6e6520040008f0100402680278086e6f6e65"
        "011400c80102010674776f0010000104046b33010000000000"
    ),
    Compression.ZSTD: (
        "000000000000002a0000006f00000005026c95f3070014000000020000018bcfe568000000018bcfe568640000000000000f"
        "a000077ffffffe0000000328b52ffd0058940100b40262000000046b313e6f6e65200402680278086e6f6e65011400c80102"
        "010674776f0010000104046b3301000100872e09010000"
    ),
}
JAVA_RECORDS = [
    Record(42, 1_700_000_000_000, b"k1", b" ".join([b"one"] * 8), (("h", b"x"), ("none", None))),
    Record(43, 1_700_000_000_100, None, b"two"),
    Record(44, 1_699_999_999_999, b"k3", None),
]
JAVA_COMMIT = (
    "0000000000000009000000420000000302d10589930030000000000000018bcfe568000000018bcfe568000000000000000f"
    "a00007ffffffff000000012000000008000000010c00000000000c00"
)
JAVA_ABORT = (
    "0000000000000009000000420000000302253b5fdb0030000000000000018bcfe568000000018bcfe568000000000000000f"
    "a00007ffffffff000000012000000008000000000c00000000000c00"
)
JAVA_EMPTY = (
    "000000000000006400000031000000030201e1cb3a001000000009ffffffffffffffff0000018bcfe568000000000000000f"
    "a000070000003700000000"
)

header_keys = st.text(st.characters(codec="utf-8"), max_size=8)
blobs = st.none() | st.binary(max_size=100) | st.builds(bytes, st.integers(0, 20_000))


@st.composite
def record_lists(draw: st.DrawFn, *, min_size: int = 0) -> tuple[int, list[Record]]:
    """A base offset, and records from it with gaps."""
    base = draw(st.integers(0, 2**40))
    moment = draw(st.integers(-1, 2**42))
    gaps = draw(st.lists(st.integers(0, 3) | st.integers(0, 10_000), min_size=min_size, max_size=12))
    records: list[Record] = []
    offset = base - 1
    for gap in gaps:
        offset += 1 + gap
        timestamp = moment + draw(st.integers(-100, 100) | st.integers(-(2**40), 2**40))
        headers = tuple(draw(st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=70)), max_size=3)))
        records.append(Record(offset, timestamp, draw(blobs), draw(blobs), headers))
    return base, records


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=100), st.integers(0, 2**40), st.integers(0, 2**42))
def test_values_build_the_same_batch_as_records(values: list[bytes], base: int, timestamp: int) -> None:
    given = [Record(offset, timestamp, None, value) for offset, value in enumerate(values, base)]
    batch = build_batch_of_values(values, base_offset=base, timestamp=timestamp, leader_epoch=7)
    assert batch == build_batch(given, base_offset=base, leader_epoch=7)


def encode(*, head: bytes = b"\x00\x00\x00", key: bytes = b"\x02k", rest: bytes = b"\x02v\x00", cut: int = 0) -> bytes:
    """Encode one record from its parts. `cut` is the error of its length."""
    body = head + key + rest
    return write_varint(len(body) - cut) + body


def batch_of(
    payload: bytes, count: int = 1, *, codec: Compression = Compression.NONE, delta: int | None = None
) -> bytearray:
    """Build a batch around the given bytes, with a valid header and CRC."""
    batch = bytearray(HEADER_BYTES) + compress(codec, payload)
    fields = BatchHeader(
        0, len(batch) - 12, -1, 2, 0, codec, count - 1 if delta is None else delta, 1000, 1000, -1, -1, -1, count
    )
    return pack(batch, fields)


def pack(batch: bytearray, fields: BatchHeader) -> bytearray:
    HEADER.pack_into(batch, 0, *fields)
    assign_crc(batch, 0, len(batch))
    return batch


@each_codec
@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 30])
@given(example=record_lists())
@settings(max_examples=60, deadline=None)
def test_built_batches_are_read_back(codec: Compression, piece_bytes: int, example: tuple[int, list[Record]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "PIECE_BYTES", piece_bytes)
        check_read_back(codec, example)


def check_read_back(codec: Compression, example: tuple[int, list[Record]]) -> None:
    base, given_records = example
    batch = build_batch(given_records, base_offset=base, compression=codec)
    header = read_header(batch)
    check_crc(batch, 0, header)
    check_stored(header)
    assert header.size_bytes == len(batch)
    within = memoryview(b"front" + bytes(batch) + b"back")
    for buf, pos in ((batch, 0), (bytes(batch), 0), (within, 5)):
        assert list(read_records(buf, pos)) == given_records
        assert list(read_keys(buf, pos, header)) == [
            (r.offset, r.timestamp, r.key, r.value is None) for r in given_records
        ]


@each_codec
def test_records_written_by_java_are_read(codec: Compression) -> None:
    batch = bytes.fromhex(JAVA_BATCHES[codec])
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.compression, header.producer_id, header.producer_epoch) == (codec, 4000, 7)
    assert (header.base_sequence, header.last_sequence, header.leader_epoch) == (2**31 - 2, 0, 5)
    assert header.is_transactional
    assert list(read_records(batch)) == JAVA_RECORDS
    assert [key for _, _, key, _ in read_keys(batch)] == [b"k1", None, b"k3"]


def test_an_uncompressed_batch_equals_javas() -> None:
    ours = build_batch(
        JAVA_RECORDS,
        base_offset=42,
        leader_epoch=5,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    assert ours.hex() == JAVA_BATCHES[Compression.NONE]


def test_a_large_batch_of_numbers_of_every_length_is_read_back() -> None:
    rng = random.Random(5)
    records = [
        Record(i * 3, 10**12 + rng.choice((i, i * i, -i * 10**7)), rng.randbytes(i % 300), rng.randbytes(i * 7 % 9000))
        for i in range(9000)
    ]
    assert list(read_records(build_batch(records, compression=Compression.LZ4))) == records


def test_offsets_may_be_missing_and_the_last_one_is_kept() -> None:
    kept = [Record(103, 10, b"a", b"1"), Record(107, 30, b"b", None)]
    batch = build_batch(kept, base_offset=100, last_offset_delta=9, max_timestamp=99)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count, header.max_timestamp) == (100, 109, 2, 99)
    check_stored(header)
    assert list(read_records(batch)) == kept


def test_a_batch_without_records_is_only_a_header_as_in_java() -> None:
    batch = build_batch(
        [],
        base_offset=100,
        last_offset_delta=9,
        compression=Compression.ZSTD,
        max_timestamp=1_700_000_000_000,
        leader_epoch=3,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=55,
        transactional=True,
    )
    assert batch.hex() == JAVA_EMPTY
    assert list(read_records(batch)) == []
    assert list(read_keys(batch)) == []


@each_codec
def test_empty_batches_of_any_compression_have_no_records(codec: Compression) -> None:
    assert list(read_records(batch_of(b"", 0, codec=codec, delta=4))) == []


def test_a_delete_horizon_replaces_the_base_timestamp() -> None:
    kept = [Record(0, 1000, b"a", None), Record(1, 900, b"b", None)]
    batch = build_batch(kept, delete_horizon=1_700_000_000_000)
    header = read_header(batch)
    assert header.has_delete_horizon
    assert (header.delete_horizon, header.max_timestamp) == (1_700_000_000_000, 1000)
    assert list(read_records(batch)) == kept


def test_with_log_append_time_every_record_has_the_max_timestamp() -> None:
    batch = build_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], timestamp_type=TimestampType.LOG_APPEND)
    assert read_header(batch).timestamp_type is TimestampType.LOG_APPEND
    set_max_timestamp(batch, 0, 777)
    assert [r.timestamp for r in read_records(batch)] == [777, 777]
    assert [timestamp for _, timestamp, _, _ in read_keys(batch)] == [777, 777]


def test_a_header_key_that_is_not_utf8_survives() -> None:
    batch = batch_of(encode(rest=b"\x01" + b"\x02" + b"\x04\xff\x41" + b"\x01"))
    (record,) = read_records(batch)
    assert record.headers == (("\udcffA", None),)
    assert build_batch([record])[HEADER_BYTES:] == batch[HEADER_BYTES:]


def test_record_attributes_are_ignored_as_in_java() -> None:
    assert list(read_records(batch_of(encode(head=b"\x7f\x00\x00")))) == [Record(0, 1000, b"k", b"v")]


def test_padded_numbers_are_read() -> None:
    padded = encode(head=b"\x00\x80\x00\x80\x80\x00", key=b"\x82\x00k", rest=b"\x82\x80\x00v\x80\x00")
    assert list(read_records(batch_of(padded))) == [Record(0, 1000, b"k", b"v")]
    length_in_two_bytes = bytes((padded[0] | 0x80, 0)) + padded[1:]
    assert list(read_records(batch_of(length_in_two_bytes))) == [Record(0, 1000, b"k", b"v")]


GOOD = encode()
BROKEN: dict[str, tuple[bytes, int]] = {
    "fewer records than counted": (GOOD, 2),
    "more records than counted": (GOOD + encode(head=b"\x00\x00\x02"), 1),
    "no records where one is counted": (b"", 1),
    "2**31 - 1 records counted": (GOOD, 2**31 - 1),
    "a byte after the last record": (GOOD + b"\x00", 1),
    "bytes where no record is counted": (GOOD, 0),
    "a record of length zero": (b"\x00" + GOOD, 2),
    "a record of negative length": (b"\x01" + GOOD[1:], 1),
    "a record of length -2**31": (write_varint(-(2**31)) + GOOD[1:], 1),
    "a record of length 2**31 - 1": (write_varint(2**31 - 1) + GOOD[1:], 1),
    "a length that does not end": (b"\xff" * 20, 1),
    "a length shorter than the fields": (encode(cut=1), 1),
    "a length beyond the buffer": (encode(cut=-1), 1),
    "a length that takes a byte of the next record": (encode(cut=-1) + encode(head=b"\x00\x00\x02", cut=1), 2),
    "a key of -2 bytes": (encode(key=b"\x03k"), 1),
    "a key of 2**31 - 1 bytes": (encode(key=write_varint(2**31 - 1) + b"k"), 1),
    "a key of -2**31 bytes": (encode(key=write_varint(-(2**31)) + b"k"), 1),
    "a key longer than its record": (encode(key=b"\x0ek") + encode(head=b"\x00\x00\x02"), 2),
    "a value of -2 bytes": (encode(rest=b"\x03v\x00"), 1),
    "a value of 2**31 - 1 bytes": (encode(rest=write_varint(2**31 - 1) + b"v\x00"), 1),
    "a value that leaves no header count": (encode(rest=b"\x04v\x00"), 1),
    "no header count": (encode(rest=b"\x02v"), 1),
    "no header count after a null": (encode(rest=b"\x01"), 1),
    "an offset below the base": (encode(head=b"\x00\x00\x01"), 1),
    "an offset above the last": (encode(head=b"\x00\x00\x02"), 1),
    "an offset of 2**31 - 1": (encode(head=b"\x00\x00" + write_varint(2**31 - 1)), 1),
    "an offset twice": (GOOD + GOOD, 2),
    "offsets that fall": (encode(head=b"\x00\x00\x02") + GOOD, 2),
    "a timestamp beyond 64 bits": (encode(head=b"\x00" + write_varlong(MAX_INT64) + b"\x00"), 1),
}
BROKEN_HEADERS: dict[str, bytes] = {
    "a header where none is": b"\x02",
    "-1 headers": b"\x01",
    "2**31 - 1 headers": write_varint(2**31 - 1) + b"\x02h\x02x",
    "a count that does not end": b"\xff" * 9,
    "a null header key": b"\x02\x01\x02x",
    "a header key of -2 bytes": b"\x02\x03\x02x",
    "a header key beyond its record": b"\x02\x10h\x02x",
    "a header value of -2 bytes": b"\x02\x02h\x03",
    "a header value beyond its record": b"\x02\x02h\x10x",
    "a byte after no headers": b"\x00\x00",
    "a byte after the headers": b"\x02\x02h\x02x\x00",
    "one header more than counted": b"\x02" + b"\x02h\x02x" * 2,
    "one header less than counted": b"\x04\x02h\x02x",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_an_inconsistent_batch_is_rejected(name: str, codec: Compression) -> None:
    payload, count = BROKEN[name]
    batch = batch_of(payload, count, codec=codec)
    for read in (read_records, read_keys):
        with pytest.raises(ProtocolError):
            list(read(batch))


@pytest.mark.parametrize("name", BROKEN_HEADERS)
def test_inconsistent_record_headers_are_rejected(name: str) -> None:
    batch = batch_of(encode(rest=b"\x02v" + BROKEN_HEADERS[name]))
    with pytest.raises(ProtocolError):
        list(read_records(batch))


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_negative_count_is_rejected(count: int) -> None:
    batch = batch_of(GOOD, 1)
    pack(batch, read_header(batch)._replace(record_count=count))
    for read in (read_records, read_keys):
        with pytest.raises(ProtocolError, match=f"batch of {count} records"):
            read(batch)


def test_offsets_beyond_64_bits_are_rejected() -> None:
    batch = build_batch([Record(0, 0, None, None)])
    pack(batch, read_header(batch)._replace(base_offset=MAX_INT64, last_offset_delta=1))
    with pytest.raises(ProtocolError, match="spans"):
        read_records(batch)


def test_a_wrong_count_costs_no_memory() -> None:
    many_records = batch_of(GOOD, 2**31 - 1)
    many_headers = batch_of(encode(rest=b"\x02v" + write_varint(2**31 - 1) + b"\x00" * 100))
    long_key = batch_of(encode(key=write_varint(2**31 - 1)))
    tracemalloc.start()
    try:
        for batch in (many_records, many_headers, long_key):
            with pytest.raises(ProtocolError):
                list(read_records(batch))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_records_before_the_malformed_one_are_yielded() -> None:
    decoding = read_records(batch_of(GOOD + b"\x01", 2))
    assert next(decoding).key == b"k"
    with pytest.raises(ProtocolError):
        next(decoding)


@each_codec
def test_a_payload_truncated_at_any_byte_is_rejected(codec: Compression) -> None:
    whole = build_batch([Record(i, i, b"key", b"value" * i, (("h", b"x"),)) for i in range(12)], compression=codec)
    fields = read_header(whole)
    for size in range(HEADER_BYTES, len(whole)):
        cut = pack(whole[:size], fields._replace(batch_length=size - 12))
        for read in (read_records, read_keys):
            with pytest.raises(ProtocolError):
                list(read(cut))


def test_a_buffer_truncated_at_any_byte_is_rejected() -> None:
    whole = bytes(build_batch([Record(0, 0, b"key", b"value")]))
    for size in range(len(whole)):
        for read in (read_records, read_keys):
            with pytest.raises(ProtocolError):
                list(read(whole[:size]))


@each_codec
def test_decompression_stops_at_the_limit(codec: Compression) -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], compression=codec)
    assert len(list(read_records(batch, limit=100_100))) == 1
    for read in (read_records, read_keys):
        with pytest.raises(ProtocolError, match="more than 100000 bytes"):
            read(batch, limit=100_000)


@each_codec
def test_flipped_bytes_give_records_or_a_protocol_error(codec: Compression) -> None:
    rng = random.Random(codec)
    whole = build_batch(
        [Record(i, i * i, b"key-%d" % i, b"v" * i, (("h", None),) * (i % 3)) for i in range(40)], compression=codec
    )
    for _ in range(2000):
        broken = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(rng.choice((HEADER_BYTES, len(broken))))] = rng.randrange(256)
        for read in (read_records, read_keys):
            try:
                offsets = [record[0] for record in read(broken, limit=10_000)]
            except ProtocolError:
                continue
            header = read_header(broken)
            assert all(a < b for a, b in pairwise((header.base_offset - 1, *offsets, header.last_offset + 1)))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_payload_gives_records_or_a_protocol_error(junk: bytes, count: int) -> None:
    for payload in (junk, encode(rest=b"\x02v" + junk), encode(key=junk)):
        for read in (read_records, read_keys):
            try:
                assert len(list(read(batch_of(payload, count, delta=3)))) == count
            except ProtocolError:
                continue


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        ([Record(5, 0, None, None)], {"base_offset": 6}),
        ([Record(5, 0, None, None), Record(5, 0, None, None)], {}),
        ([Record(6, 0, None, None), Record(5, 0, None, None)], {}),
        ([Record(9, 0, None, None), Record(5, 0, None, None), Record(9, 0, None, None)], {}),
        ([Record(5, 0, None, None)], {"last_offset_delta": 4}),
        ([Record(2**31, 0, None, None)], {}),
        ([], {"last_offset_delta": 2**31}),
        ([Record(0, MIN_INT64, None, None), Record(1, MAX_INT64, None, None)], {}),
        ([Record(0, 0, None, None)], {"producer_epoch": 2**15}),
        ([Record(0, 0, None, None)], {"producer_id": 2**63}),
        ([Record(0, 2**63, None, None)], {}),
    ],
)
def test_invalid_batches_are_not_built(records: list[Record], fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        build_batch(records, **fields)


def test_a_produced_batch_passes_the_checks_of_a_broker() -> None:
    batch = build_batch(
        (Record(i, i, None, b"x") for i in range(10)),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    check_produced(read_header(batch), max_bytes=len(batch))


@pytest.mark.parametrize(("commit", "expected"), [(True, JAVA_COMMIT), (False, JAVA_ABORT)])
def test_a_transaction_marker_equals_javas(commit: bool, expected: str) -> None:
    batch = transaction_marker(
        commit=commit,
        producer_id=4000,
        producer_epoch=7,
        coordinator_epoch=12,
        timestamp=1_700_000_000_000,
        base_offset=9,
        leader_epoch=3,
    )
    assert batch.hex() == expected
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_sequence, header.last_sequence) == (-1, -1)
    (record,) = read_records(batch)
    assert control_type(record) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert coordinator_epoch(record) == 12


@pytest.mark.parametrize(
    ("key", "kind"),
    [(control_key(kind), kind) for kind in ControlType if kind >= 0]
    + [
        (b"\x00\x00\x00\x07", ControlType.UNKNOWN),
        (b"\x00\x00\xff\xff", ControlType.UNKNOWN),
        (b"\x00\x01\x00\x01 and more", ControlType.COMMIT),
    ],
)
def test_the_key_determines_the_control_type(key: bytes, kind: ControlType) -> None:
    assert control_type(Record(0, 0, key, None)) is kind


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_an_invalid_control_key_is_rejected(key: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="control record"):
        control_type(Record(0, 0, key, None))


@pytest.mark.parametrize("value", [None, b"", bytes(5), b"\xff\xff\x00\x00\x00\x00"])
def test_an_invalid_marker_value_is_rejected(value: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="transaction marker"):
        coordinator_epoch(Record(0, 0, control_key(ControlType.COMMIT), value))
