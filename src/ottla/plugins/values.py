"""The encoding of values between a node and its plug-in JVM.

A value begins with a byte for its kind: null (0), a number of 8 bytes (1), UTF-8 text (2), bytes (3), an array of
4-byte numbers (4), a list of values (5) or a map (6). Lengths and counts have 4 bytes and come first; numbers are
big-endian. In Python, a list is a list or tuple, and an array of numbers is an `array`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

NUMBERS: Final = "i"
"""The type code of arrays of 4-byte numbers."""
_NULL, _NUMBER, _TEXT, _BYTES, _NUMBERS, _LIST, _MAP = range(7)
_number = struct.Struct(">Bq")
_sized = struct.Struct(">Bi")
_read_number = struct.Struct(">q").unpack_from
_read_size = struct.Struct(">i").unpack_from


def numbers(values: Iterable[int]) -> array[int]:
    """Return an array of 4-byte numbers."""
    return array(NUMBERS, values)


def encode(value: object) -> bytes:
    """Encode a value."""
    out = bytearray()
    _write(out, value)
    return bytes(out)


def decode(data: bytes) -> Any:
    """Decode a value."""
    value, end = _read(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the value")
    return value


def _write(out: bytearray, value: object) -> None:
    match value:
        case None:
            out.append(_NULL)
        case int():
            out += _number.pack(_NUMBER, value)
        case str():
            text = value.encode()
            out += _sized.pack(_TEXT, len(text)) + text
        case bytes():
            out += _sized.pack(_BYTES, len(value)) + value
        case array():
            out += _sized.pack(_NUMBERS, len(value)) + _swapped(value).tobytes()
        case Mapping():
            out += _sized.pack(_MAP, len(value))
            for key, item in value.items():
                _write(out, key)
                _write(out, item)
        case list() | tuple():
            out += _sized.pack(_LIST, len(value))
            for item in value:
                _write(out, item)
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be encoded")


def _read(data: bytes, pos: int) -> tuple[Any, int]:
    kind, pos = data[pos], pos + 1
    if kind == _NULL:
        return None, pos
    if kind == _NUMBER:
        return _read_number(data, pos)[0], pos + 8
    (size,), pos = _read_size(data, pos), pos + 4
    return _SIZED[kind](data, pos, size)


def _read_text(data: bytes, pos: int, size: int) -> tuple[str, int]:
    return data[pos : pos + size].decode(), pos + size


def _read_bytes(data: bytes, pos: int, size: int) -> tuple[bytes, int]:
    return data[pos : pos + size], pos + size


def _read_numbers(data: bytes, pos: int, size: int) -> tuple[array[int], int]:
    end = pos + 4 * size
    return _swapped(array(NUMBERS, data[pos:end])), end


def _read_list(data: bytes, pos: int, size: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(size):
        item, pos = _read(data, pos)
        items.append(item)
    return items, pos


def _read_map(data: bytes, pos: int, size: int) -> tuple[dict[Any, Any], int]:
    entries = {}
    for _ in range(size):
        key, pos = _read(data, pos)
        entries[key], pos = _read(data, pos)
    return entries, pos


_SIZED: Final[dict[int, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    _TEXT: _read_text,
    _BYTES: _read_bytes,
    _NUMBERS: _read_numbers,
    _LIST: _read_list,
    _MAP: _read_map,
}


def _swapped(values: array[int]) -> array[int]:
    """Convert numbers between this machine's byte order and the wire's."""
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values
