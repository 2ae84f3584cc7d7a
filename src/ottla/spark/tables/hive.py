"""What Delta and Parquet tables have in common: folders named for their partitions' values, as Hive does it.

Columns that the layout is made of are not in the files: their values are in the folders' names and in the log. A
transform's column (`_timestamp_day`) is the readers' alone; here it is taken away again.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.spark.tables.files import metadata_of
from ottla.spark.tables.partitioning import Partition
from ottla.spark.tables.record_columns import KEY
from ottla.spark.tables.store import FileReader, Layout, NewFile, StoredFile, conformed_table


def extra_fields(schema: pa.Schema, partitions: Sequence[Partition]) -> list[pa.Field]:
    """The columns that transforms add for readers."""
    return [
        pa.field(each.name, each.column_type(schema.field(each.column).type))
        for each in partitions
        if each.transform != "identity"
    ]


def hive_layout(folder: str, schema: pa.Schema, partitions: tuple[Partition, ...]) -> Layout:
    left_out = frozenset(each.column for each in partitions if each.transform == "identity")
    return Layout(folder, schema, partitions, left_out)


class HiveFiles(FileReader):
    """Reads by the columns' names, with what the folder's name says."""

    def __init__(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None:
        self._schema = schema
        self._partitions = partitions

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        with pq.ParquetFile(file.path) as parquet:
            there = [name for name in schema.names if name in parquet.schema_arrow.names]
            table = parquet.read(columns=there)
        for each, value in zip(self._partitions, file.partition, strict=True):
            if each.transform == "identity" and each.column in schema.names:
                kind = schema.field(each.column).type
                table = table.append_column(each.column, pa.repeat(pa.scalar(value, kind), file.rows))
        return conformed_table(table, schema)


def key_bounds(file: NewFile) -> tuple[Any, Any]:
    """The least and the greatest key, as the file's footer has them; None twice if it does not say."""
    metadata = metadata_of(file)
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
