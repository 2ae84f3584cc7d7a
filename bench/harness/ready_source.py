"""A Spark source that has its records ready, to measure the overhead of Spark with any source in Python.

It returns the same batch of Arrow columns again and again, with the columns of a topic's records and without a network.
"""

import datetime
import random
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

BATCH_BYTES = 2 << 20
"""The maximum size of a batch of Ottla's source, which has at most `BATCH_ROWS` rows."""
BATCH_ROWS = 10_000
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


class ReadySource(DataSource):
    """`spark.read.format("ready")` with the options `records`, `bytes` (of a value) and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> "ReadyReader":
        return ReadyReader(*(int(self.options[name]) for name in ("records", "bytes", "partitions")))


class ReadyReader(DataSourceReader):
    def __init__(self, records: int, value_bytes: int, partitions: int) -> None:
        self._partition_records = records // partitions
        self._value_bytes = value_bytes
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._batch(min(BATCH_ROWS, BATCH_BYTES // self._value_bytes), partition.value)
        left = self._partition_records
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    def _batch(self, rows: int, partition: int) -> pa.RecordBatch:
        now = datetime.datetime.now(datetime.UTC)
        return pa.record_batch(
            {
                "key": pa.array([b"%016d" % number for number in range(rows)]),
                "value": pa.array([random.randbytes(self._value_bytes)] * rows),
                "topic": pa.repeat(pa.scalar("ready"), rows),
                "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
                "offset": pa.array(range(rows), pa.int64()),
                "timestamp": pa.array([now] * rows, pa.timestamp("us", tz="UTC")),
                "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
            }
        )
