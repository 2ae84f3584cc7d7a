"""Writes rows to Parquet files in the folders of their partitions. A file is invisible until a commit names it."""

import io
import uuid
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io

from ottla.spark.tables.partitioning import group_by_partition, partition_folder
from ottla.spark.tables.store import Layout, NewFile, conform

TARGET_BYTES: Final = 128 << 20
_ROW_GROUP_BYTES: Final = 32 << 20
_BUFFERED_BYTES: Final = 256 << 20
"""The limit of buffered rows, for all partitions together."""


def open_file_io(layout: Layout) -> FileIO:
    """Return the file system of a layout's folder."""
    return load_file_io(dict(layout.settings), layout.folder)


class FilesWriter:
    """Writes the files of one task."""

    def __init__(self, layout: Layout, prefix: str, target_bytes: int = TARGET_BYTES) -> None:
        self._layout = layout
        self._prefix = prefix
        self._target_bytes = target_bytes
        self._io = open_file_io(layout)
        self._stored = pa.schema([field for field in layout.schema if field.name not in layout.left_out])
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._done: list[NewFile] = []

    def write(self, table: pa.Table) -> None:
        """Write rows with the layout's columns."""
        for values, rows in group_by_partition(self._layout.partitions, table):
            target = self._open.get(values)
            if target is None:
                target = self._open[values] = _OpenFile(self._io, self._path(values), self._stored)
            target.add(rows)
            if target.size_bytes >= self._target_bytes:
                self._finish(values)
        while sum(file.buffered_bytes for file in self._open.values()) > _BUFFERED_BYTES:
            self._finish(max(self._open, key=lambda values: self._open[values].buffered_bytes))

    def finish(self) -> list[NewFile]:
        """Close all files and return them."""
        for values in list(self._open):
            self._finish(values)
        return self._done

    def abandon(self) -> None:
        """Close and delete all files."""
        for open_file in self._open.values():
            open_file.abandon()
        delete_files(self._io, (file.path for file in self._done))
        self._open, self._done = {}, []

    def _finish(self, values: tuple[Any, ...]) -> None:
        self._done.append(self._open.pop(values).close(values))

    def _path(self, values: tuple[Any, ...]) -> str:
        folder = partition_folder(self._layout.partitions, values)
        parts = [self._layout.folder, folder, f"{self._prefix}-{uuid.uuid4()}.parquet"]
        return "/".join(part for part in parts if part)


class _OpenFile:
    """A file that is being written, and the buffered rows of its next row group."""

    def __init__(self, file_io: FileIO, path: str, schema: pa.Schema) -> None:
        self._io = file_io
        self._path = path
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None
        self._rows: list[pa.Table] = []
        self._count = 0
        self.buffered_bytes = 0
        self._written_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._written_bytes

    def add(self, rows: pa.Table) -> None:
        columns = [conform(rows.column(field.name), field.type) for field in self._schema]
        self._rows.append(pa.table(columns, schema=self._schema))
        self.buffered_bytes += rows.nbytes
        self._count += rows.num_rows
        if self.buffered_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self, values: tuple[Any, ...]) -> NewFile:
        self._flush()
        assert self._writer is not None, "a file has rows"
        self._writer.close()
        self._stream.close()
        footer = io.BytesIO()
        metadata: pq.FileMetaData = self._writer.writer.metadata
        metadata.write_metadata_file(footer)
        size = len(self._io.new_input(self._path))
        return NewFile(self._path, size, self._count, values, footer.getvalue())

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._stream.close()
            delete_files(self._io, [self._path])

    def _flush(self) -> None:
        if self._writer is None:
            self._stream = self._io.new_output(self._path).create(overwrite=False)
            self._writer = pq.ParquetWriter(self._stream, self._schema, compression="zstd")
        if self._rows:
            self._writer.write_table(pa.concat_tables(self._rows))
            self._written_bytes = self._stream.tell()
        self._rows, self.buffered_bytes = [], 0


def read_footer(file: NewFile) -> pq.FileMetaData:
    """Return the metadata in the file's footer."""
    return pq.read_metadata(io.BytesIO(file.footer))


def delete_files(file_io: FileIO, paths: Iterable[str]) -> int:
    """Delete those of the files that exist, and return how many did."""
    count = 0
    for path in paths:
        try:
            file_io.delete(path)
            count += 1
        except FileNotFoundError:
            continue
    return count
