"""Turns records into rows, and records that cannot become rows into dead letters."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.connector.columns import TYPES
from ottla.spark.tables.json_rows import read_values
from ottla.spark.tables.partitioning import combine_chunks
from ottla.spark.tables.record_columns import (
    DEAD_LETTERS,
    DELETED,
    KEY,
    KEY_TYPES,
    OFFSET,
    PARTITION,
    RESCUED,
    TIME,
    TIMESTAMP,
    VALUE,
    value_fields,
)

SOURCE_COLUMNS = ("key", "value", "partition", "offset", "timestamp")
SOURCE_SCHEMA = pa.schema([(name, TYPES[name]) for name in SOURCE_COLUMNS])
"""The columns that are read from a topic."""


class ReadResult(NamedTuple):
    """The rows and the dead letters of a batch of records."""

    rows: pa.Table | None
    """None if the table lacks columns for the records."""
    dead: pa.Table
    wanted: pa.Schema
    """The schema that the table needs for the records."""


class RecordReader:
    """Reads records as rows of a table's columns."""

    def __init__(
        self, topic: str, schema: pa.Schema, fixed: frozenset[str], key: str, values: str, *, needs_key: bool
    ) -> None:
        self._topic = topic
        self._schema = schema
        self._fixed = fixed
        self._key = key
        self._takes_bytes = values == "bytes"
        self._needs_key = needs_key

    def read(self, batch: pa.RecordBatch) -> ReadResult:
        """Return the rows and the dead letters of a batch."""
        errors: dict[int, str] = {}
        values = batch.column("value")
        present = pc.is_valid(values)
        columns: dict[str, pa.Array] = {
            KEY: self._keys(batch.column("key"), errors),
            PARTITION: batch.column("partition").cast(pa.int32()),
            OFFSET: batch.column("offset").cast(pa.int64()),
            TIMESTAMP: batch.column("timestamp").cast(TIME),
            DELETED: pc.invert(present),
        }
        wanted = self._schema
        if self._takes_bytes:
            columns |= {VALUE: values, RESCUED: pa.nulls(batch.num_rows, pa.string())}
        else:
            held, wanted = self._read_objects(values, present, errors)
            if held is None:
                return ReadResult(None, self._dead_letters(batch, errors), wanted)
            columns |= held
        table = pa.table([columns[field.name] for field in self._schema], schema=self._schema)
        if errors:
            keep = np.ones(batch.num_rows, dtype=bool)
            keep[list(errors)] = False
            table = table.filter(pa.array(keep))
        return ReadResult(table, self._dead_letters(batch, errors), wanted)

    def _read_objects(
        self, values: pa.Array, present: pa.Array, errors: dict[int, str]
    ) -> tuple[dict[str, pa.Array] | None, pa.Schema]:
        """Return the columns of the values, or None if the table lacks columns, and the schema that it needs."""
        present_rows = np.flatnonzero(present.to_numpy(zero_copy_only=False))
        has_no_nulls = len(present_rows) == len(values)
        parsed = read_values(values if has_no_nulls else values.filter(present), self._schema, self._fixed)
        for row, error in parsed.errors.items():
            errors.setdefault(int(present_rows[row]), error)
        if parsed.rows is None:
            return None, parsed.wanted
        rows, rescued = parsed.rows, parsed.rescued
        if not has_no_nulls:
            places = np.full(len(values), -1, dtype=np.int64)
            places[present_rows] = np.arange(len(present_rows))
            indices = pa.array(places, mask=places < 0)
            rows, rescued = rows.take(indices), rescued.take(indices)
        members = {
            field.name: pc.struct_field(rows, [number]) for number, field in enumerate(value_fields(self._schema))
        }
        return {**members, RESCUED: rescued}, parsed.wanted

    def _keys(self, keys: pa.Array, errors: dict[int, str]) -> pa.Array:
        if self._needs_key and keys.null_count:
            for missing in np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False)):
                errors[int(missing)] = "the record has no key, which upsert mode requires"
        kind = KEY_TYPES[self._key]
        try:
            return keys.cast(kind)
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for row, key in enumerate(keys.to_pylist()):
                try:
                    texts.append(key and key.decode())
                except UnicodeDecodeError as error:
                    errors[row] = f"the key is not UTF-8 at byte {error.start}, and the table has keys of type string"
                    texts.append(None)
            return pa.array(texts, kind)

    def _dead_letters(self, batch: pa.RecordBatch, errors: Mapping[int, str]) -> pa.Table:
        numbers = sorted(errors)
        chosen = batch.take(pa.array(numbers, pa.int64()))
        columns = {
            "topic": pa.array([self._topic] * len(numbers), pa.string()),
            "error": pa.array([errors[number] for number in numbers], pa.string()),
            **{name: chosen.column(name) for name in SOURCE_COLUMNS},
        }
        return pa.table([columns[field.name].cast(field.type) for field in DEAD_LETTERS], schema=DEAD_LETTERS)


def select_last_by_key(table: pa.Table) -> pa.Table:
    """Return the last row of each key: by offset within a partition, by timestamp among partitions."""
    keys = combine_chunks(table.column(KEY))
    if not len(keys):
        return table
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    partitions = table.column(PARTITION).to_numpy()
    offsets = table.column(OFFSET).to_numpy()
    times = table.column(TIMESTAMP).cast(pa.int64()).to_numpy()
    order = np.lexsort((offsets, partitions, codes))
    ends = np.append(np.diff(codes[order]) != 0, True) | np.append(np.diff(partitions[order]) != 0, True)
    chosen = order[ends]
    order = chosen[np.lexsort((partitions[chosen], times[chosen], codes[chosen]))]
    chosen = order[np.append(np.diff(codes[order]) != 0, True)]
    return table.take(pa.array(np.sort(chosen)))


def select_new(table: pa.Table, offsets: Mapping[int, int], partition: str, offset: str) -> pa.Table:
    """Return the rows from these offsets on: the table already has the earlier ones."""
    encoded = combine_chunks(table.column(partition)).dictionary_encode()
    starts = pa.array([offsets.get(number, 0) for number in encoded.dictionary.to_pylist()], pa.int64())
    is_new = pc.greater_equal(table.column(offset), starts.take(encoded.indices))
    return table if pc.all(is_new, min_count=0).as_py() else table.filter(is_new)
