"""The layout that Delta and Parquet tables share: folders named after partition values, as in Hive.

Files do not have the partition columns; their values are in the folders' names and in the log. The column of a
transform (`_timestamp_day`) exists only for readers, so this code removes it when it reads.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.spark.tables.files import read_footer
from ottla.spark.tables.partitioning import Partition
from ottla.spark.tables.record_columns import KEY
from ottla.spark.tables.store import FileReader, Layout, NewFile, StoredFile, conform_table


def extra_fields(schema: pa.Schema, partitions: Sequence[Partition]) -> list[pa.Field]:
    """Return the columns that transforms add for readers."""
    return [
        pa.field(partition.name, partition.column_type(schema.field(partition.column).type))
        for partition in partitions
        if partition.transform != "identity"
    ]


def hive_layout(folder: str, schema: pa.Schema, partitions: tuple[Partition, ...]) -> Layout:
    left_out = frozenset(partition.column for partition in partitions if partition.transform == "identity")
    return Layout(folder, schema, partitions, left_out)


class HiveFileReader(FileReader):
    """Reads files by column name, and adds the partition columns from the folder's values."""

    def __init__(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None:
        self._schema = schema
        self._partitions = partitions

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        with pq.ParquetFile(file.path) as parquet:
            stored = [name for name in schema.names if name in parquet.schema_arrow.names]
            table = parquet.read(columns=stored)
        for partition, value in zip(self._partitions, file.partition, strict=True):
            if partition.transform == "identity" and partition.column in schema.names:
                kind = schema.field(partition.column).type
                table = table.append_column(partition.column, pa.repeat(pa.scalar(value, kind), file.rows))
        return conform_table(table, schema)


def key_bounds(file: NewFile) -> tuple[Any, Any]:
    """Return the smallest and the largest key by the file's footer, or None for both if it has no statistics."""
    metadata = read_footer(file)
    least, greatest = [], []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.path_in_schema == KEY:
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max:
                    return None, None
                least.append(statistics.min)
                greatest.append(statistics.max)
    return (min(least), max(greatest)) if least else (None, None)
