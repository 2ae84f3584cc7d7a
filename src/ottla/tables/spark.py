"""Tables kept by Spark: a streaming query reads the topic, its tasks write files, its driver commits them.

How far a table has come is in the table. So each run of a query begins there, with a checkpoint of its own that is
thrown away afterwards: there is nothing that a checkpoint could know better, or worse.
"""

import contextlib
import json
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.errors import ApiError
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.spark_home import make_spark_home
from ottla.tables.definition import Definition, Home
from ottla.tables.failures import Stumbled, TableError
from ottla.tables.keeper import Done, Keeper, source_options
from ottla.tables.maintenance import Upkeep, remove_orphans
from ottla.tables.tasks import Report

T = TypeVar("T")
R = TypeVar("R")
_RESULT: Final = "result binary"
_SCHEMA: Final = "key binary, value binary, partition int, offset long, timestamp timestamp"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_OUR_WORDS: Final = re.compile(r"ottla\.[\w.]*?(\w+): ([^\n]+)")
_LASTING: Final = ("DataLost", "OptionError", "TableError", "CorruptMessage")
"""Failures that no second attempt helps with."""
_PAUSES_S: Final = (1.0, 5.0, 15.0, 60.0)


def start_session(master: str, settings: Mapping[str, str], log: Path) -> SparkSession:
    """A session whose Java process, and its tasks, write what they have to say to a file."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise TableError("Spark needs Java 17 or newer: install it, or set JAVA_HOME to where it is")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log.parent.mkdir(parents=True, exist_ok=True)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_HOME", str(make_spark_home(log.parent / "spark")))
    builder = SparkSession.builder.master(master).appName("ottla tables")
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    try:
        with _talking_to(log):
            return builder.getOrCreate()
    except Exception as error:
        raise TableError(f"Spark does not start: {error}; see {log}") from error


@contextlib.contextmanager
def _talking_to(log: Path) -> Iterator[None]:
    """Processes that are started inside write to the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with log.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)


class SparkEngine:
    """A task for each item."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if not items:
            return []

        def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _packed(number, work(items[number]))

        numbers = self._session.range(0, len(items), 1, len(items))
        found = sorted(numbers.mapInArrow(in_task, f"number long, {_RESULT}").collect())
        return [pickle.loads(row[1]) for row in found]  # noqa: S301  # our own tasks' words


class SparkBatch:
    """A micro-batch."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def run(self, work: Callable[..., Report], *, by_key: bool) -> list[Report]:
        def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _packed(0, work(batches))

        rows = self._rows.repartition("key") if by_key else self._rows
        found = rows.mapInArrow(in_task, f"number long, {_RESULT}").collect()
        return [pickle.loads(row[1]) for row in found]  # noqa: S301  # our own tasks' words


def _packed(number: int, result: Any) -> pa.RecordBatch:
    return pa.record_batch({"number": [number], "result": [pickle.dumps(result)]})


class TableQuery:
    """The streaming query of one table. It ends when the topic is read, or goes on at an interval."""

    def __init__(
        self,
        session: SparkSession,
        home: Home,
        definition: Definition,
        *,
        max_records: int,
        interval_s: float | None,
        skip_lost: bool = False,
        upkeep: Upkeep,
        told: Callable[[Definition, Done], None],
    ) -> None:
        self.definition = definition
        self._session = session
        self._home = home
        self._max_records = max_records
        self._interval_s = interval_s
        self._skip_lost = skip_lost
        self._upkeep = upkeep
        self._told = told
        self._failure: Exception | None = None
        self._batches = 0
        self._keeper: Keeper | None = None
        self._query: StreamingQuery | None = None
        self._checkpoint: Path | None = None

    @property
    def ends_by_itself(self) -> bool:
        return self._interval_s is None

    def start(self) -> None:
        """Begin where the table is; raises TableError if it cannot go on."""
        self._failure = None
        keeper = Keeper(self._home, self.definition, SparkEngine(self._session))
        self._keeper = keeper
        starts = keeper.starts(keeper.open())
        for store in (keeper.rows, keeper.dead_letters):
            remove_orphans(store)
        self._batches = 0
        self._checkpoint = self._home.folder / "checkpoints" / f"{self.definition.name}-{keeper.run}"
        options = {
            "kafka.group.id": f"ottla-table-{self.definition.name}",
            **source_options(self.definition),
            "startingOffsets": json.dumps({self.definition.topic: starts}),
            "maxOffsetsPerTrigger": str(self._max_records),
            "failOnDataLoss": str(not self._skip_lost).lower(),
        }
        rows = self._session.readStream.format("ottla").schema(_SCHEMA).options(**options).load()
        writer = (
            rows.writeStream.queryName(f"{self.definition.name}-{keeper.run}")
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(lambda frame, _: self._take(keeper, frame))
        )
        if self._interval_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self._interval_s * 1000)} milliseconds")
        self._query = writer.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether the query has ended; raises what it ended by."""
        assert self._query is not None, "it was started"
        assert self._keeper is not None, "it was started"
        keeper = self._keeper
        try:
            if not self._query.awaitTermination(timeout_s):  # type: ignore[arg-type]
                return False
        except PySparkException as error:
            self.stop()
            failure = self._failure or error
            if isinstance(failure, TableError | ApiError):
                raise failure from None
            # Offsets that are not there may be those of a topic that is not there any more.
            keeper.check_topic()
            raise _in_plain_words(self.definition, failure) from None
        self.stop()
        return True

    def stop(self) -> None:
        """End the query; a batch that is under way is not committed."""
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def _take(self, keeper: Keeper, frame: DataFrame) -> None:
        try:
            done = keeper.take(SparkBatch(frame))
            self._told(self.definition, done)
            self._batches += 1
            self._upkeep.after_batch(keeper, self._batches)
        except Exception as error:
            self._failure = error
            raise


def _in_plain_words(definition: Definition, error: Exception) -> TableError | Stumbled:
    """What went wrong in a task or in the source: our own words among those of Spark."""
    said = _OUR_WORDS.findall(str(error))
    kind, words = said[-1] if said else ("", (str(error).splitlines() or [type(error).__name__])[0])
    told = f"table {definition.name!r}: {words.strip()}".replace("failOnDataLoss=false", "--skip-lost")
    return TableError(told) if kind in _LASTING else Stumbled(told)


def keep_tables(queries: Sequence[TableQuery], complain: Callable[[str], None]) -> None:
    """Run queries until all have ended; then raise what one of them ended by, if any did.

    One table's trouble is not another's. A query that goes on for good is started again after what may pass.
    """
    failures = dict.fromkeys(queries, 0)
    due = dict.fromkeys(queries, 0.0)
    running: list[TableQuery] = []
    given_up: list[Exception] = []
    try:
        while running or due:
            for query in [*running, *(each for each, at in due.items() if at <= time.monotonic())]:
                try:
                    if query in due:
                        del due[query]
                        query.start()
                        running.append(query)
                    elif query.wait(0.2 / len(running)):
                        running.remove(query)
                except Exception as error:  # noqa: BLE001  # told at once, or raised at the end
                    if query in running:
                        running.remove(query)
                    if query.ends_by_itself or isinstance(error, TableError | OptionError):
                        given_up.append(error)
                        if len(queries) > 1:
                            complain(str(error))
                        continue
                    pause_s = _PAUSES_S[min(failures[query], len(_PAUSES_S) - 1)]
                    failures[query] += 1
                    due[query] = time.monotonic() + pause_s
                    complain(f"{query.definition.name}: {error}; it is tried again in {pause_s:g} s")
            if not running and due:
                time.sleep(0.1)
    finally:
        for query in queries:
            query.stop()
    if given_up:
        raise given_up[0]
