"""Queries that follow topics with tables: the driver plans a micro-batch, tasks write its files, the driver commits.

The table's last commit has the offsets that it has reached. A run starts there, so it needs no checkpoint that could
disagree with the table.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.spark.connector.micro_batch_reader import StreamPlanner
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.range_reader import DataLost
from ottla.spark.connector.read_options import parse_read_options
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError, TransientTableError
from ottla.spark.tables.maintenance import MaintenancePolicy, remove_orphans
from ottla.spark.tables.record_columns import value_fields
from ottla.spark.tables.spark_engine import SparkBatch, SparkEngine
from ottla.spark.tables.table_writer import BatchResult, TableWriter, source_options

_RECORDS: Final = {"append": 5_000_000, "upsert": 500_000}
"""The most records of a batch. In upsert mode a task holds its whole share in memory, in append mode only a part."""
_FIRST_RECORDS: Final = 10_000
"""The most records of a new table's first batch. It is read twice, because it defines the columns."""
_OTTLA_ERROR: Final = re.compile(r"ottla\.[\w.]*?(\w+): ([^\n]+)")
"""An error of Ottla's in the text of one of Spark's: the class and the message."""
_PERMANENT: Final = ("DataLost", "OptionError", "TableError", "CorruptMessage")
"""Classes of errors that a retry cannot fix."""
_PAUSES_S: Final = (1.0, 5.0, 15.0, 60.0)
_STOP_S: Final = 0.2
_STOP_TIMEOUT_S: Final = 30.0


class TableQuery:
    """Follows a topic with one table, in its own thread: once to the current end, or repeatedly at an interval."""

    def __init__(
        self,
        session: SparkSession,
        home: TableHome,
        definition: Definition,
        *,
        max_records: int | None = None,
        interval_s: float | None,
        skip_lost: bool = False,
        maintenance: MaintenancePolicy,
        on_batch: Callable[[Definition, BatchResult], None],
    ) -> None:
        self.definition = definition
        self._session = session
        self._home = home
        self._max_records = max_records or _RECORDS[definition.mode]
        self._interval_s = interval_s
        self._skip_lost = skip_lost
        self._maintenance = maintenance
        self._on_batch = on_batch
        self._failure: Exception | None = None
        self._batches = 0
        self._writer: TableWriter | None = None
        self._thread: InheritableThread | None = None
        self._stopping = threading.Event()

    @property
    def ends_by_itself(self) -> bool:
        return self._interval_s is None

    def start(self) -> None:
        """Start at the table's offsets; raise TableError if the table cannot continue."""
        writer = TableWriter(self._home, self.definition, SparkEngine(self._session))
        starts = writer.start_offsets(writer.open())
        for store in (writer.rows, writer.dead_letters):
            remove_orphans(store)
        options = {
            "kafka.group.id": f"ottla-table-{self.definition.name}",
            **source_options(self.definition),
            "startingOffsets": json.dumps({self.definition.topic: starts}),
            "failOnDataLoss": str(not self._skip_lost).lower(),
        }
        self._failure, self._batches, self._writer = None, 0, writer
        self._stopping.clear()
        self._thread = InheritableThread(self._run, args=(writer, options), daemon=True, session=self._session)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait; return whether the query has ended, or raise the error that ended it."""
        assert self._thread is not None, "it was started"
        assert self._writer is not None, "it was started"
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._thread = None
        failure = self._failure
        if failure is None:
            return True
        may_pass = isinstance(failure, ApiError) and not isinstance(failure, UnknownTopicOrPartition)
        if not (may_pass or isinstance(failure, TableError)):
            # If the topic was deleted or recreated, that error is more useful than one about its offsets.
            self._writer.check_topic()
        raise _simplify_error(self.definition, failure) from failure

    def stop(self) -> None:
        """End the query. A batch in progress is discarded, unless its commit has begun.

        A thread that waits too long for a broker is abandoned; after the session has stopped it cannot commit.
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while thread is not None and thread.is_alive() and time.monotonic() < deadline_s:
            self._session.interruptTag(self._tag)
            thread.join(_STOP_S)

    @property
    def _tag(self) -> str:
        assert self._writer is not None, "it was started"
        return f"ottla-table-{self.definition.name}-{self._writer.run}"

    def _run(self, writer: TableWriter, options: Mapping[str, str]) -> None:
        try:
            self._session.addTag(self._tag)
            self._follow(writer, options)
        except Exception as error:  # noqa: BLE001  # `wait` raises it
            self._failure = error

    def _follow(self, writer: TableWriter, options: Mapping[str, str]) -> None:
        planner = StreamPlanner(parse_read_options(options, streaming=True))
        position = planner.initial()
        if self._interval_s is None:
            planner.fix_target()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            stop = planner.next_end(position, self._batch_limit(writer), waits=False)
            ranges = planner.plan(position, stop)
            if ranges:
                self._write(writer, SparkBatch(self._session, options, ranges))
            position = stop
            if self._interval_s is None:
                if not ranges:
                    return
            elif not ranges or stop == planner.latest():
                self._stopping.wait(max(self._interval_s - (time.monotonic() - began_s), 0))

    def _batch_limit(self, writer: TableWriter) -> int:
        is_new = not self._batches and not value_fields(writer.rows.state().schema)
        return min(self._max_records, _FIRST_RECORDS) if is_new else self._max_records

    def _write(self, writer: TableWriter, batch: SparkBatch) -> None:
        result = writer.write(batch)
        self._on_batch(self.definition, result)
        self._batches += 1
        self._maintenance.maintain(writer, self._batches)


def _simplify_error(definition: Definition, error: Exception) -> Exception:
    """Return an error with Ottla's own message, which Spark wraps if it comes from a task."""
    if isinstance(error, TableError | TransientTableError | ApiError):
        return error
    own = [(type(error).__name__, str(error))] if isinstance(error, DataLost | OptionError) else []
    own = own or _OTTLA_ERROR.findall(str(error))
    kind, text = own[-1] if own else ("", (str(error).splitlines() or [type(error).__name__])[0])
    message = f"table {definition.name!r}: {text.strip()}".replace("set failOnDataLoss=false", "use --skip-lost")
    return TableError(message) if kind in _PERMANENT else TransientTableError(message)


def run_queries(queries: Sequence[TableQuery], report_error: Callable[[str], None]) -> None:
    """Run queries until all have ended, then raise the first permanent error.

    An error of one query does not affect the others. A query with an interval is restarted after a transient error.
    """
    failures = dict.fromkeys(queries, 0)
    due = dict.fromkeys(queries, 0.0)
    running: list[TableQuery] = []
    permanent_errors: list[Exception] = []
    try:
        while running or due:
            for query in [*running, *(waiting for waiting, start_s in due.items() if start_s <= time.monotonic())]:
                try:
                    if query in due:
                        del due[query]
                        query.start()
                        running.append(query)
                    elif query.wait(0.2 / len(running)):
                        running.remove(query)
                except Exception as error:  # noqa: BLE001  # reported now, or raised at the end
                    if query in running:
                        running.remove(query)
                    if query.ends_by_itself or isinstance(error, TableError | OptionError):
                        permanent_errors.append(error)
                        if len(queries) > 1:
                            report_error(str(error))
                        continue
                    pause_s = _PAUSES_S[min(failures[query], len(_PAUSES_S) - 1)]
                    failures[query] += 1
                    due[query] = time.monotonic() + pause_s
                    report_error(f"{query.definition.name}: {error}; retrying in {pause_s:g} s")
            if not running and due:
                time.sleep(0.1)
    finally:
        for query in queries:
            query.stop()
    if permanent_errors:
        raise permanent_errors[0]
