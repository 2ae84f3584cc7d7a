"""Decodes record batches into Arrow columns: the columns of Spark's Kafka connector, or a subset of them.

The compiled decoder (`_columns.c`) copies keys, values and headers directly into the columns' buffers, without a Python
object per record. If it was not built, or if it finds a malformed record, Python decodes the records one by one with
the same result, and raises the error.

Columns follow Spark's connector: headers are null for a record without headers, the timestamp is one millisecond before
1970 for a record without a timestamp, and invalid UTF-8 in a header's name is replaced.
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
"""All columns, in the order of Spark's connector."""

_LEAST_RECORD_BYTES: Final = 7
_MAX_TIMESTAMP_MS: Final = 0x7FFF_FFFF_FFFF_FFFF // 1000


class DecompressedBatch(NamedTuple):
    """A batch header and its decompressed records."""

    header: BatchHeader
    payload: bytes | memoryview


class ColumnDecoder:
    """Decodes the wanted columns of one partition's records."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self.schema = schema
        self._topic = topic
        self._partition = partition
        self._names = frozenset(schema.names)

    def decode(self, pieces: Sequence[DecompressedBatch], first: int, stop: int) -> pa.RecordBatch:
        """Return the records from offset `first` to before `stop`; raise ProtocolError if they are malformed."""
        if compiled is not None:
            decoded_columns = _decode_compiled(compiled, pieces, first, stop, self._names)
            if decoded_columns is not None:
                return self._assemble(*decoded_columns)
        return self._assemble(*_decode_plain(pieces, first, stop, self._names))

    def _assemble(self, arrays: dict[str, pa.Array], counts: Sequence[int], kinds: Sequence[int]) -> pa.RecordBatch:
        """Return the decoded columns together with those that are constant within a batch."""
        rows = sum(counts)
        if "topic" in self._names:
            arrays["topic"] = pa.repeat(pa.scalar(self._topic), rows)
        if "partition" in self._names:
            arrays["partition"] = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
        if "timestampType" in self._names:
            arrays["timestampType"] = pa.array(np.repeat(np.array(kinds, np.int32), counts), pa.int32())
        # There is at least one column: a record batch without columns would lose its row count.
        columns = [arrays[name].cast(self.schema.field(name).type) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_Decoded = tuple[dict[str, pa.Array], list[int], list[int]]


def _decode_compiled(
    fill: Fill, pieces: Sequence[DecompressedBatch], first: int, stop: int, names: frozenset[str]
) -> _Decoded | None:
    size = sum(len(piece.payload) for piece in pieces)
    # A header may claim any number of records, so the size of the payload limits the allocation.
    rows = min(sum(piece.header.record_count for piece in pieces), size // _LEAST_RECORD_BYTES)
    if size > 0x7FFF_FFFF:
        return None
    target = _Buffers(names, rows, size)
    row = header = 0
    counts, kinds = [], []
    for batch_header, payload in pieces:
        append_time = batch_header.max_timestamp if batch_header.attributes & LOG_APPEND_TIME_BIT else None
        ends = fill(
            payload,
            batch_header.record_count,
            batch_header.base_offset,
            batch_header.last_offset_delta,
            batch_header.base_timestamp,
            append_time,
            first,
            stop,
            target.buffers,
            row,
            header,
        )
        if ends is None:
            return None
        counts.append(ends[0] - row)
        kinds.append(int(append_time is not None))
        row, header = ends
    return target.arrays(row, header), counts, kinds


class _Buffers:
    """The buffers of the columns, for a number of rows whose records have `size` bytes in total."""

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
            # The smallest header has two lengths of one byte.
            max_headers = size // 2
            self._lists = _ends(rows), bytearray(rows // 8 + 1)
            self._header_names = _ends(max_headers), pa.allocate_buffer(size)
            self._contents = _binary(max_headers, size)
            self.buffers += (*self._lists, *self._header_names, *self._contents)
        else:
            self.buffers += (None,) * 7

    def arrays(self, rows: int, headers: int) -> dict[str, pa.Array]:
        arrays: dict[str, pa.Array] = {}
        for name, numbers in self._numbers.items():
            arrays[name] = pa.Array.from_buffers(TYPES[name], rows, [None, numbers])
        for name, parts in self._bytes.items():
            arrays[name] = _binary_array(parts, rows)
        if self._lists is not None and self._contents is not None:
            ends, content = self._header_names
            names = pa.Array.from_buffers(pa.binary(), headers, [None, ends, content])
            contents = _binary_array(self._contents, headers)
            pairs = pa.StructArray.from_arrays([_text(names), contents], fields=list(_HEADER))
            list_ends, list_valid = self._lists
            arrays["headers"] = pa.Array.from_buffers(
                TYPES["headers"], rows, [pa.py_buffer(list_valid), list_ends], children=[pairs]
            )
        return arrays


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
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def _decode_plain(pieces: Iterable[DecompressedBatch], first: int, stop: int, names: frozenset[str]) -> _Decoded:
    """Decode the records one by one, with the same result as the compiled decoder."""
    records: list[Record] = []
    counts, kinds = [], []
    for header, payload in pieces:
        wanted = [record for record in decode_records(header, bytes(payload)) if first <= record.offset < stop]
        counts.append(len(wanted))
        kinds.append(header.timestamp_type)
        records += wanted
    values: dict[str, list[Any]] = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "offset": [record.offset for record in records],
    }
    if "timestamp" in names:
        values["timestamp"] = [_microseconds(record) for record in records]
    if "headers" in names:
        values["headers"] = [_headers(record) for record in records]
    arrays = {name: pa.array(values[name], TYPES[name]) for name in values if name in names}
    return arrays, counts, [int(kind) for kind in kinds]


def _microseconds(record: Record) -> int:
    if abs(record.timestamp) > _MAX_TIMESTAMP_MS:
        raise ProtocolError(
            f"the record at offset {record.offset} has timestamp {record.timestamp} ms, which is out of Spark's range"
        )
    return record.timestamp * 1000


def _headers(record: Record) -> list[dict[str, Any]] | None:
    if not record.headers:
        return None
    return [
        {"key": name.encode("utf-8", "surrogateescape").decode(errors="replace"), "value": value}
        for name, value in record.headers
    ]
