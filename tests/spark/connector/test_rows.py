"""Rows become records: the compiled and the plain encoder agree, and the record decoder reads the result back."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.partitioning import partition_for_key
from ottla.protocol.wire.batch import BatchHeader
from ottla.protocol.wire.records import decode_records
from ottla.spark.connector import rows
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.rows import BadRow, Rows

contents = st.none() | st.binary(max_size=150)
headers = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": contents}), max_size=3)
tables = st.lists(st.tuples(contents, contents, headers), min_size=1, max_size=40)


def rows_of(table: list[tuple[Any, Any, Any]]) -> Rows:
    key, value, header = (list(column) for column in zip(*table, strict=True))
    return Rows(
        pa.array(key, pa.binary()), pa.array(value, pa.binary()), pa.array(header, TYPES["headers"]), len(table)
    )


def encode_all(encoder: Rows, members: "np.ndarray[Any, np.dtype[np.int32]]", room: int) -> list[bytes]:
    """Return the payloads of as many batches as the rows need."""
    payloads, start = [], 0
    while start < len(members):
        out = bytearray(room)
        taken, end = encoder.encode(members, start, out, 0, 0)
        assert taken, "a row does not fit"
        payloads.append(bytes(out[:end]))
        start += taken
    return payloads


def read_back(payload: bytes, count: int) -> list[tuple[Any, Any, Any]]:
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, 7, 7, -1, -1, -1, count)
    return [
        (record.key, record.value, [{"key": name, "value": value} for name, value in record.headers] or None)
        for record in decode_records(header, payload)
    ]


@settings(deadline=None)
@given(tables, st.integers(1500, 4000))
def test_any_rows_become_records(table: list[tuple[Any, Any, Any]], room: int) -> None:
    encoder = rows_of(table)
    members = np.arange(len(table), dtype=np.int32)[::-1].copy()
    payloads = encode_all(encoder, members, room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "compiled", None)
        assert encode_all(rows_of(table), members, room) == payloads
    if len(payloads) == 1:
        wanted = [(key, value, header or None) for key, value, header in reversed(table)]
        assert read_back(payloads[0], len(table)) == wanted


@pytest.mark.usefixtures("form")
def test_rows_get_the_partition_of_their_key() -> None:
    keys = [None, b"", b"a", b"ab", b"abc", b"abcd", b"abcde", bytes(range(256)), b"\xff" * 7]
    encoder = Rows(pa.array(keys, pa.binary()), None, None, len(keys))
    chosen = np.full(len(keys), -1, dtype=np.int32)
    chosen[2] = 5
    encoder.place(chosen, 17)
    assert chosen.tolist() == [
        -1,
        partition_for_key(b"", 17),
        5,
        *(partition_for_key(key, 17) for key in keys[3:] if key is not None),
    ]


@pytest.mark.usefixtures("form")
def test_slices_and_text_are_encoded() -> None:
    text = pa.array(["zero", "one", None, "three"])
    listed = pa.array([None, [{"key": "h", "value": b"1"}], [], [{"key": "i", "value": None}]], TYPES["headers"])
    encoder = Rows(text.slice(1), text.slice(1), listed.slice(1), 3)
    (payload,) = encode_all(encoder, np.arange(3, dtype=np.int32), 1000)
    assert read_back(payload, 3) == [
        (b"one", b"one", [{"key": "h", "value": b"1"}]),
        (None, None, None),
        (b"three", b"three", [{"key": "i", "value": None}]),
    ]


@pytest.mark.skipif(rows.compiled is None, reason="the package was built without its compiled part")
def test_a_row_outside_of_its_column_is_rejected() -> None:
    ends, data, out = np.array([0, 3], dtype=np.int32), b"key", bytearray(100)
    nothing = (None,) * 10

    def encode(row: int, *key: object) -> None:
        rows.compiled.encode((*key, *nothing), np.array([row], dtype=np.int32), 0, out, 0, 0)

    encode(0, ends, None, data)
    for row, key in (
        (1, (ends, None, data)),  # there is one row
        (-1, (ends, None, data)),
        (0, (ends, None, b"ke")),  # it ends after the content
        (0, (np.array([2, 1], dtype=np.int32), None, data)),
        (0, (np.array([-1, 1], dtype=np.int32), None, data)),
        (0, (ends, b"", data)),  # its validity is missing
    ):
        with pytest.raises(ValueError, match="outside of its column"):
            encode(row, *key)


def test_a_header_without_a_key_is_rejected() -> None:
    with pytest.raises(BadRow, match="column headers"):
        Rows(None, pa.array([b"x"]), pa.array([[{"key": None, "value": b"1"}]], TYPES["headers"]), 1)
