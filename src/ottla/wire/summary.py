"""The records of a batch, looked at one by one, in a few numbers: what a leader must know before it stores them.

A producer's batch holds as many records as its header says, numbered from nought without gaps, each as long as it
claims, and nothing behind the last. Whatever is wrong leaves as ProtocolError, as from `records`.

This runs for every record that is produced. In Python that is about 1 µs each, which is as much as all the rest of a
produce of small records. So there is a compiled form of it (`_scan.c`, built when the package is installed where there
is a C compiler), which confirms that records are in order and leaves everything else to the Python below. Without it
all is the same, but slower.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.wire.batch import MAX_INT64, NO_TIMESTAMP
from ottla.wire.errors import ProtocolError
from ottla.wire.varint import Buffer, read_varint, read_varlong

try:
    from ottla.wire._scan import inspect as _inspect
    from ottla.wire._scan import scan as _compiled
    from ottla.wire._scan import survey as _survey
except ImportError:
    _compiled = _inspect = _survey = None  # type: ignore[assignment]

_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
_MIN_INT64 = -MAX_INT64 - 1


class Summary(NamedTuple):
    """What is said of all records together."""

    latest: int
    """The latest timestamp; -1 if none is later, as for records that have none."""
    earliest: int
    """The earliest timestamp of those that have any; the largest number if none has."""
    keyless: bool
    """Whether any record has no key."""


Scan = Callable[[Buffer, int, int, int], "tuple[int, int, bool] | None"]
compiled: Scan | None = _compiled
"""The compiled form, where it was built."""

Inspect = Callable[[Buffer, "Buffer | None", int, int, tuple[int, int, int, bool]], "tuple[int, ...] | None"]
inspect: Inspect | None = _inspect
"""Compiled only: the header of a batch that may be appended as it came, else None. From its bytes, its records where
they were compressed, its true CRC, the time, and rules: the largest size, how many milliseconds timestamps may lie
before that time and after it, and whether records need keys."""

Survey = Callable[[list[Any]], "int | None"]
survey: Survey | None = _survey
"""Compiled only: the attributes of all batches of a list together, if each is one batch of magic 2; else None."""


def summarize(data: Buffer, start: int, count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """Summarize the records that fill a buffer from `start` on; ProtocolError if they are not in order."""
    if compiled is not None:
        found = compiled(data, start, count, base_timestamp)
        if found is not None:
            return found
    return summarize_in_python(data, start, count, base_timestamp)


def summarize_in_python(buf: Buffer, start: int, count: int, base_timestamp: int) -> Summary:
    """The same, without compiled code; and what says which record is wrong."""
    data = bytes(buf)  # is read from twice as fast as a view
    zigzag, available = _ZIGZAG, len(data)
    latest, earliest, keyless = NO_TIMESTAMP, MAX_INT64, False
    end, number = start, 0
    try:
        for number in range(count):
            first = end
            if (low := data[first]) < 0x80:
                end, pos = first + 1 + zigzag[low], first + 2
            else:
                length, pos = read_varint(data, first)
                end, pos = pos + length, pos + 1
            if (low := data[pos]) < 0x80:
                timestamp, pos = base_timestamp + zigzag[low], pos + 1
            else:
                skew, pos = read_varlong(data, pos)
                timestamp = base_timestamp + skew
            if (low := data[pos]) < 0x80:
                delta, pos = zigzag[low], pos + 1
            else:
                delta, pos = read_varint(data, pos)
            if (low := data[pos]) < 0x80:
                key_size, pos = zigzag[low], pos + 1
            else:
                key_size, pos = read_varint(data, pos)
            if key_size < 0:
                keyless = True
            else:
                pos += key_size
            if (low := data[pos]) < 0x80:
                size, pos = zigzag[low], pos + 1
            else:
                size, pos = read_varint(data, pos)
            if size > 0:
                pos += size
            # Every step went forward, so that this also tells of a key beyond the end; a count of headers must follow.
            if key_size < -1 or size < -1 or pos >= end or end > available:
                raise ProtocolError(f"record {number} with a key of {key_size} bytes and a value of {size}", at=first)
            if delta != number or not _MIN_INT64 <= timestamp <= MAX_INT64:
                raise ProtocolError(f"record {number} has offset delta {delta} and timestamp {timestamp}", at=first)
            if pos + 1 != end or data[pos]:
                _skip_headers(data, pos, end)
            if timestamp > latest:
                latest = timestamp
            if timestamp < earliest and timestamp != NO_TIMESTAMP:
                earliest = timestamp
    except IndexError:
        raise ProtocolError(f"ends inside record {number} of {count}", at=available) from None
    if end != available:
        raise ProtocolError(f"{available - end} bytes after the last of {count} records", at=end)
    return Summary(latest, earliest, keyless)


def _skip_headers(data: bytes, pos: int, end: int) -> None:
    count, pos = read_varint(data, pos)
    # The least that a header takes is two lengths.
    if not 0 <= count * 2 <= end - pos:
        raise ProtocolError(f"{count} headers in {end - pos} bytes", at=pos)
    for _ in range(count):
        size, start = read_varint(data, pos)
        if not 0 <= size <= end - start:
            raise ProtocolError(f"header key of {size} bytes", at=pos)
        pos = start + size
        size, start = read_varint(data, pos)
        if not -1 <= size <= end - start:
            raise ProtocolError(f"header value of {size} bytes", at=pos)
        pos = start + max(size, 0)
    if pos != end:
        raise ProtocolError(f"{end - pos} bytes after the fields of a record", at=pos)
