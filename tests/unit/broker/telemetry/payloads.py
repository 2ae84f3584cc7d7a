"""Payloads of pushed metrics, built by hand in OpenTelemetry's protobuf format."""

import struct
from collections.abc import Mapping


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 1) + data


def attribute(key: str, value: str) -> bytes:
    return message(1, key.encode()) + message(2, message(1, value.encode()))


def point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    number = fixed(6, struct.pack("<q", value)) if isinstance(value, int) else fixed(4, struct.pack("<d", value))
    return fixed(3, bytes(8)) + number + b"".join(message(7, attribute(*item)) for item in (attributes or {}).items())


def gauge(name: str, *points: bytes) -> bytes:
    return message(1, name.encode()) + message(5, b"".join(message(1, point) for point in points))


def total(name: str, *points: bytes, temporality: int = 1, is_monotonic: bool = True) -> bytes:
    body = b"".join(message(1, point) for point in points)
    body += number_field(2, temporality) + number_field(3, int(is_monotonic))
    return message(1, name.encode()) + message(7, body)


def histogram(name: str, count: int, sum_: float) -> bytes:
    body = message(1, fixed(4, struct.pack("<Q", count)) + fixed(5, struct.pack("<d", sum_)))
    return message(1, name.encode()) + message(9, body + number_field(2, 1))


def payload(*metrics: bytes) -> bytes:
    """A payload with one resource and one scope."""
    scope = b"".join(message(2, metric) for metric in metrics)
    return message(1, message(1, b"") + message(2, message(1, b"") + scope))
