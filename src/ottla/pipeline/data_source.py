"""The data source `ottla`, as Spark sees it.

    spark.read.format("ottla").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

Options and columns are those of Spark's own Kafka connector. A schema that names some of the columns reads only those:
`spark.read.format("ottla").schema("value binary, offset long")`.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructField, StructType

from ottla.pipeline.option_values import OptionError, parse_boolean
from ottla.pipeline.read_options import check_names, parse_read_options
from ottla.pipeline.sink import OttlaStreamWriter, OttlaWriter, check_columns
from ottla.pipeline.source import COLUMNS, OttlaReader, OttlaStreamReader, arrow_schema
from ottla.pipeline.write_options import WriteOptions, parse_write_options


class OttlaDataSource(DataSource):
    """`format("ottla")`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        check_names(self._given)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        has_headers = parse_boolean("includeHeaders", self._given.get("includeheaders", "false"))
        names = [name for name in COLUMNS if name != "headers" or has_headers]
        return StructType([StructField(name, COLUMNS[name]) for name in names])

    def reader(self, schema: StructType) -> OttlaReader:
        return OttlaReader(parse_read_options(self._given, streaming=False), arrow_schema(schema))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:  # noqa: N802
        return OttlaStreamReader(parse_read_options(self._given, streaming=True), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> OttlaWriter:
        if overwrite:
            raise OptionError("mode", "a topic cannot be overwritten; use append")
        return OttlaWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> OttlaStreamWriter:  # noqa: N802
        # In complete mode Spark would have the sink emptied before each batch: to a topic the whole result is added
        # anew, as Spark's own connector does.
        return OttlaStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = parse_write_options(self._given)
        check_columns(schema, options)
        return options

    @property
    def _given(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self.options.items()}
