"""One run of a pipeline: its graph is defined anew, updated once, and everything that happens is told as events.

Spark tells of flows by sentences, and of rows by the progress of streaming queries, which comes by a way of its own
and a little later. What a streaming query has read is known by its offsets: what lies behind them is the flow's lag.
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
from ottla.spark.pipelines.definitions import Registry, register
from ottla.spark.pipelines.events import Event, make_event
from ottla.spark.pipelines.expectations import METRIC, notes_of
from ottla.spark.pipelines.failures import plain
from ottla.spark.pipelines.project import Project
from ottla.spark.pipelines.topics import offsets_of

_FLOW: Final = re.compile(r"^Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<state>[A-Z]+)", re.DOTALL)
_UNRESOLVED: Final = re.compile(r"^Failed to resolve flow: '(?P<flow>[^']+)'\.", re.DOTALL)
_LAST_PROGRESS_S: Final = 3.0
Report = Callable[[Event], None]


class RunFailed(Exception):
    """A run that did not succeed; the message says what is wrong, and where."""


class Choice(NamedTuple):
    """What a run updates: everything, unless some datasets are named; and what it computes from the start."""

    refresh: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False
    dry: bool = False


class Run:
    """One run, on a Spark that is there."""

    def __init__(self, project: Project, address: str, report: Report, known: Mapping[str, Offsets]) -> None:
        """`known` is what flows had read when they were last seen: one that finds nothing new does not say."""
        self.id = uuid.uuid4().hex[:12]
        self._project = project
        self._address = address
        self._report_to = report
        self._lock = threading.Lock()
        self._read: dict[str, Offsets] = dict(known)
        self._views: set[str] = set()
        self._streams_over = 0
        self._completed: list[str] = []
        self._began: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._busy: set[str] = set()
        self._failures: list[str] = []
        self._registry: Registry | None = None

    def execute(self, choice: Choice) -> None:
        """Define and update; raises ProjectError or RunFailed. The last event says how it went."""
        began_s = time.monotonic()
        self._report("run started", pipeline=self._project.name, spark=self._project.shown_spark)
        try:
            self._execute(choice)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._finish(began_s, "interrupted" if interrupted else "failed", None if interrupted else str(error))
            raise
        self._finish(began_s, "completed", None)

    def _finish(self, began_s: float, outcome: str, problem: str | None) -> None:
        about = {} if problem is None else {"problem": problem}
        self._report("run finished", outcome=outcome, seconds=round(time.monotonic() - began_s, 2), **about)

    def _execute(self, choice: Choice) -> None:
        spark = self._connect()
        listener = _Progress(self)
        try:
            spark.streams.addListener(listener)
            own = self._project.configuration if self._project.is_remote else {}
            if self._project.database is not None and not self._project.is_remote:
                spark.sql(f"CREATE DATABASE IF NOT EXISTS {self._project.database}").collect()
            settings = {name: value for name, value in own.items() if name.startswith("spark.")}
            fresh: Set[str] | None = None
            while True:
                graph = create_dataflow_graph(spark, self._project.catalog, self._project.database, settings)
                self._registry = register(self._project, spark, graph, self.short)
                self._report("flows defined", flows=sorted(self._registry.sources))
                self._update(spark, graph, choice)
                if choice.dry or not (stale := self._stale_flows(self._registry, fresh)):
                    break
                # Once more for these and what reads from them, but not for what has come meanwhile.
                fresh, choice = self._registry.with_readers(stale), Choice(refresh=choice.refresh)
            if not choice.dry:
                self._look_behind(spark)
        except PySparkException as error:
            raise RunFailed("; ".join(self._failures) or plain(str(error))) from error
        finally:
            # The server stops what is under way for a session that ends.
            spark.streams.removeListener(listener)
            spark.stop()

    def _connect(self) -> Any:
        builder = SparkSession.builder.remote(self._address)
        try:
            return builder.config("spark.sql.connect.serverStacktrace.enabled", "false").create()
        except PySparkException as error:
            raise RunFailed(f"{self._project.shown_spark}: {plain(str(error))}") from error

    def _update(self, spark: ConnectSession, graph: str, choice: Choice) -> None:
        events = start_run(
            spark,  # type: ignore[arg-type]
            graph,
            full_refresh=list(choice.full_refresh),
            full_refresh_all=choice.full_refresh_all,
            refresh=list(choice.refresh),
            dry=choice.dry,
            storage=self._project.storage,
        )
        for result in events:
            if (told := result.get("pipeline_event_result")) is not None:
                self._take(told.event.message)
        if self._failures:
            raise RunFailed("; ".join(self._failures))

    def _stale_flows(self, registry: Registry, fresh: Set[str] | None) -> set[str]:
        """The flows that began before one they read from was done, if that is among the `fresh` and had something.

        Spark orders flows by what they read. But some operations (withColumn, drop, withWatermark) have it look at
        their input at once, and it takes a table of an earlier run for one that is nobody's: they may run too soon.
        """
        self._await_progress()
        with self._lock:
            began, done, busy = self._began, self._done, self._busy
            self._began, self._done, self._busy = {}, {}, set()
        return {
            flow
            for flow, inputs in registry.inputs.items()
            for each in (inputs if fresh is None else inputs & fresh)
            if began.get(flow, 0) < done.get(each, 0) and (each in busy or each in self._views)
        }

    def _await_progress(self) -> None:
        """What a streaming query has read is told a little after its flow is completed."""
        deadline = time.monotonic() + _LAST_PROGRESS_S
        streams = sum(flow not in self._views for flow in self._completed)
        while self._streams_over < streams and time.monotonic() < deadline:
            time.sleep(0.02)

    def _take(self, message: str) -> None:
        """An event of Spark's: a sentence about a flow, or about the run."""
        if unresolved := _UNRESOLVED.match(message):
            found, state = unresolved, "failed"
        elif (running := _FLOW.match(message)) is not None:
            found, state = running, running["state"].lower()
        else:
            return
        flow = self.short(found["flow"])
        rest = message[found.end() :].strip(". \n")
        if state == "planning":
            self._views.add(flow)  # what streams is not planned as a whole
        if state == "running":
            self._began[flow] = time.monotonic()
        if state == "completed":
            self._completed.append(flow)
            self._done[flow] = time.monotonic()
        if state == "failed":
            problem = plain(rest.partition("Error:")[2].strip() or rest or message)
            self._failures.append(f"{flow}: {problem}")
            self._report("failure", flow=flow, problem=problem, detail=message)
        self._report("flow", flow=flow, state=state)

    def short(self, name: str) -> str:
        """A flow's name as its author wrote it: without the catalog and database that are the default."""
        parts = name.replace("`", "").split(".")
        catalog, database = self._project.catalog or "spark_catalog", self._project.database or "default"
        if len(parts) == 3 and parts[:2] == [catalog, database]:
            return parts[2]
        return ".".join(parts)

    def stream_over(self) -> None:
        with self._lock:
            self._streams_over += 1

    def progressed(self, progress: Any) -> None:
        """A micro-batch was finished."""
        flow = self.short(progress.name or "?")
        if progress.numInputRows:
            with self._lock:
                self._busy.add(flow)
        about: dict[str, Any] = {"rows": progress.numInputRows, "batch": progress.batchId}
        unmet = _unmet(progress.observedMetrics)
        if unmet and not self._puts_aside(flow):
            about["unmet"] = unmet
        offsets: Offsets = {}
        for source in progress.sources:
            offsets |= offsets_of(source.endOffset) or {}
        if offsets:
            with self._lock:
                self._read[flow] = offsets
            about["offsets"] = to_json(offsets)
        self._report("progress", flow=flow, **about)

    def _puts_aside(self, flow: str) -> bool:
        return self._registry is not None and flow in notes_of(self._registry).dead_letter_flows

    def _look_behind(self, spark: ConnectSession) -> None:
        """What is known only when all flows are done: rows of views, and lag."""
        for flow in dict.fromkeys(each for each in self._completed if each in self._views):
            self._report("view", flow=flow, rows=spark.table(flow).count())
        self._await_progress()
        assert self._registry is not None, "it is registered before it runs"
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
        """Whether all that streams into the pipeline comes from topics."""
        return self._registry is not None and not self._registry.has_other_sources

    def has_new_records(self) -> bool:
        """Whether a topic has records that were not read when the run was over."""
        assert self._registry is not None, "the run is over"
        for flow, sources in self._registry.sources.items():
            read = self._read.get(self.short(flow), {})
            try:
                if any(source.lag(read) for source in sources):
                    return True
            except ApiError:
                return True  # the next run says what is wrong
        return False

    def _report(self, kind: str, **about: Any) -> None:
        with self._lock:
            self._report_to(make_event(self.id, kind, **about))


class _Progress(StreamingQueryListener):
    """Hears of the streaming queries of the run's session."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._run.progressed(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._run.stream_over()


def _unmet(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By expectation: what is done with rows that do not meet it, and how many they were."""
    found = {}
    for name, row in metrics.items():
        kind, _, rest = name.partition("/")
        action, _, expectation = rest.partition("/")
        if kind == METRIC and row is not None:
            found[expectation] = {"action": action, "rows": row["unmet"]}
    return found
