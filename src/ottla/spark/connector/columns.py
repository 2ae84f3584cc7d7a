"""Record batches into Arrow columns: those of Spark's Kafka connector, or as many of them as are asked for.

No object is made for a record: a compiled walk (`_columns.c`) copies keys, values and headers into the columns' own
buffers. Where it was not built, or where it finds something wrong, Python goes through the records one by one, with the
same result, and says what is wrong.

What a column holds follows Spark's connector: a record without headers has null for them, a record without a timestamp
one millisecond before 1970, and bytes in a header's name that are not UTF-8 are replaced.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.protocol.wire.batch import LOG_APPEND_TIME_BIT, BatchHeader
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import Record, decode_records

try:
    from ottla.spark.connector._columns import fill as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

Fill = Callable[..., "tuple[int, int] | None"]
compiled: Fill | None = _compiled
"""The compiled form, where it was built."""

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
"""Every column that there is, in the order of Spark's connector."""

_LEAST_RECORD_BYTES: Final = 7
_MAX_TIMESTAMP_MS: Final = 0x7FFF_FFFF_FFFF_FFFF // 1000


class Piece(NamedTuple):
    """A batch with its records decompressed."""

    header: BatchHeader
    payload: bytes | memoryview


class Columns:
    """What is wanted of one partition's records."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self.schema = schema
        self._topic = topic
        self._partition = partition
        self._names = frozenset(schema.names)

    def decode(self, pieces: Sequence[Piece], first: int, stop: int) -> pa.RecordBatch:
        """The records from offset `first` up to before `stop`; raises ProtocolError if they are not in order."""
        if compiled is not None:
            found = _fill(compiled, pieces, first, stop, self._names)
            if found is not None:
                return self._assemble(*found)
        return self._assemble(*_collect(pieces, first, stop, self._names))

    def _assemble(self, arrays: dict[str, pa.Array], counts: Sequence[int], kinds: Sequence[int]) -> pa.RecordBatch:
        """All columns: those that were decoded, and those that are the same for every record of a batch."""
        rows = sum(counts)
        if "topic" in self._names:
            arrays["topic"] = pa.repeat(pa.scalar(self._topic), rows)
        if "partition" in self._names:
            arrays["partition"] = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
        if "timestampType" in self._names:
            arrays["timestampType"] = pa.array(np.repeat(np.array(kinds, np.int32), counts), pa.int32())
        # A batch without columns would have lost how many rows it has.
        columns = [arrays[name].cast(self.schema.field(name).type) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_Decoded = tuple[dict[str, pa.Array], list[int], list[int]]


def _fill(fill: Fill, pieces: Sequence[Piece], first: int, stop: int, names: frozenset[str]) -> _Decoded | None:
    size = sum(len(piece.payload) for piece in pieces)
    # A header may claim any number of records; there cannot be more than the bytes allow.
    rows = min(sum(piece.header.record_count for piece in pieces), size // _LEAST_RECORD_BYTES)
    if size > 0x7FFF_FFFF:
        return None
    target = _Buffers(names, rows, size)
    row = header = 0
    counts, kinds = [], []
    for each, payload in pieces:
        append_time = each.max_timestamp if each.attributes & LOG_APPEND_TIME_BIT else None
        found = fill(
            payload,
            each.record_count,
            each.base_offset,
            each.last_offset_delta,
            each.base_timestamp,
            append_time,
            first,
            stop,
            target.buffers,
            row,
            header,
        )
        if found is None:
            return None
        counts.append(found[0] - row)
        kinds.append(int(append_time is not None))
        row, header = found
    return target.arrays(row, header), counts, kinds


class _Buffers:
    """Buffers for so many rows, and for as many bytes as the records have in all."""

    def __init__(self, names: frozenset[str], rows: int, size: int) -> None:
        self._names = names
        self._numbers: dict[str, pa.Buffer] = {
            name: pa.allocate_buffer(8 * rows) for name in ("offset", "timestamp") if name in names
        }
        self._bytes: dict[str, _Binary] = {name: _binary(rows, size) for name in ("key", "value") if name in names}
        self._lists = self._contents = None
        self.buffers: tuple[pa.Buffer | bytearray | None, ...] = (
            self._numbers.get("offset"),
            self._numbers.get("timestamp"),
            *self._bytes.get("key", (None, None, None)),
            *self._bytes.get("value", (None, None, None)),
        )
        if "headers" in names:
            # The least that a header takes is two lengths.
            many = size // 2
            self._lists = _ends(rows), bytearray(rows // 8 + 1)
            self._header_names = _ends(many), pa.allocate_buffer(size)
            self._contents = _binary(many, size)
            self.buffers += (*self._lists, *self._header_names, *self._contents)
        else:
            self.buffers += (None,) * 7

    def arrays(self, rows: int, headers: int) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for name, numbers in self._numbers.items():
            found[name] = pa.Array.from_buffers(TYPES[name], rows, [None, numbers])
        for name, parts in self._bytes.items():
            found[name] = _binary_array(parts, rows)
        if self._lists is not None and self._contents is not None:
            ends, content = self._header_names
            names = pa.Array.from_buffers(pa.binary(), headers, [None, ends, content])
            contents = _binary_array(self._contents, headers)
            pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(_HEADER))
            list_ends, list_valid = self._lists
            found["headers"] = pa.Array.from_buffers(
                TYPES["headers"], rows, [pa.py_buffer(list_valid), list_ends], children=[pairs]
            )
        return found


_Binary = tuple[pa.Buffer, bytearray, pa.Buffer]


def _binary(rows: int, size: int) -> _Binary:
    return _ends(rows), bytearray(rows // 8 + 1), pa.allocate_buffer(size)


def _ends(rows: int) -> pa.Buffer:
    ends = pa.allocate_buffer(4 * (rows + 1))
    memoryview(ends).cast("B")[:4] = b"\x00\x00\x00\x00"
    return ends


def _binary_array(parts: _Binary, rows: int) -> pa.Array:
    ends, valid, content = parts
    used = int.from_bytes(memoryview(ends).cast("B")[4 * rows : 4 * rows + 4], sys.byteorder)
    return pa.Array.from_buffers(pa.binary(), rows, [pa.py_buffer(valid), ends, content.slice(0, used)])


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in names.to_pylist()], pa.string())


def _collect(pieces: Iterable[Piece], first: int, stop: int, names: frozenset[str]) -> _Decoded:
    """The same, one record after the other."""
    found: list[Record] = []
    counts, kinds = [], []
    for header, payload in pieces:
        wanted = [record for record in decode_records(header, bytes(payload)) if first <= record.offset < stop]
        counts.append(len(wanted))
        kinds.append(header.timestamp_type)
        found += wanted
    values: dict[str, list[Any]] = {
        "key": [record.key for record in found],
        "value": [record.value for record in found],
        "offset": [record.offset for record in found],
    }
    if "timestamp" in names:
        values["timestamp"] = [_microseconds(record) for record in found]
    if "headers" in names:
        values["headers"] = [_headers(record) for record in found]
    arrays = {name: pa.array(values[name], TYPES[name]) for name in values if name in names}
    return arrays, counts, [int(kind) for kind in kinds]


def _microseconds(record: Record) -> int:
    if abs(record.timestamp) > _MAX_TIMESTAMP_MS:
        raise ProtocolError(
            f"the record at offset {record.offset} has timestamp {record.timestamp} ms, which Spark cannot hold"
        )
    return record.timestamp * 1000


def _headers(record: Record) -> list[dict[str, Any]] | None:
    if not record.headers:
        return None
    return [
        {"key": name.encode("utf-8", "surrogateescape").decode(errors="replace"), "value": value}
        for name, value in record.headers
    ]
