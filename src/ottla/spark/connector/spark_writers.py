"""The writers that Spark calls, as thin adapters of `task_writer` and `exactly_once`."""

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
from ottla.spark.connector.task_memory import freeze_modules
from ottla.spark.connector.task_writer import write_at_least_once
from ottla.spark.connector.transactions import Transaction
from ottla.spark.connector.write_options import WriteOptions

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


class TaskResult(WriterCommitMessage):
    """The message of a task to the driver: how many rows it wrote, and in which transaction."""

    def __init__(self, count: int, job: Job | None = None, transaction: Transaction | None = None) -> None:
        self.count = count
        self.job = job
        self.transaction = transaction


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise OptionError if rows of this schema cannot be written. Unknown columns are ignored."""
    given = {field.name: field.dataType for field in schema.fields}
    for name, allowed in _TYPES.items():
        if name in given and not any(_is_same_type(given[name], wanted_type) for wanted_type in allowed):
            wanted = " or ".join(wanted_type.simpleString() for wanted_type in allowed)
            raise OptionError("schema", f"column {name!r} must be {wanted}, not {given[name].simpleString()}")
    if "value" not in given:
        raise OptionError("schema", f"there is no column 'value'; the columns are {', '.join(given)}")
    if "topic" not in given and options.topic is None:
        raise OptionError("topic", "is missing, and there is no column 'topic'; set the option or add the column")


def _is_same_type(given: DataType, allowed: DataType) -> bool:
    # Nullability is ignored: nulls are checked row by row.
    return given.simpleString() == allowed.simpleString()


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> list[Transaction]:
    results = [message for message in messages if isinstance(message, TaskResult)]
    return [result.transaction for result in results if result.transaction is not None]


def _job(messages: Sequence[WriterCommitMessage | None]) -> Job | None:
    results = [message for message in messages if isinstance(message, TaskResult)]
    return next((result.job for result in results if result.job is not None), None)


class OttlaWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job = Job(options.id_prefix, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        freeze_modules()
        if not self._options.exactly_once:
            return TaskResult(write_at_least_once(self._options, iterator))
        context = _context()
        task, attempt = context.partitionId(), context.attemptNumber()
        count, transaction = prepare(self._options, self._job, task, attempt, iterator)
        return TaskResult(count, self._job, transaction)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            commit_once(self._options, self._job, _transactions(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            abort(self._options, self._job, _transactions(messages))


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query. Only its tasks know the query, run and batch; they send them to the driver."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        freeze_modules()
        if not self._options.exactly_once:
            return TaskResult(write_at_least_once(self._options, iterator))
        context = _context()
        names = {name: context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)}
        for name, value in names.items():
            if value is None:
                raise RuntimeError(
                    f"exactly-once writes are not possible: Spark gave the task no property {name}. "
                    "Use guarantee=at-least-once"
                )
        query = f"{self._options.id_prefix}-{names[_QUERY_ID]}"
        job = Job(query, str(names[_RUN_ID]), int(names[_BATCH_ID] or 0))
        count, transaction = prepare(self._options, job, context.partitionId(), context.attemptNumber(), iterator)
        return TaskResult(count, job, transaction)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if (job := _job(messages)) is not None:
            commit_batch(self._options, job, _transactions(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.exactly_once:
            abort(self._options, _job(messages), _transactions(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls write in a task"
    return context
