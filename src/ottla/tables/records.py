"""Records into rows: columns of where they come from, columns of what they hold, and those that can be no row."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.tables.json_rows import read_values
from ottla.tables.partitioning import whole
from ottla.tables.record_columns import (
    DEAD_LETTERS,
    DELETED,
    KEY,
    KEY_TYPES,
    OFFSET,
    PARTITION,
    RESCUED,
    TIME,
    TIMESTAMP,
    value_fields,
)

SOURCE_COLUMNS = ("key", "value", "partition", "offset", "timestamp")
"""The columns that are read of a topic."""


class Taken(NamedTuple):
    """What became of a batch of records."""

    rows: pa.Table | None
    """None if the table's columns do not hold all of it."""
    dead: pa.Table
    wanted: pa.Schema
    """The columns that the table should have."""


class RecordReader:
    """Reads records for a table of these columns."""

    def __init__(self, topic: str, schema: pa.Schema, fixed: frozenset[str], key: str, *, needs_key: bool) -> None:
        self._topic = topic
        self._schema = schema
        self._fixed = fixed
        self._key = key
        self._needs_key = needs_key

    def read(self, batch: pa.RecordBatch) -> Taken:
        """The rows of a batch, and its dead letters."""
        errors: dict[int, str] = {}
        keys = self._keys(batch.column("key"), errors)
        values = batch.column("value")
        present = pc.is_valid(values)
        numbers = np.flatnonzero(present.to_numpy(zero_copy_only=False))
        found = read_values(values.filter(present), self._schema, self._fixed)
        for row, error in found.errors.items():
            errors.setdefault(int(numbers[row]), error)
        dead = self._dead_letters(batch, errors)
        if found.rows is None:
            return Taken(None, dead, found.wanted)
        at = np.full(batch.num_rows, -1, dtype=np.int64)
        at[numbers] = np.arange(len(numbers))
        places = pa.array(at, mask=at < 0)
        rows = found.rows.take(places)
        columns: dict[str, pa.Array] = {
            KEY: keys,
            PARTITION: batch.column("partition").cast(pa.int32()),
            OFFSET: batch.column("offset").cast(pa.int64()),
            TIMESTAMP: batch.column("timestamp").cast(TIME),
            DELETED: pc.invert(present),
            RESCUED: found.rescued.take(places),
        }
        for number, field in enumerate(value_fields(self._schema)):
            columns[field.name] = pc.struct_field(rows, [number])
        table = pa.table([columns[field.name] for field in self._schema], schema=self._schema)
        if errors:
            keep = np.ones(batch.num_rows, dtype=bool)
            keep[list(errors)] = False
            table = table.filter(pa.array(keep))
        return Taken(table, dead, found.wanted)

    def _keys(self, keys: pa.Array, errors: dict[int, str]) -> pa.Array:
        if self._needs_key and keys.null_count:
            for missing in np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False)):
                errors[int(missing)] = "the record has no key, and the table keeps one row for each key"
        kind = KEY_TYPES[self._key]
        try:
            return keys.cast(kind)
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for row, key in enumerate(keys.to_pylist()):
                try:
                    texts.append(key and key.decode())
                except UnicodeDecodeError as error:
                    errors[row] = f"the key is not UTF-8 at byte {error.start}, and the table's keys are text"
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


def last_of_each_key(table: pa.Table) -> pa.Table:
    """One row a key: the last of its partition; of several partitions, the one of the latest time."""
    keys = whole(table.column(KEY))
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


def since(table: pa.Table, offsets: Mapping[int, int], partition: str, offset: str) -> pa.Table:
    """The rows at or behind these offsets: those before are in the table already."""
    starts = pa.array([offsets.get(number, 0) for number in table.column(partition).to_pylist()], pa.int64())
    return table.filter(pc.greater_equal(table.column(offset), starts))
