"""The work of tasks, without Spark: write records to new files, and rewrite stored files.

If any task may process any record, a task fetches its share of the records itself: they go from the broker directly
into files, without passing through Spark.

A task that fails deletes its files; one that is killed leaves files that no commit names. A retried task uses new file
names.
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
from ottla.spark.tables.partitioning import combine_chunks
from ottla.spark.tables.record_columns import DELETED, KEY, OFFSET, PARTITION, RESCUED
from ottla.spark.tables.records import SOURCE_SCHEMA, RecordReader, select_last_by_key, select_new
from ottla.spark.tables.store import FileReader, Layout, NewFile, StoredFile


class TaskReport(NamedTuple):
    """A task's report to the driver about its share of a micro-batch."""

    wanted: pa.Schema
    files: list[NewFile]
    dead_files: list[NewFile]
    offsets: dict[int, int]
    """The next offset to read of each partition."""
    keys: pa.Array | None
    """In upsert mode: the keys that were changed or deleted."""
    rows: int = 0
    dead: int = 0
    rescued: int = 0


@dataclass(frozen=True)
class FetchTask:
    """Fetches the records of ranges and passes them to `work`."""

    work: Callable[[Iterable[pa.RecordBatch]], TaskReport]
    options: ReadOptions

    def __call__(self, ranges: Sequence[Range]) -> TaskReport:
        """Return the report of the work, with the ends of the ranges: they may end with control or aborted records."""
        report = self.work(chain.from_iterable(read_raw(self.options, part, SOURCE_SCHEMA) for part in ranges))
        return report._replace(offsets={part.partition: part.stop for part in ranges})


@dataclass(frozen=True)
class IngestTask:
    """Writes a share of a micro-batch to files."""

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
    """The offsets from which records are new to the table, and to its dead letters."""
    prefix: str
    target_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        dead_writer = FilesWriter(self.dead_layout, self.prefix, self.target_bytes)
        try:
            return self._take(batches, writer, dead_writer)
        except BaseException:
            writer.abandon()
            dead_writer.abandon()
            raise

    def _take(self, batches: Iterable[pa.RecordBatch], writer: FilesWriter, dead_writer: FilesWriter) -> TaskReport:
        reader = self._reader(self.schema)
        wanted, held = self.schema, []
        offsets: dict[int, int] = {}
        rows = dead = rescued = 0
        for batch in batches:
            if self._is_upsert:
                _advance_offsets(offsets, batch)  # in append mode, FetchTask sets them from its ranges
            result = reader.read(batch)
            if result.wanted != wanted:
                wanted = result.wanted
                reader = self._reader(wanted)
            if result.rows is None or wanted != self.schema:
                continue  # the batch will be read again with more columns; only collect them
            letters = select_new(result.dead, self.dead_offsets, "partition", "offset")
            dead += letters.num_rows
            dead_writer.write(letters)
            new = select_new(result.rows, self.offsets, PARTITION, OFFSET)
            rows += new.num_rows
            rescued += new.num_rows - new.column(RESCUED).null_count
            if self._is_upsert:
                held.append(new)
            else:
                writer.write(new)
        if wanted != self.schema:
            writer.abandon()
            dead_writer.abandon()
            return TaskReport(wanted, [], [], {}, None)
        keys = None
        if held:
            last = select_last_by_key(pa.concat_tables(held))
            keys = combine_chunks(last.column(KEY))
            writer.write(last.filter(pc.invert(last.column(DELETED))))
        return TaskReport(wanted, writer.finish(), dead_writer.finish(), offsets, keys, rows, dead, rescued)

    @property
    def _is_upsert(self) -> bool:
        return self.mode == "upsert"

    def _reader(self, schema: pa.Schema) -> RecordReader:
        return RecordReader(self.topic, schema, self.fixed, self.key, self.values, needs_key=self._is_upsert)


def _advance_offsets(offsets: dict[int, int], batch: pa.RecordBatch) -> None:
    columns = pa.table({"p": batch.column("partition"), "o": batch.column("offset")})
    for row in columns.group_by("p", use_threads=False).aggregate([("o", "max")]).to_pylist():
        offsets[row["p"]] = max(offsets.get(row["p"], 0), row["o_max"] + 1)


class RewriteResult(NamedTuple):
    """Stored files, and the files that replace them."""

    removed: list[StoredFile]
    files: list[NewFile]


@dataclass(frozen=True)
class RewriteTask:
    """Rewrites stored files: merges them, adds columns, or removes the rows of some keys."""

    reader: FileReader
    layout: Layout
    prefix: str
    target_bytes: int
    without: pa.Array | None = None

    def __call__(self, files: Sequence[StoredFile]) -> RewriteResult | None:
        """Rewrite files; return None if none has to change."""
        affected = [file for file in files if self._is_affected(file)]
        if not affected:
            return None
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        try:
            for file in affected:
                table = self.reader.read(file)
                if self.without is not None:
                    table = table.filter(pc.invert(pc.is_in(table.column(KEY), self.without)))
                writer.write(_add_missing_columns(table, self.layout.schema))
            return RewriteResult(affected, writer.finish())
        except BaseException:
            writer.abandon()
            raise

    def _is_affected(self, file: StoredFile) -> bool:
        if self.without is None:
            return True
        keys = self.reader.read(file, [KEY]).column(KEY)
        return bool(pc.any(pc.is_in(keys, self.without)).as_py())


@dataclass(frozen=True)
class KeepLastTask:
    """Keeps only the last row of each key. An item is a share of the keys, so that only that share is in memory."""

    reader: FileReader
    layout: Layout
    prefix: str
    target_bytes: int
    files: Sequence[StoredFile]
    shares: int

    def __call__(self, share: int) -> RewriteResult:
        held = []
        for file in self.files:
            table = self.reader.read(file)
            held.append(table.filter(pa.array(_share_of(table.column(KEY), self.shares) == share)))
        last = select_last_by_key(pa.concat_tables(held))
        writer = FilesWriter(self.layout, self.prefix, self.target_bytes)
        try:
            writer.write(last.filter(pc.invert(pc.fill_null(last.column(DELETED), False))))
            return RewriteResult([], writer.finish())
        except BaseException:
            writer.abandon()
            raise


def _share_of(keys: pa.ChunkedArray, shares: int) -> Any:
    """Return the share of each row's key, or -1 for rows without a key."""
    encoded = combine_chunks(keys).dictionary_encode()
    share_of_key = [
        zlib.crc32(key.encode() if isinstance(key, str) else key) % shares for key in encoded.dictionary.to_pylist()
    ]
    indices = encoded.indices.fill_null(len(share_of_key)).to_numpy(zero_copy_only=False)
    return np.array([*share_of_key, -1], dtype=np.int64)[indices]


def _add_missing_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Add missing columns as nulls: the layout's schema may be newer than the reader's."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table
