"""The readers that Spark calls: a thin coat over `reading`."""

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

from ottla.spark.connector.fetching import Range
from ottla.spark.connector.micro_batch_reader import Stream, plan_batch, read_range
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.planning import bundle
from ottla.spark.connector.positions import from_json, to_json
from ottla.spark.connector.read_options import ReadOptions
from ottla.spark.connector.task_memory import settle
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
    """What one task reads."""

    def __init__(self, wanted: tuple[Range, ...]) -> None:
        super().__init__(wanted)


def columns_of(values: ValueOptions | None, value_type: DataType | None) -> dict[str, DataType]:
    """All columns that there are, with values that are decoded or bytes; without a type, any is right for them."""
    if values is None:
        return dict(COLUMNS)
    found = {**COLUMNS, "value": value_type or NullType()}
    return {**found, "bad": _BAD} if values.has_column else found


def arrow_schema(schema: StructType, known: Mapping[str, DataType] = COLUMNS) -> pa.Schema:
    """The columns that are read; raises OptionError for one that there is not."""
    for field in schema.fields:
        if field.name not in known:
            raise OptionError("schema", f"there is no column {field.name!r}; there are {', '.join(known)}")
        wanted, given = known[field.name], field.dataType
        if not isinstance(wanted, NullType) and given.simpleString() != wanted.simpleString():
            raise OptionError("schema", f"column {field.name!r} is {wanted.simpleString()}, not {given.simpleString()}")
    if not schema.fields:
        raise OptionError("schema", "names no column")
    return to_arrow_schema(schema, timezone="UTC")


class OttlaReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, value_schema: str | None = None) -> None:
        self._options = options
        self._schema = schema
        self._value_schema = value_schema

    def partitions(self) -> Sequence[InputPartition]:
        # Spark makes a task without a range where there are none.
        return _partitions(self._options, plan_batch(self._options)) or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value, self._schema, self._value_schema)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query: on the driver it lives as long as the query, in a task for one read."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, value_schema: str | None = None) -> None:
        self._options = options
        self._schema = schema
        self._value_schema = value_schema
        self._opened: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _stream(self) -> Stream:
        if self._opened is None:
            self._opened = Stream(self._options)
        return self._opened

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return to_json(self._stream.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        waits = isinstance(limit, ReadMaxRows | ReadMinRows)
        return to_json(self._stream.next_end(from_json(start), most, waits=waits))

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return to_json(self._stream.latest())

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        return _partitions(self._options, self._stream.plan(from_json(start), from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value, self._schema, self._value_schema)


def _partitions(options: ReadOptions, ranges: Sequence[Range]) -> list[RangesPartition]:
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return [RangesPartition((each,)) for each in ranges]  # the query says how it is to be divided
    return [RangesPartition(each) for each in bundle(ranges)]


def _read(
    options: ReadOptions, ranges: Sequence[Range], schema: pa.Schema, value_schema: str | None
) -> Iterator[pa.RecordBatch]:
    settle()
    return chain.from_iterable(read_range(options, each, schema, value_schema) for each in ranges)
