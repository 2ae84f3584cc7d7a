"""The readers that Spark calls, as thin adapters of `micro_batch_reader`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.connector.micro_batch_reader import StreamPlanner, plan_batch, read_range
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.planning import bundle_ranges
from ottla.spark.connector.positions import from_json, to_json
from ottla.spark.connector.range_reader import Range
from ottla.spark.connector.read_options import ReadOptions
from ottla.spark.connector.task_memory import freeze_modules
from ottla.spark.connector.value_options import ValueOptions

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


_BAD: Final = StructType([StructField("error", StringType()), StructField("value", BinaryType())])


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, wanted: tuple[Range, ...]) -> None:
        super().__init__(wanted)


def columns_of(values: ValueOptions | None, value_type: DataType | None) -> dict[str, DataType]:
    """Return the types of all columns. NullType for `value` means that the query's schema may give it any type."""
    if values is None:
        return dict(COLUMNS)
    columns = {**COLUMNS, "value": value_type or NullType()}
    return {**columns, "bad": _BAD} if values.has_column else columns


def arrow_schema(schema: StructType, columns: Mapping[str, DataType] = COLUMNS) -> pa.Schema:
    """Return a query's schema as an Arrow schema; raise OptionError for a column that the source does not have."""
    for field in schema.fields:
        if field.name not in columns:
            raise OptionError("schema", f"there is no column {field.name!r}; the columns are {', '.join(columns)}")
        wanted, given = columns[field.name], field.dataType
        if not isinstance(wanted, NullType) and given.simpleString() != wanted.simpleString():
            raise OptionError("schema", f"column {field.name!r} is {wanted.simpleString()}, not {given.simpleString()}")
    if not schema.fields:
        raise OptionError("schema", f"names no column; the columns are {', '.join(columns)}")
    return to_arrow_schema(schema, timezone="UTC")


class OttlaReader(DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, value_schema: str | None = None) -> None:
        self._options = options
        self._schema = schema
        self._value_schema = value_schema

    def partitions(self) -> Sequence[InputPartition]:
        # For an empty list Spark would run a task whose partition is None.
        return _partitions(self._options, plan_batch(self._options)) or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value, self._schema, self._value_schema)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. On the driver it lives as long as the query, in a task for one read."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, value_schema: str | None = None) -> None:
        self._options = options
        self._schema = schema
        self._value_schema = value_schema
        self._open_planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_planner": None}

    @property
    def _planner(self) -> StreamPlanner:
        if self._open_planner is None:
            self._open_planner = StreamPlanner(self._options)
        return self._open_planner

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return to_json(self._planner.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        waits = isinstance(limit, ReadMaxRows | ReadMinRows)
        return to_json(self._planner.next_end(from_json(start), most, waits=waits))

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return to_json(self._planner.latest())

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        return _partitions(self._options, self._planner.plan(from_json(start), from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value, self._schema, self._value_schema)


def _partitions(options: ReadOptions, ranges: Sequence[Range]) -> list[RangesPartition]:
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return [RangesPartition((part,)) for part in ranges]  # the options say how to split, so nothing is bundled
    return [RangesPartition(bundle) for bundle in bundle_ranges(ranges)]


def _read(
    options: ReadOptions, ranges: Sequence[Range], schema: pa.Schema, value_schema: str | None
) -> Iterator[pa.RecordBatch]:
    freeze_modules()
    return chain.from_iterable(read_range(options, part, schema, value_schema) for part in ranges)
