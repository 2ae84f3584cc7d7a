"""Encodes Spark's rows as records: the columns key, value and headers of an Arrow batch.

The compiled encoder (`_rows.c`) creates no Python object per row. If it was not built, Python does the same.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.client.partitioning import partition_for_key
from ottla.protocol.wire.varint import write_varint

try:
    from ottla.spark.connector import _rows as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

compiled: Any = _compiled
"""The compiled form, where it was built."""

Indices = npt.NDArray[np.int32]
_NONE: Final = (None, None, None)


class BadRow(ValueError):
    """A row cannot be encoded as a record."""


class Rows:
    """The rows of one Arrow batch."""

    def __init__(self, key: pa.Array | None, value: pa.Array | None, headers: pa.Array | None, count: int) -> None:
        self.count = count
        self._key = None if key is None else _whole(key.cast(pa.binary()))
        self._value = None if value is None else _whole(value.cast(pa.binary()))
        self._headers = None if headers is None else _whole(headers)
        self._parts: tuple[pa.Buffer | None, ...] = (
            *_parts_of(self._key),
            *_parts_of(self._value),
            *_header_parts(self._headers),
        )
        self._lists: tuple[list[Any], list[Any], list[Any]] | None = None

    def size_bytes(self) -> int:
        """Return the approximate size of the rows as records."""
        return sum(array.nbytes for array in (self._key, self._value, self._headers) if array is not None)

    def place(self, chosen: Indices, partitions: int) -> None:
        """Set the partition of each row that has a key and no partition yet (a negative number in `chosen`)."""
        if compiled is not None:
            compiled.place(self._parts, self.count, partitions, chosen)
            return
        keys = self._pythons()[0]
        for row in range(self.count):
            if chosen[row] < 0 and keys[row] is not None:
                chosen[row] = partition_for_key(keys[row], partitions)

    def encode(self, rows: Indices, start: int, out: bytearray, position: int, delta: int) -> tuple[int, int]:
        """Encode rows into `out` until it is full; return how many were encoded, and the position after them."""
        if compiled is not None:
            count_and_end: tuple[int, int] = compiled.encode(self._parts, rows, start, out, position, delta)
            return count_and_end
        done = start
        for row in rows[start:]:
            record = self._record(int(row), delta + done - start)
            if position + len(record) > len(out):
                break
            out[position : position + len(record)] = record
            position += len(record)
            done += 1
        return done - start, position

    def _record(self, row: int, delta: int) -> bytes:
        keys, values, headers = self._pythons()
        fields = [b"\x00\x00", write_varint(delta), *_sized(keys[row]), *_sized(values[row])]
        row_headers = headers[row] or ()
        fields.append(write_varint(len(row_headers)))
        for header in row_headers:
            fields += (*_sized(header["key"].encode()), *_sized(header["value"]))
        body = b"".join(fields)
        return write_varint(len(body)) + body

    def _pythons(self) -> tuple[list[Any], list[Any], list[Any]]:
        if self._lists is None:
            missing = [None] * self.count
            key, value, headers = (
                missing if array is None else array.to_pylist() for array in (self._key, self._value, self._headers)
            )
            self._lists = key, value, headers
        return self._lists


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if content is None else (write_varint(len(content)), content)


def _whole(array: pa.Array) -> pa.Array:
    """Return the values in buffers that begin with them: a slice shares the buffers of the whole array."""
    return array if array.offset == 0 else pa.concat_arrays([array])


def _parts_of(array: pa.Array | None) -> Sequence[pa.Buffer | None]:
    if array is None or len(array) == 0:
        return _NONE
    valid, ends, content = array.buffers()
    return ends, valid if array.null_count else None, content or pa.py_buffer(b"")


def _header_parts(array: pa.Array | None) -> Sequence[pa.Buffer | None]:
    if array is None or len(array) == 0:
        return (None,) * 7
    pairs = array.values
    if pairs.null_count or pairs.field("key").null_count:
        raise BadRow("column headers: a header or its key is null; remove such headers")
    valid, ends = array.buffers()[:2]
    names, contents = (_whole(pa.concat_arrays([array])) for array in pairs.flatten())
    names_ends, _, names_content = _parts_of(names.cast(pa.binary()))
    contents_ends, contents_valid, contents_content = _parts_of(contents.cast(pa.binary()))
    return (
        *(ends, valid if array.null_count else None),
        *(names_ends, names_content),
        *(contents_ends, contents_valid, contents_content),
    )
