"""Variable-length integers in base 128, least significant group first. Signed integers are zigzag-encoded.

A reader takes a buffer and a position, and returns the value and the position after it. It raises ProtocolError if the
buffer ends inside the number, if the number has more bytes than its width allows (5 for 32 bits, 10 for 64), or if its
bits do not fit. Like Kafka, it accepts padded encodings within those bounds, such as 0x80 0x00 for 0. A writer raises
ProtocolError for a value that does not fit its width.
"""

from typing import TypeAlias

from ottla.protocol.wire.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The buffers that readers accept: one-dimensional, with items of one byte."""

ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
"""The encodings of the numbers that fit in a single byte."""


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned 32-bit number."""
    try:
        byte = buf[pos]
        if byte < 0x80:
            return byte, pos + 1
        second = buf[pos + 1]
        if second < 0x80:
            return byte & 0x7F | second << 7, pos + 2
    except IndexError:
        raise _cut_short(pos) from None
    return _read_long(buf, pos, 32)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit number."""
    try:
        byte = buf[pos]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), pos + 1
        second = buf[pos + 1]
        if second < 0x80:
            return ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), pos + 2
    except IndexError:
        raise _cut_short(pos) from None
    raw, pos = _read_long(buf, pos, 32)
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit number."""
    try:
        byte = buf[pos]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), pos + 1
        second = buf[pos + 1]
        if second < 0x80:
            return ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), pos + 2
    except IndexError:
        raise _cut_short(pos) from None
    raw, pos = _read_long(buf, pos, 64)
    return (raw >> 1) ^ -(raw & 1), pos


def write_uvarint(value: int) -> bytes:
    """Encode an unsigned 32-bit number."""
    if 0 <= value < 0x80:
        return ONE_BYTE[value]
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ProtocolError(f"{value} does not fit an unsigned 32-bit varint")
    return _write_long(value)


def write_varint(value: int) -> bytes:
    """Encode a signed 32-bit number."""
    if -0x40 <= value < 0x40:
        return ONE_BYTE[value << 1 ^ value >> 31]
    if not -0x8000_0000 <= value <= 0x7FFF_FFFF:
        raise ProtocolError(f"{value} does not fit a 32-bit varint")
    return _write_long(value << 1 ^ value >> 31)


def write_varlong(value: int) -> bytes:
    """Encode a signed 64-bit number."""
    if -0x40 <= value < 0x40:
        return ONE_BYTE[value << 1 ^ value >> 63]
    if not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        raise ProtocolError(f"{value} does not fit a 64-bit varint")
    return _write_long(value << 1 ^ value >> 63)


def _read_long(buf: Buffer, pos: int, bits: int) -> tuple[int, int]:
    start = pos
    value = shift = 0
    try:
        while shift < bits:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    raise ProtocolError(f"varint does not fit {bits} bits", position=start)
                return value, pos
            shift += 7
    except IndexError:
        raise _cut_short(start) from None
    raise ProtocolError(f"varint of more than {pos - start} bytes for {bits} bits", position=start)


def _write_long(value: int) -> bytes:
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _cut_short(start: int) -> ProtocolError:
    return ProtocolError("buffer ends inside a varint", position=start)
