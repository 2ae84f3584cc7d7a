"""Batches become columns: the compiled and the plain decoder agree on any records and any broken bytes."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.wire.batch import HEADER_BYTES, TimestampType, read_header
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, build_batch
from ottla.spark.connector import columns
from ottla.spark.connector.columns import TYPES, ColumnDecoder, DecompressedBatch

SCHEMA = pa.schema(list(TYPES.items()))
NOW = 1_700_000_000_000

texts = st.text(max_size=8)
contents = st.none() | st.binary(max_size=200)
drafts = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(-(1 << 40), 1 << 40),
        contents,
        contents,
        st.lists(st.tuples(texts, contents), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


def piece(records: list[Record], base_offset: int = 0, **options: TimestampType) -> DecompressedBatch:
    batch = build_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]
    return DecompressedBatch(read_header(batch), bytes(batch[HEADER_BYTES:]))


def numbered(rows: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> list[Record]:
    """Return records at rising offsets, with gaps."""
    records, offset = [], 0
    for gap, skew, key, value, headers in rows:
        offset += gap
        records.append(Record(offset, NOW + skew, key, value, tuple(headers)))
        offset += 1
    return records


def expected(records: list[Record], first: int, stop: int) -> Iterator[dict[str, object]]:
    for record in records:
        if first <= record.offset < stop:
            yield {
                "key": record.key,
                "value": record.value,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
            }


def plain(batch: pa.RecordBatch) -> list[dict[str, object]]:
    batch.validate(full=True)
    names = ("key", "value", "offset", "timestamp", "headers")
    values = [batch.column(name).cast(pa.int64()) if name == "timestamp" else batch.column(name) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*(column.to_pylist() for column in values), strict=True)]


@settings(deadline=None)
@given(drafts, st.integers(0, 20), st.integers(0, 100))
def test_any_records_become_rows(
    rows: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], first: int, stop: int
) -> None:
    records = numbered(rows)
    pieces = [piece(records)]
    decoded = ColumnDecoder(SCHEMA, "orders", 2).decode(pieces, first, stop)
    assert plain(decoded) == list(expected(records, first, stop))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "compiled", None)
        assert ColumnDecoder(SCHEMA, "orders", 2).decode(pieces, first, stop).equals(decoded)


@pytest.mark.usefixtures("form")
def test_several_batches_become_one() -> None:
    pieces = [
        piece([Record(number, NOW, b"k", b"v" * number)], number, timestamp_type=TimestampType(number % 2))
        for number in range(100)
    ]
    batch = ColumnDecoder(SCHEMA, "orders", 2).decode(pieces, 10, 90)
    assert batch.column("offset").to_pylist() == list(range(10, 90))
    assert batch.column("timestampType").to_pylist() == [0, 1] * 40
    assert batch.column("value").to_pylist() == [b"v" * number for number in range(10, 90)]
    assert set(batch.column("topic").to_pylist()) == {"orders"}
    assert set(batch.column("partition").to_pylist()) == {2}


@pytest.mark.usefixtures("form")
def test_invalid_utf8_in_a_header_name_is_replaced_as_in_java() -> None:
    odd = Record(0, NOW, None, b"", ((b"\xff".decode("utf-8", "surrogateescape"), b"x"),))
    batch = ColumnDecoder(SCHEMA, "orders", 0).decode([piece([odd])], 0, 1)
    assert batch.column("headers").to_pylist() == [[{"key": "�", "value": b"x"}]]


@pytest.mark.usefixtures("form")
def test_a_timestamp_out_of_sparks_range_is_an_error() -> None:
    late = piece([Record(0, 1 << 62, None, b"late")])
    with pytest.raises(ProtocolError, match="offset 0 has timestamp 4611686018427387904"):
        ColumnDecoder(SCHEMA, "orders", 0).decode([late], 0, 1)
    without = pa.schema([("value", TYPES["value"])])
    assert ColumnDecoder(without, "orders", 0).decode([late], 0, 1).to_pylist() == [{"value": b"late"}]


SOUND = piece([Record(number, NOW + number, b"key", b"value", (("h", b"x"),)) for number in range(5)])


@settings(deadline=None, max_examples=300)
@given(st.integers(0, len(SOUND.payload) - 1), st.integers(0, 255), st.integers(0, 40))
def test_broken_bytes_give_an_error_or_rows(place: int, byte: int, cut: int) -> None:
    payload = bytearray(SOUND.payload)
    payload[place] = byte
    broken = DecompressedBatch(SOUND.header, bytes(payload[: len(payload) - cut]))
    try:
        whole = ColumnDecoder(SCHEMA, "orders", 0).decode([broken], 0, 100)
    except ProtocolError:
        return
    whole.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "compiled", None)
        assert ColumnDecoder(SCHEMA, "orders", 0).decode([broken], 0, 100).equals(whole)


def test_a_header_that_claims_billions_of_records_allocates_no_memory() -> None:
    claimed = DecompressedBatch(
        SOUND.header._replace(record_count=0x7FFF_FFFF, last_offset_delta=0x7FFF_FFFE), SOUND.payload
    )
    with pytest.raises(ProtocolError, match="ends inside record 5"):
        ColumnDecoder(SCHEMA, "orders", 0).decode([claimed], 0, 100)
