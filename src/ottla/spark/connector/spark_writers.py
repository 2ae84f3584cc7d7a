"""The writers that Spark calls: a thin coat over `writing` and `exactly_once`."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from ottla.spark.connector.exactly_once import Job, abort, commit_batch, commit_once, prepare
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.spark_readers import COLUMNS
from ottla.spark.connector.task_memory import settle
from ottla.spark.connector.transactions import Transaction
from ottla.spark.connector.write_options import WriteOptions
from ottla.spark.connector.writing import write_at_least_once

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"
"""A streaming query runs its jobs in a group that is named after its run."""

_TEXT_OR_BYTES: Final = (StringType(), BinaryType())
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": (COLUMNS["headers"],),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


class Written(WriterCommitMessage):
    """What became of a task's rows."""

    def __init__(self, count: int, job: Job | None = None, transaction: Transaction | None = None) -> None:
        self.count = count
        self.job = job
        self.transaction = transaction


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise OptionError unless rows of this schema can be written; columns that mean nothing here are left out."""
    given = {field.name: field.dataType for field in schema.fields}
    for name, allowed in _TYPES.items():
        if name in given and not any(_is_like(given[name], each) for each in allowed):
            wanted = " or ".join(each.simpleString() for each in allowed)
            raise OptionError("schema", f"column {name!r} must be {wanted}, not {given[name].simpleString()}")
    if "value" not in given:
        raise OptionError("schema", f"there is no column 'value'; there are {', '.join(given)}")
    if "topic" not in given and options.topic is None:
        raise OptionError("topic", "is missing, and there is no column 'topic'")


def _is_like(given: DataType, allowed: DataType) -> bool:
    # Whether something may be null is of no matter here: what must not be is checked row by row.
    return given.simpleString() == allowed.simpleString()


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> list[Transaction]:
    return [each.transaction for each in messages if isinstance(each, Written) and each.transaction is not None]


def _job(messages: Sequence[WriterCommitMessage | None]) -> Job | None:
    jobs = [each.job for each in messages if isinstance(each, Written) and each.job is not None]
    return jobs[0] if jobs else None


class OttlaWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job = Job(options.id_prefix, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        settle()
        if not self._options.exactly_once:
            return Written(write_at_least_once(self._options, iterator))
        context = _context()
        found = prepare(self._options, self._job, context.partitionId(), context.attemptNumber(), iterator)
        return Written(found[0], self._job, found[1])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            commit_once(self._options, self._job, _transactions(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            abort(self._options, self._job, _transactions(messages))


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Its tasks know their query, its run and batch; the driver learns them from the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        settle()
        if not self._options.exactly_once:
            return Written(write_at_least_once(self._options, iterator))
        context = _context()
        names = {name: context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)}
        for name, value in names.items():
            if value is None:
                raise RuntimeError(f"the task has no property {name}: guarantee=at-least-once does without")
        query = f"{self._options.id_prefix}-{names[_QUERY_ID]}"
        job = Job(query, str(names[_RUN_ID]), int(names[_BATCH_ID] or 0))
        found = prepare(self._options, job, context.partitionId(), context.attemptNumber(), iterator)
        return Written(found[0], job, found[1])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if (job := _job(messages)) is not None:
            commit_batch(self._options, job, _transactions(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.exactly_once:
            abort(self._options, _job(messages), _transactions(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context
