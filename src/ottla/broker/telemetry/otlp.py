"""Decoding of metrics in OpenTelemetry's protobuf format, as clients push them, in a bounded number of steps.

Gauges, sums, and the counts and sums of histograms are decoded; everything else is skipped. Malformed bytes raise
ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.wire.errors import ProtocolError

MAX_FIELDS: Final = 200_000
"""The most fields of one push. A megabyte of regular metrics has fewer."""
DELTA: Final = 1
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_double = struct.Struct("<d")
_integer = struct.Struct("<q")
_unsigned = struct.Struct("<Q")

Value = int | memoryview
Attributes = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One number of one metric."""

    name: str
    attributes: Attributes
    value: float
    is_counter: bool
    is_delta: bool
    """Whether the value is the change since the last push."""


def decode_points(data: bytes) -> Iterator[Point]:
    """Yield all points of a push."""
    decoder = _Decoder()
    for number, resource in decoder.fields(memoryview(data)):
        if number == 1:
            for number_of_scope, scope in decoder.fields(_message(resource)):
                if number_of_scope == 2:
                    for number_of_metric, metric in decoder.fields(_message(scope)):
                        if number_of_metric == 2:
                            yield from decoder.metric(_message(metric))


class _Decoder:
    """Decodes one push and counts its fields."""

    def __init__(self) -> None:
        self._field_count = 0

    def fields(self, data: memoryview) -> Iterator[tuple[int, Value]]:
        """Yield the fields of a message, as numbers and values."""
        pos, end = 0, len(data)
        while pos < end:
            self._field_count += 1
            if self._field_count > MAX_FIELDS:
                raise ProtocolError(f"pushed metrics have more than {MAX_FIELDS} fields")
            tag, pos = _varint(data, pos)
            kind = tag & 7
            value: Value
            if kind == _VARINT:
                value, pos = _varint(data, pos)
            else:
                if kind == _BYTES:
                    size, pos = _varint(data, pos)
                elif kind in (_FIXED_32, _FIXED_64):
                    size = 8 if kind == _FIXED_64 else 4
                else:
                    raise ProtocolError(f"pushed metrics have a field of the unknown type {kind} at byte {pos}")
                if size > end - pos:
                    raise ProtocolError(f"pushed metrics announce {size} bytes at byte {pos} of {end}")
                value, pos = data[pos : pos + size], pos + size
            yield tag >> 3, value

    def metric(self, data: memoryview) -> Iterator[Point]:
        name = ""
        for number, value in self.fields(data):
            if number == 1:
                name = _text(value)
            elif number == 5:
                yield from self._numbers(name, _message(value), is_sum=False)
            elif number == 7:
                yield from self._numbers(name, _message(value), is_sum=True)
            elif number == 9:
                yield from self._histogram(name, _message(value))

    def _numbers(self, name: str, data: memoryview, *, is_sum: bool) -> Iterator[Point]:
        points: list[memoryview] = []
        temporality = is_monotonic = 0
        for number, value in self.fields(data):
            if number == 1:
                points.append(_message(value))
            elif number == 2 and is_sum:
                temporality = _number(value)
            elif number == 3 and is_sum:
                is_monotonic = _number(value)
        for point in points:
            attributes: list[tuple[str, str]] = []
            number_value: float | None = None
            for number, value in self.fields(point):
                if number == 4:
                    number_value = _unpack(_double, value)
                elif number == 6:
                    number_value = _unpack(_integer, value)
                elif number == 7:
                    attributes.append(self._attribute(_message(value)))
            if number_value is not None:
                yield Point(name, tuple(sorted(attributes)), number_value, bool(is_monotonic), temporality == DELTA)

    def _histogram(self, name: str, data: memoryview) -> Iterator[Point]:
        points: list[memoryview] = []
        temporality = 0
        for number, value in self.fields(data):
            if number == 1:
                points.append(_message(value))
            elif number == 2:
                temporality = _number(value)
        for point in points:
            attributes: list[tuple[str, str]] = []
            totals: dict[str, float] = {}
            for number, value in self.fields(point):
                if number == 4:
                    totals["count"] = _unpack(_unsigned, value)
                elif number == 5:
                    totals["sum"] = _unpack(_double, value)
                elif number == 9:
                    attributes.append(self._attribute(_message(value)))
            for what, total in totals.items():
                yield Point(f"{name}.{what}", tuple(sorted(attributes)), total, True, temporality == DELTA)

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key = text = ""
        for number, value in self.fields(data):
            if number == 1:
                key = _text(value)
            elif number == 2:
                text = self._any(_message(value))
        return key, text

    def _any(self, data: memoryview) -> str:
        for number, value in self.fields(data):
            if number == 1:
                return _text(value)
            if number == 2:
                return "true" if _number(value) else "false"
            if number == 3:
                return str(_number(value))
            if number == 4:
                return repr(_unpack(_double, value))
        return ""


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise ProtocolError(f"pushed metrics have a malformed integer at byte {pos}")
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        pos += 1
        if byte < 0x80:
            return value, pos
        shift += 7


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ProtocolError("pushed metrics have a number where a message is expected")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise ProtocolError("pushed metrics have bytes where a number is expected")
    return value


def _text(value: Value) -> str:
    try:
        return bytes(_message(value)).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"pushed metrics have text that is not UTF-8: {error}") from error


def _unpack(format_: struct.Struct, value: Value) -> float:
    data = _message(value)
    if len(data) != format_.size:
        raise ProtocolError(f"pushed metrics have {len(data)} bytes where a number of {format_.size} bytes is expected")
    number: float = format_.unpack(data)[0]
    return number
