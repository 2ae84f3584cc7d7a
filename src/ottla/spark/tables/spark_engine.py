"""Spark for tables: its session, an engine that runs work in tasks, and the batches that it reads."""

import contextlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.connector.planning import bundle_ranges
from ottla.spark.connector.range_reader import Range
from ottla.spark.connector.read_options import parse_read_options
from ottla.spark.connector.spark_home import make_spark_home
from ottla.spark.connector.task_memory import freeze_modules
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.tasks import FetchTask, TaskReport

T = TypeVar("T")
R = TypeVar("R")
_PACKED: Final = "number long, result binary"
_SCHEMA: Final = "key binary, value binary, partition int, offset long, timestamp timestamp"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


def start_session(master: str, settings: Mapping[str, str], log: Path) -> SparkSession:
    """Start a session whose JVM and tasks write their output to a log file."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise TableError(
            "cannot start Spark: it needs Java 17 or newer, and none was found; install it or set JAVA_HOME"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log.parent.mkdir(parents=True, exist_ok=True)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_HOME", str(make_spark_home(log.parent / "spark")))
    builder = SparkSession.builder.master(master).appName("ottla tables")
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    try:
        with _redirect_output(log):
            return builder.getOrCreate()
    except Exception as error:
        raise TableError(f"cannot start Spark: {error}; see {log}") from error


@contextlib.contextmanager
def _redirect_output(log: Path) -> Iterator[None]:
    """Let processes that are started inside the context write to the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(number) for number in (1, 2)]
    try:
        with log.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, old in zip((1, 2), saved, strict=True):
            os.dup2(old, number)
            os.close(old)


class SparkEngine:
    """Runs each item in a task."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if not items:
            return []

        def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            freeze_modules()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _pack(number, work(items[number]))

        numbers = self._session.range(0, len(items), 1, len(items))
        return _results(numbers, in_task)


class SparkBatch:
    """The records of ranges of one topic."""

    def __init__(self, session: SparkSession, options: Mapping[str, str], ranges: Sequence[Range]) -> None:
        self._session = session
        self._options = options
        self._ranges = ranges

    def run(self, work: Callable[..., TaskReport], *, by_key: bool) -> list[TaskReport]:
        if by_key:
            return self._run_by_key(work)
        fetch = FetchTask(work, parse_read_options(self._options, streaming=True))
        return SparkEngine(self._session).map(fetch, bundle_ranges(self._ranges))

    def _run_by_key(self, work: Callable[..., TaskReport]) -> list[TaskReport]:
        """Run the work with all records of a key in one task, by a shuffle of Spark."""

        def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            freeze_modules()
            yield _pack(0, work(batches))

        topic = self._ranges[0].topic
        given = {name: value for name, value in self._options.items() if name not in ("subscribe", "kafka.group.id")}
        given["assign"] = json.dumps({topic: [part.partition for part in self._ranges]})
        given["startingOffsets"] = json.dumps({topic: {part.partition: part.start for part in self._ranges}})
        given["endingOffsets"] = json.dumps({topic: {part.partition: part.stop for part in self._ranges}})
        records = self._session.read.format("ottla").schema(_SCHEMA).options(**given).load()
        return _results(records.repartition("key"), in_task)


def _results(rows: DataFrame, in_task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[Any]:
    """Return the results of tasks in the order of their items."""
    packed = sorted(rows.mapInArrow(in_task, _PACKED).collect(), key=lambda row: int(row[0]))
    return [pickle.loads(row[1]) for row in packed]  # noqa: S301  # from our own tasks


def _pack(number: int, result: Any) -> pa.RecordBatch:
    return pa.record_batch({"number": [number], "result": [pickle.dumps(result)]})
