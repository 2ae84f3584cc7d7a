"""Pushed metrics are decoded, and malformed payloads are rejected in bounded time."""

import random

import pytest

from ottla.broker.telemetry.otlp import MAX_FIELDS, Point, decode_points
from ottla.protocol.wire.errors import ProtocolError
from tests.unit.broker.telemetry.payloads import gauge, histogram, message, payload, point, total, varint

SOME = payload(
    gauge("a.b", point(1.5), point(-7, {"topic": "t", "client": "é"})),
    total("c", point(3)),
    total("d", point(3), temporality=2, is_monotonic=False),
    histogram("h", 4, 2.5),
)


def test_gauges_sums_and_histograms_are_decoded() -> None:
    assert list(decode_points(SOME)) == [
        Point("a.b", (), 1.5, False, False),
        Point("a.b", (("client", "é"), ("topic", "t")), -7, False, False),
        Point("c", (), 3, True, True),
        Point("d", (), 3, False, False),
        Point("h.count", (), 4, True, True),
        Point("h.sum", (), 2.5, True, True),
    ]


def test_unknown_fields_are_skipped() -> None:
    strange = message(1, b"s") + message(11, b"\x01\x02") + varint(99 << 3) + varint(5)
    assert list(decode_points(payload(strange, gauge("g", point(1))))) == [Point("g", (), 1, False, False)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b",
        b"\x08\x01",
        payload(message(1, b"\xff")),
        payload(gauge("g", message(4, b"abc"))),
    ],
)
def test_malformed_payloads_are_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(decode_points(data))


def test_a_push_with_too_many_fields_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="fields"):
        list(decode_points(b"\x0a\x00" * (MAX_FIELDS + 1)))


def test_mutated_payloads_raise_no_other_error() -> None:
    source = random.Random(5)
    for _ in range(3000):
        data = bytearray(SOME)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            list(decode_points(bytes(data[: source.randint(1, len(data))])))
        except ProtocolError:
            continue
