"""A run of a pipeline: it defines the graph, updates it once, and reports everything as events.

Spark reports the states of flows as sentences, and their rows as the progress of streaming queries, by another channel
and a little later. The end offsets of a streaming query say what it has read; the records after them are the flow's
lag.
"""

import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.protocol.errors import ApiError
from ottla.spark.connector.positions import Offsets, to_json
from ottla.spark.pipelines.definitions import Registry, register_definitions
from ottla.spark.pipelines.events import Event, make_event
from ottla.spark.pipelines.expectations import METRIC, dead_letters_of
from ottla.spark.pipelines.failures import summarize_error
from ottla.spark.pipelines.project import Project
from ottla.spark.pipelines.topics import parse_offsets

_FLOW: Final = re.compile(r"^Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<state>[A-Z]+)", re.DOTALL)
_UNRESOLVED: Final = re.compile(r"^Failed to resolve flow: '(?P<flow>[^']+)'\.", re.DOTALL)
_LAST_PROGRESS_S: Final = 3.0
Report = Callable[[Event], None]


class RunFailed(Exception):
    """A run failed; the message says where and why."""


class RunOptions(NamedTuple):
    """The datasets that a run updates (all by default), and those that it recomputes from the start.

    `refresh` takes tables only: Spark writes sinks in runs of the whole pipeline.
    """

    refresh: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False
    dry: bool = False


class Run:
    """One run, on a Spark server that is running."""

    def __init__(self, project: Project, address: str, report: Report, last_offsets: Mapping[str, Offsets]) -> None:
        """`last_offsets` has the offsets of earlier runs, because a flow without new records reports none."""
        self.id = uuid.uuid4().hex[:12]
        self._project = project
        self._address = address
        self._report_to = report
        self._lock = threading.Lock()
        self._read: dict[str, Offsets] = dict(last_offsets)
        self._views: set[str] = set()
        self._ended_streams = 0
        self._completed: list[str] = []
        self._began: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._busy: set[str] = set()
        self._failures: list[str] = []
        self._registry: Registry | None = None

    def execute(self, options: RunOptions) -> None:
        """Define the graph and update it; raise ProjectError or RunFailed. The last event has the outcome."""
        began_s = time.monotonic()
        self._report("run started", pipeline=self._project.name, spark=self._project.shown_spark)
        try:
            self._execute(options)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._finish(began_s, "interrupted" if interrupted else "failed", None if interrupted else str(error))
            raise
        self._finish(began_s, "completed", None)

    def _finish(self, began_s: float, outcome: str, problem: str | None) -> None:
        about = {} if problem is None else {"problem": problem}
        self._report("run finished", outcome=outcome, seconds=round(time.monotonic() - began_s, 2), **about)

    def _execute(self, options: RunOptions) -> None:
        spark = self._connect()
        listener = _ProgressListener(self)
        try:
            spark.streams.addListener(listener)
            own = self._project.configuration if self._project.is_remote else {}
            if self._project.database is not None and not self._project.is_remote:
                spark.sql(f"CREATE DATABASE IF NOT EXISTS {self._project.database}").collect()
            settings = {name: value for name, value in own.items() if name.startswith("spark.")}
            fresh: Set[str] | None = None
            while True:
                graph = create_dataflow_graph(spark, self._project.catalog, self._project.database, settings)
                self._registry = register_definitions(self._project, spark, graph, self.short)
                self._report("flows defined", flows=sorted(self._registry.sources))
                self._update(spark, graph, options)
                if options.dry or not (stale := self._stale_flows(self._registry, fresh)):
                    break
                # Update again for these flows and their readers, but not for records that arrived since.
                fresh, options = self._registry.with_readers(stale), RunOptions(refresh=options.refresh)
            if not options.dry:
                self._report_totals(spark)
        except PySparkException as error:
            raise RunFailed("; ".join(self._failures) or summarize_error(str(error))) from error
        finally:
            # When the session ends, the server stops its queries.
            spark.streams.removeListener(listener)
            spark.stop()

    def _connect(self) -> Any:
        builder = SparkSession.builder.remote(self._address)
        try:
            return builder.config("spark.sql.connect.serverStacktrace.enabled", "false").create()
        except PySparkException as error:
            raise RunFailed(
                f"cannot connect to Spark at {self._project.shown_spark}: {summarize_error(str(error))}"
            ) from error

    def _update(self, spark: ConnectSession, graph: str, options: RunOptions) -> None:
        events = start_run(
            spark,  # type: ignore[arg-type]
            graph,
            full_refresh=list(options.full_refresh),
            full_refresh_all=options.full_refresh_all,
            refresh=list(options.refresh),
            dry=options.dry,
            storage=self._project.storage,
        )
        for result in events:
            if (pipeline_event := result.get("pipeline_event_result")) is not None:
                self._process_message(pipeline_event.event.message)
        if self._failures:
            raise RunFailed("; ".join(self._failures))

    def _stale_flows(self, registry: Registry, fresh: Set[str] | None) -> set[str]:
        """Return the flows that started before one of their inputs, with new rows and among the `fresh`, completed.

        Spark orders flows by their inputs. But some operations (withColumn, drop, withWatermark) make it resolve their
        input immediately. It then takes a table of an earlier run for an external one, and may run the flow too early.
        """
        self._await_progress()
        with self._lock:
            began, done, busy = self._began, self._done, self._busy
            self._began, self._done, self._busy = {}, {}, set()
        return {
            flow
            for flow, inputs in registry.inputs.items()
            for source in (inputs if fresh is None else inputs & fresh)
            if began.get(flow, 0) < done.get(source, 0) and (source in busy or source in self._views)
        }

    def _await_progress(self) -> None:
        """Wait for the last progress of streaming queries, which arrives after their flows complete."""
        deadline = time.monotonic() + _LAST_PROGRESS_S
        streams = sum(flow not in self._views for flow in self._completed)
        while self._ended_streams < streams and time.monotonic() < deadline:
            time.sleep(0.02)

    def _process_message(self, message: str) -> None:
        """Process an event of Spark's: a sentence about a flow, or about the run."""
        if unresolved := _UNRESOLVED.match(message):
            match, state = unresolved, "failed"
        elif (flow_state := _FLOW.match(message)) is not None:
            match, state = flow_state, flow_state["state"].lower()
        else:
            return
        flow = self.short(match["flow"])
        rest = message[match.end() :].strip(". \n")
        if state == "planning":
            self._views.add(flow)  # Spark reports planning only for materialized views
        if state == "running":
            self._began[flow] = time.monotonic()
        if state == "completed":
            self._completed.append(flow)
            self._done[flow] = time.monotonic()
        if state == "failed":
            problem = summarize_error(rest.partition("Error:")[2].strip() or rest or message)
            self._failures.append(f"{flow}: {problem}")
            self._report("failure", flow=flow, problem=problem, detail=message)
        self._report("flow", flow=flow, state=state)

    def short(self, name: str) -> str:
        """Return a flow's name as its author wrote it: without the default catalog and database."""
        parts = name.replace("`", "").split(".")
        catalog, database = self._project.catalog or "spark_catalog", self._project.database or "default"
        if len(parts) == 3 and parts[:2] == [catalog, database]:
            return parts[2]
        return ".".join(parts)

    def note_stream_end(self) -> None:
        """Note that a streaming query has ended."""
        with self._lock:
            self._ended_streams += 1

    def note_progress(self, progress: Any) -> None:
        """Report a micro-batch that has finished."""
        flow = self.short(progress.name or "?")
        if progress.numInputRows:
            with self._lock:
                self._busy.add(flow)
        about: dict[str, Any] = {"rows": progress.numInputRows, "batch": progress.batchId}
        unmet = _count_unmet(progress.observedMetrics)
        if unmet and not self._writes_dead_letters(flow):
            about["unmet"] = unmet
        offsets: Offsets = {}
        for source in progress.sources:
            offsets |= parse_offsets(source.endOffset) or {}
        if offsets:
            with self._lock:
                self._read[flow] = offsets
            about["offsets"] = to_json(offsets)
        self._report("progress", flow=flow, **about)

    def _writes_dead_letters(self, flow: str) -> bool:
        return self._registry is not None and flow in dead_letters_of(self._registry).flows

    def _report_totals(self, spark: ConnectSession) -> None:
        """Report the rows of views and the lag, after all flows have ended."""
        for flow in dict.fromkeys(completed for completed in self._completed if completed in self._views):
            self._report("view", flow=flow, rows=spark.table(flow).count())
        self._await_progress()
        assert self._registry is not None, "definitions are registered before the update"
        for flow, sources in self._registry.sources.items():
            if sources and self.short(flow) in self._read:
                try:
                    lag = sum(source.lag(self._read[self.short(flow)]) for source in sources)
                except ApiError as error:
                    self._report("lag", flow=self.short(flow), lag=None, problem=error.message)
                else:
                    self._report("lag", flow=self.short(flow), lag=lag)

    @property
    def reads_only_topics(self) -> bool:
        """Whether all streams that the pipeline reads are topics."""
        return self._registry is not None and not self._registry.has_other_sources

    def has_new_records(self) -> bool:
        """Whether a topic has records that the finished run has not read."""
        assert self._registry is not None, "the run has finished"
        for flow, sources in self._registry.sources.items():
            read = self._read.get(self.short(flow), {})
            try:
                if any(source.lag(read) for source in sources):
                    return True
            except ApiError:
                return True  # the next run reports the error
        return False

    def _report(self, kind: str, **about: Any) -> None:
        with self._lock:
            self._report_to(make_event(self.id, kind, **about))


class _ProgressListener(StreamingQueryListener):
    """Listens to the streaming queries of the run's session."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: Spark does not report the start of a pipeline's queries to a Connect client."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._run.note_progress(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._run.note_stream_end()


def _count_unmet(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, for each expectation, its action and the number of rows that do not meet it."""
    counts = {}
    for name, row in metrics.items():
        kind, _, rest = name.partition("/")
        action, _, expectation = rest.partition("/")
        if kind == METRIC and row is not None:
            counts[expectation] = {"action": action, "rows": row["unmet"]}
    return counts
