"""What runs in tasks: records into new files, and stored files into others without some of their rows. No Spark here.

Where it does not matter which task gets which record, a task fetches its share itself: records go from their broker
into files, and pass through nobody else's hands.

A task that fails leaves nothing, one that is killed leaves files that no commit names. One that is tried again writes
files of other names.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.connector.micro_batch_reader import read_raw
from ottla.spark.connector.range_reader import Range
from ottla.spark.connector.read_options import ReadOptions
from ottla.spark.tables.files import FilesWriter
from ottla.spark.tables.partitioning import whole
from ottla.spark.tables.record_columns import DELETED, KEY, OFFSET, PARTITION, RESCUED
from ottla.spark.tables.records import SOURCE_SCHEMA, RecordReader, last_of_each_key, since
from ottla.spark.tables.store import FileReader, Layout, NewFile, StoredFile


class Report(NamedTuple):
    """What a task tells the driver of its share of a micro-batch."""

    wanted: pa.Schema
    files: list[NewFile]
    dead_files: list[NewFile]
    offsets: dict[int, int]
    """Behind what was read of each partition."""
    keys: pa.Array | None
    """In upsert mode: the keys that have a new row, or none any more."""
    rows: int = 0
    dead: int = 0
    rescued: int = 0


@dataclass(frozen=True)
class FetchTask:
    """Does its work with the records of ranges."""

    work: Callable[[Iterable[pa.RecordBatch]], Report]
    options: ReadOptions

    def __call__(self, ranges: Sequence[Range]) -> Report:
        """What the work reports. All of the ranges is read then, also where they end in what is no record."""
        done = self.work(chain.from_iterable(read_raw(self.options, each, SOURCE_SCHEMA) for each in ranges))
        return done._replace(offsets={each.partition: each.stop for each in ranges})


@dataclass(frozen=True)
class IngestTask:
    """Takes a share of a micro-batch into files."""

    topic: str
    schema: pa.Schema
    fixed: frozenset[str]
    key: str
    values: str
    mode: str
    layout: Layout
    dead_layout: Layout
    offsets: Mapping[int, int]
    dead_offsets: Mapping[int, int]
    """From where on records are new to the table, and to its dead letters."""
    prefix: str
    target_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Report:
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        dead_writer = FilesWriter(self.dead_layout, self.prefix, self.target_bytes)
        try:
            return self._take(batches, writer, dead_writer)
        except BaseException:
            writer.abandon()
            dead_writer.abandon()
            raise

    def _take(self, batches: Iterable[pa.RecordBatch], writer: FilesWriter, dead_writer: FilesWriter) -> Report:
        reader = self._reader(self.schema)
        wanted, held = self.schema, []
        offsets: dict[int, int] = {}
        rows = dead = rescued = 0
        for batch in batches:
            if self._is_upsert:
                _note(offsets, batch)  # else the ranges tell how far it is read
            taken = reader.read(batch)
            if taken.wanted != wanted:
                wanted = taken.wanted
                reader = self._reader(wanted)
            if taken.rows is None or wanted != self.schema:
                continue  # all of this will be read again, for other columns
            letters = since(taken.dead, self.dead_offsets, "partition", "offset")
            dead += letters.num_rows
            dead_writer.write(letters)
            new = since(taken.rows, self.offsets, PARTITION, OFFSET)
            rows += new.num_rows
            rescued += new.num_rows - new.column(RESCUED).null_count
            if self._is_upsert:
                held.append(new)
            else:
                writer.write(new)
        if wanted != self.schema:
            writer.abandon()
            dead_writer.abandon()
            return Report(wanted, [], [], {}, None)
        keys = None
        if held:
            last = last_of_each_key(pa.concat_tables(held))
            keys = whole(last.column(KEY))
            writer.write(last.filter(pc.invert(last.column(DELETED))))
        return Report(wanted, writer.finish(), dead_writer.finish(), offsets, keys, rows, dead, rescued)

    @property
    def _is_upsert(self) -> bool:
        return self.mode == "upsert"

    def _reader(self, schema: pa.Schema) -> RecordReader:
        return RecordReader(self.topic, schema, self.fixed, self.key, self.values, needs_key=self._is_upsert)


def _note(offsets: dict[int, int], batch: pa.RecordBatch) -> None:
    ends = pa.table({"p": batch.column("partition"), "o": batch.column("offset")})
    for found in ends.group_by("p", use_threads=False).aggregate([("o", "max")]).to_pylist():
        offsets[found["p"]] = max(offsets.get(found["p"], 0), found["o_max"] + 1)


class Rewritten(NamedTuple):
    """Stored files, and what takes their place."""

    removed: list[StoredFile]
    files: list[NewFile]


@dataclass(frozen=True)
class Rewrite:
    """Writes stored files anew: together, under other columns, without the rows of some keys."""

    reader: FileReader
    layout: Layout
    prefix: str
    target_bytes: int
    without: pa.Array | None = None

    def __call__(self, files: Sequence[StoredFile]) -> Rewritten | None:
        """None if there is nothing to change."""
        touched = [file for file in files if self._is_touched(file)]
        if not touched:
            return None
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        try:
            for file in touched:
                table = self.reader.read(file)
                if self.without is not None:
                    table = table.filter(pc.invert(pc.is_in(table.column(KEY), self.without)))
                writer.write(_completed(table, self.layout.schema))
            return Rewritten(touched, writer.finish())
        except BaseException:
            writer.abandon()
            raise

    def _is_touched(self, file: StoredFile) -> bool:
        if self.without is None:
            return True
        keys = self.reader.read(file, [KEY]).column(KEY)
        return bool(pc.any(pc.is_in(keys, self.without)).as_py())


@dataclass(frozen=True)
class KeepLast:
    """Keeps the last row of each key among all rows: one share of the keys at a time, each in memory once."""

    reader: FileReader
    layout: Layout
    prefix: str
    target_bytes: int
    files: Sequence[StoredFile]
    shares: int

    def __call__(self, share: int) -> Rewritten:
        held = []
        for file in self.files:
            table = self.reader.read(file)
            held.append(table.filter(pa.array(_share_of(table.column(KEY), self.shares) == share)))
        last = last_of_each_key(pa.concat_tables(held))
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        try:
            writer.write(last.filter(pc.invert(pc.fill_null(last.column(DELETED), False))))
            return Rewritten([], writer.finish())
        except BaseException:
            writer.abandon()
            raise


def _share_of(keys: pa.ChunkedArray, shares: int) -> Any:
    """Which share each row's key belongs to; none (-1) for rows without one."""
    coded = whole(keys).dictionary_encode()
    places = [
        zlib.crc32(key.encode() if isinstance(key, str) else key) % shares for key in coded.dictionary.to_pylist()
    ]
    numbers = coded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
    return np.array([*places, -1], dtype=np.int64)[numbers]


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with columns that it has not yet, all null: the layout's may be newer than the reader's."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table
