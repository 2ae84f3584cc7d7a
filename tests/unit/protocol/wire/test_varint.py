"""Varints: round trips, Kafka's test vectors, and all malformed encodings."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.varint import (
    Buffer,
    read_uvarint,
    read_varint,
    read_varlong,
    write_uvarint,
    write_varint,
    write_varlong,
)

Reader = Callable[[Buffer, int], tuple[int, int]]
Writer = Callable[[int], bytes]

KINDS: dict[str, tuple[Reader, Writer, int, int, int]] = {
    "uvarint": (read_uvarint, write_uvarint, 0, 2**32 - 1, 5),
    "varint": (read_varint, write_varint, -(2**31), 2**31 - 1, 5),
    "varlong": (read_varlong, write_varlong, -(2**63), 2**63 - 1, 10),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@given(data=st.data(), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_written_numbers_are_read_back_at_any_position(
    kind: str, data: st.DataObject, before: bytes, after: bytes
) -> None:
    read, write, low, high, longest = KINDS[kind]
    value = data.draw(st.integers(low, high) | st.integers(max(low, -70_000), 70_000))
    encoded = write(value)
    assert 1 <= len(encoded) <= longest
    whole = before + encoded + after
    for buf in (whole, bytearray(whole), memoryview(whole)):
        assert read(buf, len(before)) == (value, len(before) + len(encoded))


@each_kind
def test_extremes_and_length_boundaries_round_trip(kind: str) -> None:
    read, write, low, high, _ = KINDS[kind]
    edges = {low, high, 0, *(sign * (2**bits) + d for bits in range(64) for sign in (1, -1) for d in (-1, 0, 1))}
    for value in edges:
        if low <= value <= high:
            assert read(write(value), 0) == (value, len(write(value)))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_signed_values_encode_as_kafka_encodes_them(value: int, encoded: str) -> None:
    assert write_varint(value) == write_varlong(value) == bytes.fromhex(encoded)


def test_the_widest_varlong_has_ten_bytes() -> None:
    assert write_varlong(-(2**63)) == b"\xff" * 9 + b"\x01"
    assert write_varlong(2**63 - 1) == b"\xfe" + b"\xff" * 8 + b"\x01"


@each_kind
@given(data=st.data())
def test_a_buffer_that_ends_inside_a_number_is_rejected(kind: str, data: st.DataObject) -> None:
    read, write, low, high, _ = KINDS[kind]
    encoded = write(data.draw(st.integers(low, high)))
    for cut in range(len(encoded)):
        with pytest.raises(ProtocolError, match="ends inside"):
            read(encoded[:cut], 0)


@each_kind
def test_a_start_beyond_the_end_is_rejected(kind: str) -> None:
    with pytest.raises(ProtocolError, match="at byte 7"):
        KINDS[kind][0](b"\x00", 7)


@each_kind
def test_an_endless_varint_is_rejected(kind: str) -> None:
    read, _, _, _, longest = KINDS[kind]
    with pytest.raises(ProtocolError, match=f"more than {longest} bytes"):
        read(b"\x80" * 1000, 0)
    with pytest.raises(ProtocolError, match=f"more than {longest} bytes"):
        read(b"\x80" * longest + b"\x00", 0)


@each_kind
def test_bits_beyond_the_width_are_rejected(kind: str) -> None:
    read, _, _, _, longest = KINDS[kind]
    with pytest.raises(ProtocolError, match="does not fit"):
        read(b"\xff" * (longest - 1) + b"\x7f", 0)


@each_kind
def test_padding_within_the_width_is_accepted(kind: str) -> None:
    read, _, _, _, longest = KINDS[kind]
    assert read(b"\x80" * (longest - 1) + b"\x00", 0) == (0, longest)


@each_kind
def test_a_value_out_of_range_is_not_written(kind: str) -> None:
    _, write, low, high, _ = KINDS[kind]
    for value in (low - 1, high + 1):
        with pytest.raises(ProtocolError, match="does not fit"):
            write(value)


@given(st.binary(max_size=12))
def test_any_bytes_give_a_value_in_range_or_a_protocol_error(junk: bytes) -> None:
    for read, _, low, high, longest in KINDS.values():
        try:
            value, pos = read(junk, 0)
        except ProtocolError:
            continue
        assert low <= value <= high
        assert 1 <= pos <= longest


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProtocolError("short"), "short"),
        (ProtocolError("short", position=0), "short at byte 0"),
        (ProtocolError("short", within="a batch"), "short in a batch"),
        (ProtocolError("short", position=61, within="a batch"), "short at byte 61 of a batch"),
    ],
)
def test_an_error_names_the_problem_and_the_position(error: ProtocolError, text: str) -> None:
    assert str(error) == text
