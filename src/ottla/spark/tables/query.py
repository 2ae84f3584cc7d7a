"""Tables kept in step with their topics: the driver plans a micro-batch, tasks write files of it, the driver commits.

How far a table has come is in the table. So a run begins there, and needs no checkpoint of its own: there is nothing
that a checkpoint could know better, or worse.
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
from ottla.spark.tables.maintenance import Upkeep, remove_orphans
from ottla.spark.tables.record_columns import value_fields
from ottla.spark.tables.spark import SparkBatch, SparkEngine
from ottla.spark.tables.table_writer import Done, TableWriter, source_options

_RECORDS: Final = {"append": 5_000_000, "upsert": 500_000}
"""Records of a batch. A task that keeps the last of each key holds all of its share in memory; else it holds little."""
_FIRST_RECORDS: Final = 10_000
"""Records of a new table's first batch, which is read twice: it finds the columns."""
_OUR_WORDS: Final = re.compile(r"ottla\.[\w.]*?(\w+): ([^\n]+)")
_LASTING: Final = ("DataLost", "OptionError", "TableError", "CorruptMessage")
"""Failures that no second attempt helps with."""
_PAUSES_S: Final = (1.0, 5.0, 15.0, 60.0)
_STOP_S: Final = 0.2
_STOP_TIMEOUT_S: Final = 30.0


class TableQuery:
    """Keeps one table, in a thread of its own. It ends when the topic is read, or goes on at an interval."""

    def __init__(
        self,
        session: SparkSession,
        home: TableHome,
        definition: Definition,
        *,
        max_records: int | None = None,
        interval_s: float | None,
        skip_lost: bool = False,
        upkeep: Upkeep,
        told: Callable[[Definition, Done], None],
    ) -> None:
        self.definition = definition
        self._session = session
        self._home = home
        self._max_records = max_records or _RECORDS[definition.mode]
        self._interval_s = interval_s
        self._skip_lost = skip_lost
        self._upkeep = upkeep
        self._told = told
        self._failure: Exception | None = None
        self._batches = 0
        self._keeper: TableWriter | None = None
        self._thread: InheritableThread | None = None
        self._stopping = threading.Event()

    @property
    def ends_by_itself(self) -> bool:
        return self._interval_s is None

    def start(self) -> None:
        """Begin where the table is; raises TableError if it cannot go on."""
        keeper = TableWriter(self._home, self.definition, SparkEngine(self._session))
        starts = keeper.starts(keeper.open())
        for store in (keeper.rows, keeper.dead_letters):
            remove_orphans(store)
        options = {
            "kafka.group.id": f"ottla-table-{self.definition.name}",
            **source_options(self.definition),
            "startingOffsets": json.dumps({self.definition.topic: starts}),
            "failOnDataLoss": str(not self._skip_lost).lower(),
        }
        self._failure, self._batches, self._keeper = None, 0, keeper
        self._stopping.clear()
        self._thread = InheritableThread(self._keep, args=(keeper, options), daemon=True, session=self._session)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether the query has ended; raises what it ended by."""
        assert self._thread is not None, "it was started"
        assert self._keeper is not None, "it was started"
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._thread = None
        failure = self._failure
        if failure is None:
            return True
        passes = isinstance(failure, ApiError) and not isinstance(failure, UnknownTopicOrPartition)
        if not (passes or isinstance(failure, TableError)):
            # Offsets that are not there may be those of a topic that is not there any more.
            self._keeper.check_topic()
        raise _in_plain_words(self.definition, failure) from failure

    def stop(self) -> None:
        """End the query; a batch that is under way is not committed, unless its commit is.

        A thread that waits for a broker for too long is left behind. Without Spark it commits nothing any more.
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while thread is not None and thread.is_alive() and time.monotonic() < deadline_s:
            self._session.interruptTag(self._tag)
            thread.join(_STOP_S)

    @property
    def _tag(self) -> str:
        assert self._keeper is not None, "it was started"
        return f"ottla-table-{self.definition.name}-{self._keeper.run}"

    def _keep(self, keeper: TableWriter, options: Mapping[str, str]) -> None:
        try:
            self._session.addTag(self._tag)
            self._follow(keeper, options)
        except Exception as error:  # noqa: BLE001  # raised where the query is waited for
            self._failure = error

    def _follow(self, keeper: TableWriter, options: Mapping[str, str]) -> None:
        planner = StreamPlanner(parse_read_options(options, streaming=True))
        position = planner.initial()
        if self._interval_s is None:
            planner.fix_target()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            stop = planner.next_end(position, self._most(keeper), waits=False)
            ranges = planner.plan(position, stop)
            if ranges:
                self._take(keeper, SparkBatch(self._session, options, ranges))
            position = stop
            if self._interval_s is None:
                if not ranges:
                    return
            elif not ranges or stop == planner.latest():
                self._stopping.wait(max(self._interval_s - (time.monotonic() - began_s), 0))

    def _most(self, keeper: TableWriter) -> int:
        is_new = not self._batches and not value_fields(keeper.rows.state().schema)
        return min(self._max_records, _FIRST_RECORDS) if is_new else self._max_records

    def _take(self, keeper: TableWriter, batch: SparkBatch) -> None:
        done = keeper.take(batch)
        self._told(self.definition, done)
        self._batches += 1
        self._upkeep.after_batch(keeper, self._batches)


def _in_plain_words(definition: Definition, error: Exception) -> Exception:
    """What went wrong, on the driver or in a task: our own words among those of Spark."""
    if isinstance(error, TableError | TransientTableError | ApiError):
        return error
    said = [(type(error).__name__, str(error))] if isinstance(error, DataLost | OptionError) else []
    said = said or _OUR_WORDS.findall(str(error))
    kind, words = said[-1] if said else ("", (str(error).splitlines() or [type(error).__name__])[0])
    told = f"table {definition.name!r}: {words.strip()}".replace("failOnDataLoss=false", "--skip-lost")
    return TableError(told) if kind in _LASTING else TransientTableError(told)


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
