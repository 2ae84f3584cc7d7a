"""The sink `fiery`: that of `format("ottla")`, with traps in its tasks and its commits."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.connector import exactly_once
from ottla.spark.connector.cluster import BlockingCluster
from ottla.spark.connector.data_source import OttlaDataSource
from ottla.spark.connector.spark_writers import OttlaStreamWriter, TaskResult
from ottla.spark.connector.transactions import Transaction, TransactionCalls
from tests.spark.connector.fire.traps import trigger

_real_commit = exactly_once._commit


def _commit(
    cluster: BlockingCluster, calls: TransactionCalls, transactions: Sequence[Transaction], **options: Any
) -> None:
    trigger("decided")
    _real_commit(cluster, calls, transactions[:1], **options)
    trigger("half committed")
    _real_commit(cluster, calls, transactions, **options)


class FieryDataSource(OttlaDataSource):
    @classmethod
    def name(cls) -> str:
        return "fiery"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "FieryWriter":
        return FieryWriter(self._write_options(schema))


class FieryWriter(OttlaStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        trigger("task begins")
        written = super().write(iterator)
        trigger("task has written")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        exactly_once._commit = _commit
        trigger("commit begins")
        super().commit(messages, batchId)
        trigger("committed")
