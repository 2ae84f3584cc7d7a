"""The records of a batch, looked at one by one, in a few numbers: what a leader must know before it stores them.

A producer's batch holds as many records as its header says, numbered from nought without gaps, each as long as it
claims, and nothing behind the last. Whatever is wrong leaves as ProtocolError, as from `records`.

This runs for every record that is produced. In Python that is about 1 µs each, which is as much as all the rest of a
produce of small records. So there is a compiled form of it (`_scan.c`, built when the package is installed where there
is a C compiler), which confirms that records are in order and leaves everything else to the Python below. Without it
all is the same, but slower.
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
    """What is said of all records together."""

    latest: int
    """The latest timestamp; -1 if none is later, as for records that have none."""
    earliest: int
    """The earliest timestamp of those that have any; the largest number if none has."""
    keyless: bool
    """Whether any record has no key."""


Scan = Callable[[Buffer, int, int, int], "tuple[int, int, bool] | None"]
compiled_scan: Scan | None = _compiled
"""The compiled form, where it was built."""

ScanPart = Callable[[Buffer, int, int, int, int], tuple[int, int, int, int, bool]]
SkipPairs = Callable[[Buffer, int, int, int], tuple[int, int]]

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
    if compiled_scan is not None:
        found = compiled_scan(data, start, count, base_timestamp)
        if found is not None:
            return found
    return summarize_in_python(data, start, count, base_timestamp)


def summarize_in_python(buf: Buffer, start: int, count: int, base_timestamp: int) -> Summary:
    """The same, without compiled code; and what says which record is wrong."""
    data = bytes(buf)  # is read from twice as fast as a view
    (end, _, latest, earliest, keyless), error = _walk(data, start, 0, count, base_timestamp)
    if error is not None:
        raise error
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the last of {count} records", position=end)
    return Summary(latest, earliest, keyless)


def scan_part_in_python(
    buf: Buffer, start: int, first: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, bool]:
    """Of the records from the number `first` on that are whole and in order: where they end, and the number of the
    next one; then what a Summary has."""
    return _walk(bytes(buf), start, first, count, base_timestamp)[0]


scan_part: ScanPart = _compiled_part if compiled_scan is not None else scan_part_in_python


def _skip_no_pairs(data: Buffer, start: int, stop: int, count: int) -> tuple[int, int]:
    """Without compiled code, headers are stepped over one by one."""
    return start, count


skip_pairs: SkipPairs = _compiled_pairs if compiled_scan is not None else _skip_no_pairs
"""Where as many headers end as are whole and in order, up to a position and a number; and how many are left."""


def _walk(
    data: bytes, start: int, next_number: int, count: int, base_timestamp: int
) -> tuple[tuple[int, int, int, int, bool], ProtocolError | None]:
    """Step over records until the last one, or the first that is wrong or ends behind the data; with what is wrong."""
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
            # Every step went forward, so that this also tells of a key beyond the end; a count of headers must follow.
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
    """Summarize records that come in pieces, of which only some are held at a time; with the size of all together.

    Records that are larger than a piece are stepped over field by field, so that not even one of them must fit.
    """
    stream = _Stream(pieces)
    latest, earliest, keyless = NO_TIMESTAMP, MAX_INT64, False
    number = 0
    while number < count:
        stream.pos, number, late, early, lacks_key = scan_part(stream.data, stream.pos, number, count, base_timestamp)
        latest, earliest, keyless = max(latest, late), min(earliest, early), keyless or lacks_key
        if number == count:
            break
        # The next record is larger than what is at hand, or wrong.
        if len(stream.data) - stream.pos < PIECE_BYTES and stream.fetch():
            continue
        timestamp, lacks_key = _step_over(stream, number, base_timestamp)
        latest, keyless = max(latest, timestamp), keyless or lacks_key
        if timestamp != NO_TIMESTAMP:
            earliest = min(earliest, timestamp)
        number += 1
    if stream.pos < len(stream.data) or stream.fetch():
        raise ProtocolError(f"bytes after the last of {count} records", position=stream.position)
    return Summary(latest, earliest, keyless), stream.position


class _Stream:
    """Bytes that come in pieces: what of them is at hand, and where one is in it."""

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
        """Append the next piece to the bytes that are left; return False at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._before += self.pos
        rest = self.data[self.pos :]
        self.data, self.pos = bytes(rest) + piece if rest else piece, 0
        return True

    def skip(self, size: int) -> None:
        """Step over bytes, which need not be at hand."""
        self.pos += size
        while self.pos > len(self.data):
            ahead, self.pos = self.pos - len(self.data), len(self.data)
            if not self.fetch():
                raise ProtocolError(f"{ahead} bytes are missing", position=self.position)
            self.pos += ahead

    def take(self, size: int) -> Iterator[Buffer]:
        """Give out bytes, piece by piece, and step over them."""
        while size:
            if self.pos == len(self.data) and not self.fetch():
                raise ProtocolError(f"{size} bytes are missing", position=self.position)
            part = self.data[self.pos : self.pos + size]
            self.pos += len(part)
            size -= len(part)
            yield part

    def read_number(self, *, is_long: bool = False) -> int:
        """The number that is next."""
        while len(self.data) - self.pos < _MAX_NUMBER_BYTES and self.fetch():
            pass
        number, self.pos = (read_varlong if is_long else read_varint)(self.data, self.pos)
        return number


def shift_timestamps(pieces: Iterator[Buffer], count: int, shift: int) -> Iterator[Buffer]:
    """The same records in smaller pieces, for a batch whose base timestamp is later by `shift`."""
    stream = _Stream(pieces)
    for _ in range(count):
        size = stream.read_number()
        end = stream.position + size
        stream.skip(1)
        time = write_varlong(stream.read_number(is_long=True) - shift)
        rest = end - stream.position
        yield write_varint(rest + len(time) + 1) + b"\x00" + time
        yield from stream.take(rest)


def _step_over(stream: _Stream, number: int, base_timestamp: int) -> tuple[int, bool]:
    """The timestamp of the next record, and whether it has no key; ProtocolError if it is not in order."""
    size = stream.read_number()
    start = stream.position
    if size < 1:
        raise ProtocolError(f"record {number} of {size} bytes", position=start)
    stream.skip(1)
    timestamp = base_timestamp + stream.read_number(is_long=True)
    delta = stream.read_number()
    if delta != number or not _MIN_INT64 <= timestamp <= MAX_INT64:
        raise ProtocolError(f"record {number} has offset delta {delta} and timestamp {timestamp}", position=start)

    def step_over_field(name: str, least: int) -> int:
        length = stream.read_number()
        if not least <= length <= start + size - stream.position:
            raise ProtocolError(f"record {number} with a {name} of {length} bytes", position=start)
        stream.skip(max(length, 0))
        return length

    key_size = step_over_field("key", -1)
    step_over_field("value", -1)
    headers = stream.read_number()
    # The least that a header takes is two lengths.
    if not 0 <= headers * 2 <= start + size - stream.position:
        raise ProtocolError(f"record {number} with {headers} headers", position=start)
    while headers:
        end = min(stream.pos + start + size - stream.position, len(stream.data))
        stream.pos, headers = skip_pairs(stream.data, stream.pos, end, headers)
        if headers:
            step_over_field("header's key", 0)
            step_over_field("header's value", -1)
            headers -= 1
    if stream.position != start + size:
        raise ProtocolError(
            f"record {number} of {size} bytes, of which its fields take {stream.position - start}", position=start
        )
    return timestamp, key_size < 0


def _skip_headers(data: bytes, pos: int, end: int) -> None:
    count, pos = read_varint(data, pos)
    # The least that a header takes is two lengths.
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
