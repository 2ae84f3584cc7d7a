"""Partitioning of tables by transforms of columns: `day(_timestamp)`, `bucket(16, _key)`, `country`.

Iceberg stores the transform and hides it from readers. Delta and Parquet have only plain columns, so each transform
except the identity gets a column, such as `_timestamp_day`, and each of its values a folder.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.tables.failures import TableError
from ottla.spark.tables.record_columns import TIMESTAMP

TIMES: Final = ("year", "month", "day", "hour")
_SHAPE: Final = re.compile(r"(?:(\w+)\(\s*(?:(\d+)\s*,\s*)?(\w+)\s*\))|(\w+)")
_HINT: Final = "identity(column), year, month, day or hour(column), bucket(count, column), truncate(width, column)"
_EPOCH: Final = date(1970, 1, 1)
_MICROSECONDS: Final = {"hour": 3_600_000_000, "day": 86_400_000_000}


class Partition(NamedTuple):
    """A transform of a column."""

    transform: str
    column: str
    argument: int | None = None

    @property
    def name(self) -> str:
        """The name of the partition's field, and of its column if it has one."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({'' if self.argument is None else f'{self.argument}, '}{self.column})"

    def values(self, array: pa.Array) -> pa.Array:
        """Return the transform's value for each row, as in Iceberg: days, hours, months and years since 1970."""
        if self.transform == "identity":
            return array
        if self.transform in TIMES:
            return _since_1970(array, self.transform)
        apply = self._function(array.type)
        encoded = array.dictionary_encode()
        distinct = encoded.dictionary
        if pa.types.is_timestamp(distinct.type):
            distinct = distinct.cast(pa.int64())
        elif pa.types.is_date(distinct.type):
            distinct = distinct.cast(pa.int32())
        result = array.type if self.transform == "truncate" else pa.int32()
        return pa.array([apply(value) for value in distinct.to_pylist()], result).take(encoded.indices)

    def _function(self, source: pa.DataType) -> Callable[[Any], Any]:
        """Return Iceberg's function for the transform. The slow import is here because read-only commands skip it."""
        from pyiceberg import types
        from pyiceberg.transforms import BucketTransform, TruncateTransform

        assert self.argument is not None, "the parser requires it"
        kind: types.PrimitiveType = types.LongType()
        if pa.types.is_timestamp(source):
            kind = types.TimestamptzType()
        elif pa.types.is_date(source):
            kind = types.DateType()
        elif pa.types.is_string(source):
            kind = types.StringType()
        elif pa.types.is_binary(source):
            kind = types.BinaryType()
        if self.transform == "bucket":
            return BucketTransform(self.argument).transform(kind)
        return TruncateTransform(self.argument).transform(kind)

    def column_type(self, source: pa.DataType) -> pa.DataType:
        """Return the type of the partition's column in formats without transforms."""
        match self.transform:
            case "identity" | "truncate":
                return source
            case "day":
                return pa.date32()
            case "month" | "hour":
                return pa.string()
            case _:
                return pa.int32()

    def to_column_value(self, value: Any) -> Any:
        """Convert a transform's value to the value of the partition's column."""
        if value is None:
            return None
        match self.transform:
            case "year":
                return 1970 + value
            case "month":
                return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
            case "day":
                return value if isinstance(value, date) else _EPOCH + timedelta(days=value)
            case "hour":
                return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=value)).strftime("%Y-%m-%d-%H")
            case _:
                return value


def parse_partitions(texts: Sequence[str], types: dict[str, pa.DataType]) -> tuple[Partition, ...]:
    """Parse partitions of columns with these types; raise TableError for the first one that is wrong."""
    partitions: list[Partition] = []
    for text in texts:
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise TableError(f"partition {text!r} is not valid; use {_HINT}")
        transform, argument, column, bare = match.groups()
        partition = Partition(transform or "identity", column or bare, int(argument) if argument else None)
        if partition.column == "timestamp" and "timestamp" not in types:
            partition = partition._replace(column=TIMESTAMP)
        _check(partition, text, types)
        if partition.name in (earlier.name for earlier in partitions):
            raise TableError(f"partition {text!r} is given twice; remove one")
        partitions.append(partition)
    return tuple(partitions)


def _check(partition: Partition, text: str, types: dict[str, pa.DataType]) -> None:
    kind = types.get(partition.column)
    if kind is None:
        raise TableError(
            f"partition {text!r}: there is no column {partition.column!r} before records are read; declare it by "
            f"--column {partition.column}=TYPE, or use one of {', '.join(types)}"
        )
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    match partition.transform:
        case "identity":
            fits = not pa.types.is_floating(kind)
        case "year" | "month" | "day" | "hour":
            fits = is_time and not (partition.transform == "hour" and pa.types.is_date(kind))
        case "bucket":
            fits = not (pa.types.is_floating(kind) or pa.types.is_boolean(kind))
        case "truncate":
            fits = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        case _:
            raise TableError(f"partition {text!r}: there is no transform {partition.transform!r}; use {_HINT}")
    if not fits:
        raise TableError(
            f"partition {text!r}: {partition.transform} does not accept a column of type {kind}; use another transform "
            "or column"
        )
    if (partition.argument is None) == (partition.transform in ("bucket", "truncate")) or partition.argument == 0:
        raise TableError(f"partition {text!r} is not valid; use {_HINT}")


def group_by_partition(partitions: Sequence[Partition], table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the values and the rows of each partition."""
    if not partitions:
        if table.num_rows:
            yield (), table
        return
    columns = {f"p{n}": part.values(combine_chunks(table.column(part.column))) for n, part in enumerate(partitions)}
    keys = pa.table({**columns, "row": pa.array(range(table.num_rows), pa.int64())})
    for values in keys.group_by(list(columns), use_threads=False).aggregate([("row", "list")]).to_pylist():
        yield tuple(values[name] for name in columns), table.take(pa.array(values["row_list"], pa.int64()))


def partition_folder(partitions: Sequence[Partition], values: Sequence[Any]) -> str:
    """Return the folder of a partition, named as in Hive: `country=SE/_timestamp_day=2026-11-15`."""
    pairs = zip(partitions, values, strict=True)
    return "/".join(f"{partition.name}={_format_value(partition.to_column_value(value))}" for partition, value in pairs)


def _format_value(value: Any) -> str:
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    if isinstance(value, bytes):
        return quote(value, safe="")
    if isinstance(value, datetime):
        return quote(value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"), safe=" :-.")
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe=" -.")


def combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _since_1970(array: pa.Array, unit: str) -> pa.Array:
    if unit in ("year", "month"):
        years = pc.subtract(pc.year(array), 1970)
        if unit == "year":
            return years.cast(pa.int32())
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(array), 1)).cast(pa.int32())
    if pa.types.is_date(array.type):
        return array.cast(pa.int32())
    number = array.cast(pa.int64())
    size = _MICROSECONDS[unit]
    # Integer division rounds towards zero, but hours and days before 1970 must round down.
    down = pc.divide(pc.subtract(number, pc.if_else(pc.less(number, 0), size - 1, 0)), size)
    return down.cast(pa.int32())
