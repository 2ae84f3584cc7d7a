"""The data source `ottla`, as Spark sees it.

    spark.read.format("ottla").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

Options and columns are those of Spark's own Kafka connector. A schema that names some of the columns reads only those:
`spark.read.format("ottla").schema("value binary, offset long")`.

With `value.format` the source decodes values: the column `value` then has the schema's type, and the column `bad` holds
the error for a value that cannot be decoded.

Spark starts a process for each step of planning. Modules that only some steps need are imported in the functions that
use them, because importing them everywhere would slow down every query.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructField, StructType

from ottla.spark.connector.option_values import OptionError, parse_boolean
from ottla.spark.connector.read_options import ReadOptions, check_names, parse_read_options
from ottla.spark.connector.spark_readers import OttlaReader, OttlaStreamReader, arrow_schema, columns_of
from ottla.spark.connector.task_memory import freeze_modules
from ottla.spark.connector.value_options import ValueOptions, parse_value_options
from ottla.spark.connector.write_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    from ottla.spark.connector.spark_writers import OttlaStreamWriter, OttlaWriter
    from ottla.spark.connector.value_types import ValueType


class OttlaDataSource(DataSource):
    """`format("ottla")`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        freeze_modules()
        check_names(self._given)
        self._value_type: ValueType | None = None

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        has_headers = parse_boolean("includeHeaders", self._given.get("includeheaders", "false"))
        values = parse_value_options(self._given)
        if values is not None:
            self._value_type = _resolve(self._any_options(), values)
        columns = columns_of(values, self._value_type and self._value_type.column)
        names = [name for name in columns if name != "headers" or has_headers]
        return StructType([StructField(name, columns[name]) for name in names])

    def reader(self, schema: StructType) -> OttlaReader:
        options = parse_read_options(self._given, streaming=False)
        return OttlaReader(options, *self._read_schema(options, schema))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:  # noqa: N802
        options = parse_read_options(self._given, streaming=True)
        return OttlaStreamReader(options, *self._read_schema(options, schema))

    def _read_schema(self, options: ReadOptions, schema: StructType) -> tuple[pa.Schema, str | None]:
        """Return the columns to read as an Arrow schema, and the schema of values.

        For JSON, the query may give the type of `value` by its own schema; then there is nothing to resolve.
        """
        values = options.values
        is_json_by_query = values is not None and values.format == "json" and self._value_type is None
        if values is not None and self._value_type is None and not is_json_by_query:
            self._value_type = _resolve(options, values)
        columns = columns_of(values, self._value_type and self._value_type.column)
        return arrow_schema(schema, columns), self._value_type and self._value_type.schema

    def _any_options(self) -> ReadOptions:
        """Return the options without start and end: Spark asks for the schema before it says batch or streaming."""
        given = {name: value for name, value in self._given.items() if not name.startswith(("ending", "starting"))}
        return parse_read_options(given, streaming=True)

    def writer(self, schema: StructType, overwrite: bool) -> "OttlaWriter":
        from ottla.spark.connector.spark_writers import OttlaWriter

        if overwrite:
            raise OptionError("mode", 'a topic cannot be overwritten; use mode("append")')
        return OttlaWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "OttlaStreamWriter":  # noqa: N802
        from ottla.spark.connector.spark_writers import OttlaStreamWriter

        # In complete mode Spark asks the sink to empty itself before each batch. A topic cannot be emptied, so each
        # batch appends the whole result, as Spark's own connector does.
        return OttlaStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        from ottla.spark.connector.spark_writers import check_columns

        options = parse_write_options(self._given)
        check_columns(schema, options)
        return options

    @property
    def _given(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self.options.items()}


def _resolve(options: ReadOptions, values: ValueOptions) -> "ValueType":
    from ottla.spark.connector.value_types import resolve_value_type

    return resolve_value_type(options, values)
