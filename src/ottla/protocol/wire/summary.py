"""Checks the records of a produced batch, and summarizes what a leader must know before it appends them.

A produced batch must hold as many records as its header says, numbered from 0 without gaps. Each must be as long as its
length says, and nothing may follow the last. Otherwise these functions raise ProtocolError, as `read_records` does.

This runs for every produced record. In Python it takes about 1 µs per record, as much as everything else in a produce
of small records. The compiled form (`_scan.c`, built at installation if there is a C compiler) confirms that records
are well-formed, and leaves everything else to the Python below. Without it everything works the same, but slower.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.protocol.wire.batch import MAX_INT64, NO_TIMESTAMP
from ottla.protocol.wire.compression import PIECE_BYTES
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.varint import Buffer, read_varint, read_varlong, write_varint, write_varlong

try:
    from ottla.protocol.wire._scan import inspect as _inspect
    from ottla.protocol.wire._scan import scan as _compiled
    from ottla.protocol.wire._scan import scan_part as _compiled_part
    from ottla.protocol.wire._scan import skip_pairs as _compiled_pairs
    from ottla.protocol.wire._scan import survey as _survey
except ImportError:
    _compiled = _compiled_part = _compiled_pairs = _inspect = _survey = None  # type: ignore[assignment]

_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
_MIN_INT64 = -MAX_INT64 - 1
_MAX_NUMBER_BYTES = 10


class Summary(NamedTuple):
    """The summary of a batch's records."""

    latest: int
    """The latest timestamp, at least -1, which means that a record has no timestamp."""
    earliest: int
    """The earliest timestamp of the records that have one, or the largest int64 if none has."""
    keyless: bool
    """Whether any record lacks a key."""


Scan = Callable[[Buffer, int, int, int], "tuple[int, int, bool] | None"]
compiled_scan: Scan | None = _compiled
"""The compiled form, or None if it was not built."""

ScanPart = Callable[[Buffer, int, int, int, int], tuple[int, int, int, int, bool]]
SkipPairs = Callable[[Buffer, int, int, int], tuple[int, int]]

Inspect = Callable[[Buffer, "Buffer | None", int, int, tuple[int, int, int, bool]], "tuple[int, ...] | None"]
inspect: Inspect | None = _inspect
"""Compiled only: return the header of a batch that may be appended unchanged, else None.

The arguments are the batch, its decompressed records if it is compressed, the computed CRC, the time, and the rules:
the largest size, how many milliseconds timestamps may lie before and after that time, and whether records need keys.
"""

Survey = Callable[[list[Any]], "int | None"]
survey: Survey | None = _survey
"""Compiled only: return the attributes of all batches of a list, or'ed, if each is one batch of magic 2; else None."""


def summarize(data: Buffer, start: int, count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """Summarize the records that fill a buffer from `start`. Raise ProtocolError if they are malformed."""
    if compiled_scan is not None:
        summary = compiled_scan(data, start, count, base_timestamp)
        if summary is not None:
            return summary
    return summarize_in_python(data, start, count, base_timestamp)


def summarize_in_python(buf: Buffer, start: int, count: int, base_timestamp: int) -> Summary:
    """Summarize records without compiled code. The error names the record that is malformed."""
    data = bytes(buf)  # indexing is twice as fast as in a view
    (end, _, latest, earliest, keyless), error = _walk(data, start, 0, count, base_timestamp)
    if error is not None:
        raise error
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the last of {count} records", position=end)
    return Summary(latest, earliest, keyless)


def scan_part_in_python(
    buf: Buffer, start: int, first: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, bool]:
    """Scan whole, well-formed records from the number `first`. Return where they end, the next number, and the
    fields of their Summary."""
    return _walk(bytes(buf), start, first, count, base_timestamp)[0]


scan_part: ScanPart = _compiled_part if compiled_scan is not None else scan_part_in_python


def _skip_no_pairs(data: Buffer, start: int, stop: int, count: int) -> tuple[int, int]:
    """Skip nothing: without compiled code, the caller skips headers one by one."""
    return start, count


skip_pairs: SkipPairs = _compiled_pairs if compiled_scan is not None else _skip_no_pairs
"""Skips whole, well-formed headers up to a position and a count. Returns where they end, and how many remain."""


def _walk(
    data: bytes, start: int, next_number: int, count: int, base_timestamp: int
) -> tuple[tuple[int, int, int, int, bool], ProtocolError | None]:
    """Scan records up to the last one, or to the first that is malformed or incomplete. Return also the error."""
    zigzag, available = _ZIGZAG, len(data)
    latest, earliest, keyless = NO_TIMESTAMP, MAX_INT64, False
    first = end = start
    number, error = next_number, None
    try:
        for number in range(next_number, count):
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
            if key_size > 0:
                pos += key_size
            if (low := data[pos]) < 0x80:
                size, pos = zigzag[low], pos + 1
            else:
                size, pos = read_varint(data, pos)
            if size > 0:
                pos += size
            # Positions only increase, so this also finds a key that reaches beyond the end. A header count must follow.
            if key_size < -1 or size < -1 or pos >= end or end > available:
                raise ProtocolError(
                    f"record {number} with a key of {key_size} bytes and a value of {size}", position=first
                )
            if delta != number or not _MIN_INT64 <= timestamp <= MAX_INT64:
                raise ProtocolError(
                    f"record {number} has offset delta {delta} and timestamp {timestamp}", position=first
                )
            if pos + 1 != end or data[pos]:
                _skip_headers(data, pos, end)
            if key_size < 0:
                keyless = True
            if timestamp > latest:
                latest = timestamp
            if timestamp < earliest and timestamp != NO_TIMESTAMP:
                earliest = timestamp
        number, first = max(next_number, count), end
    except IndexError:
        error = ProtocolError(f"ends inside record {number} of {count}", position=available)
    except ProtocolError as problem:
        error = problem
    return (first, number, latest, earliest, keyless), error


def summarize_pieces(pieces: Iterator[Buffer], count: int, base_timestamp: int) -> tuple[Summary, int]:
    """Summarize records that arrive in pieces, holding only some pieces at a time. Return also their total size.

    Records larger than a piece are skipped field by field, so that not even one of them has to fit into memory.
    """
    stream = _Stream(pieces)
    latest, earliest, keyless = NO_TIMESTAMP, MAX_INT64, False
    number = 0
    while number < count:
        stream.pos, number, late, early, lacks_key = scan_part(stream.data, stream.pos, number, count, base_timestamp)
        latest, earliest, keyless = max(latest, late), min(earliest, early), keyless or lacks_key
        if number == count:
            break
        # The next record is larger than the buffered data, or malformed.
        if len(stream.data) - stream.pos < PIECE_BYTES and stream.fetch():
            continue
        timestamp, lacks_key = _skip_record(stream, number, base_timestamp)
        latest, keyless = max(latest, timestamp), keyless or lacks_key
        if timestamp != NO_TIMESTAMP:
            earliest = min(earliest, timestamp)
        number += 1
    if stream.pos < len(stream.data) or stream.fetch():
        raise ProtocolError(f"bytes after the last of {count} records", position=stream.position)
    return Summary(latest, earliest, keyless), stream.position


class _Stream:
    """Bytes that arrive in pieces: the buffered ones, and the position in them."""

    __slots__ = ("_before", "_pieces", "data", "pos")

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._before = 0
        self.data: Buffer = b""
        self.pos = 0

    @property
    def position(self) -> int:
        """The position in the whole stream."""
        return self._before + self.pos

    def fetch(self) -> bool:
        """Append the next piece to the remaining bytes. Return False at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._before += self.pos
        rest = self.data[self.pos :]
        self.data, self.pos = bytes(rest) + piece if rest else piece, 0
        return True

    def skip(self, size: int) -> None:
        """Skip bytes, whether they are buffered or not."""
        self.pos += size
        while self.pos > len(self.data):
            ahead, self.pos = self.pos - len(self.data), len(self.data)
            if not self.fetch():
                raise ProtocolError(f"{ahead} bytes are missing", position=self.position)
            self.pos += ahead

    def take(self, size: int) -> Iterator[Buffer]:
        """Yield bytes piece by piece, and move past them."""
        while size:
            if self.pos == len(self.data) and not self.fetch():
                raise ProtocolError(f"{size} bytes are missing", position=self.position)
            part = self.data[self.pos : self.pos + size]
            self.pos += len(part)
            size -= len(part)
            yield part

    def read_number(self, *, is_long: bool = False) -> int:
        """Read the next number."""
        while len(self.data) - self.pos < _MAX_NUMBER_BYTES and self.fetch():
            pass
        number, self.pos = (read_varlong if is_long else read_varint)(self.data, self.pos)
        return number


def shift_timestamps(pieces: Iterator[Buffer], count: int, shift: int) -> Iterator[Buffer]:
    """Rewrite records for a batch whose base timestamp is later by `shift`, and yield them in smaller pieces."""
    stream = _Stream(pieces)
    for _ in range(count):
        size = stream.read_number()
        end = stream.position + size
        stream.skip(1)
        time = write_varlong(stream.read_number(is_long=True) - shift)
        rest = end - stream.position
        yield write_varint(rest + len(time) + 1) + b"\x00" + time
        yield from stream.take(rest)


def _skip_record(stream: _Stream, number: int, base_timestamp: int) -> tuple[int, bool]:
    """Skip the next record. Return its timestamp and whether it lacks a key. Raise ProtocolError if it is malformed."""
    size = stream.read_number()
    start = stream.position
    if size < 1:
        raise ProtocolError(f"record {number} of {size} bytes", position=start)
    stream.skip(1)
    timestamp = base_timestamp + stream.read_number(is_long=True)
    delta = stream.read_number()
    if delta != number or not _MIN_INT64 <= timestamp <= MAX_INT64:
        raise ProtocolError(f"record {number} has offset delta {delta} and timestamp {timestamp}", position=start)

    def skip_field(name: str, least: int) -> int:
        length = stream.read_number()
        if not least <= length <= start + size - stream.position:
            raise ProtocolError(f"record {number} with a {name} of {length} bytes", position=start)
        stream.skip(max(length, 0))
        return length

    key_size = skip_field("key", -1)
    skip_field("value", -1)
    headers = stream.read_number()
    # A header takes at least two lengths.
    if not 0 <= headers * 2 <= start + size - stream.position:
        raise ProtocolError(f"record {number} with {headers} headers", position=start)
    while headers:
        end = min(stream.pos + start + size - stream.position, len(stream.data))
        stream.pos, headers = skip_pairs(stream.data, stream.pos, end, headers)
        if headers:
            skip_field("header's key", 0)
            skip_field("header's value", -1)
            headers -= 1
    if stream.position != start + size:
        raise ProtocolError(
            f"record {number} of {size} bytes, of which its fields take {stream.position - start}", position=start
        )
    return timestamp, key_size < 0


def _skip_headers(data: bytes, pos: int, end: int) -> None:
    count, pos = read_varint(data, pos)
    # A header takes at least two lengths.
    if not 0 <= count * 2 <= end - pos:
        raise ProtocolError(f"{count} headers in {end - pos} bytes", position=pos)
    for _ in range(count):
        size, start = read_varint(data, pos)
        if not 0 <= size <= end - start:
            raise ProtocolError(f"header key of {size} bytes", position=pos)
        pos = start + size
        size, start = read_varint(data, pos)
        if not -1 <= size <= end - start:
            raise ProtocolError(f"header value of {size} bytes", position=pos)
        pos = start + max(size, 0)
    if pos != end:
        raise ProtocolError(f"{end - pos} bytes after the fields of a record", position=pos)
