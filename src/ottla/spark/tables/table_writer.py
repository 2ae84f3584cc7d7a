"""Writes micro-batches of a topic to its table. Runs on the driver, without Spark.

A batch is read until the table has columns for all of its records: usually once, and again if records have new fields.
Dead letters are committed before the rows. Each commit stores the offsets that the table has reached, so that a run
that dies in between leaves nothing that the next run would write twice.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from ottla.config.settings.properties import InvalidProperties, parse_properties
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.spark.connector.cluster import BlockingCluster, shared_cluster
from ottla.spark.connector.read_options import EARLIEST, ReadOptions, parse_read_options
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.evolution import extend_schema, needs_rewrite
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.files import TARGET_BYTES, delete_files, open_file_io
from ottla.spark.tables.formats import open_store
from ottla.spark.tables.marks import Marks
from ottla.spark.tables.record_columns import DEAD_LETTERS
from ottla.spark.tables.store import NewFile, Store, StoredFile, TableState
from ottla.spark.tables.tasks import IngestTask, KeepLastTask, RewriteResult, RewriteTask, TaskReport

T = TypeVar("T")
R = TypeVar("R")
_MAX_ROUNDS: Final = 20
_SHARE_BYTES: Final = 256 << 20


class Engine(Protocol):
    """Runs work for items in parallel."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]: ...


class Batch(Protocol):
    """The records of a micro-batch, which can be read repeatedly."""

    def run(self, work: Callable[..., TaskReport], *, by_key: bool) -> list[TaskReport]:
        """Return the report of the work for each share; with `by_key`, all records of a key are in one share."""


class BatchResult(NamedTuple):
    """The counts of a micro-batch that was written."""

    rows: int = 0
    dead: int = 0
    rescued: int = 0
    new_columns: tuple[str, ...] = ()


class TableWriter:
    """Writes one table during one run."""

    def __init__(
        self, home: TableHome, definition: Definition, engine: Engine, *, target_bytes: int = TARGET_BYTES
    ) -> None:
        self.definition = definition
        self.options: ReadOptions = parse_read_options(source_options(definition), streaming=True)
        self.cluster: BlockingCluster = shared_cluster(self.options.client)
        self.rows: Store = open_store(home, definition, definition.name)
        self.dead_letters: Store = open_store(home, definition, definition.dead_letters)
        self.run = uuid.uuid4().hex[:8]
        self.engine: Engine = engine
        self._target_bytes = target_bytes
        self._reached: Mapping[int, int] = {}

    def open(self) -> Marks:
        """Create what is missing, check that the topic is still the same, and return the table's progress."""
        now = self.look_up_topic()
        if not self.rows.exists():
            self.rows.create(self.definition.schema, self.definition.partitions)
        if not self.dead_letters.exists():
            self.dead_letters.create(DEAD_LETTERS, ())
        for store in (self.dead_letters, self.rows):
            state = store.state()
            if state.marks is None:
                store.commit(state, now._replace(offsets=self._first_offsets()), [])
            else:
                state.marks.check(now, self.definition.name)
        marks = self._marks(self.rows.state())
        if marks.mode != self.definition.mode:
            marks = self._change_mode(marks)
        self._reached = marks.offsets
        return marks

    def look_up_topic(self) -> Marks:
        """Return the current identity of the cluster and the topic, without offsets."""
        name = self.definition.topic
        try:
            self.cluster.partitions(self.options.subscription)
        except UnknownTopicOrPartition as error:
            raise TableError(
                f"table {self.definition.name!r}: topic {name!r} does not exist ({error.message}); create the topic, "
                "or drop the table"
            ) from error
        topic, cluster_id = self.cluster.topic(name), self.cluster.async_cluster.cluster_id
        return Marks(cluster_id or "", name, topic.id.hex(), self.definition.mode, {})

    def check_topic(self) -> None:
        """Raise TableError if the topic was deleted or recreated."""
        self._marks(self.rows.state()).check(self.look_up_topic(), self.definition.name)

    def start_offsets(self, marks: Marks) -> dict[int, int]:
        """Return the next offset of each current partition; new partitions start at their beginning."""
        keys = self.cluster.partitions(self.options.subscription)
        return {number: marks.offsets.get(number, EARLIEST) for _, number in keys}

    def accept_topic(self) -> None:
        """Accept the current topic as the table's own, and read it from its beginning."""
        now = self.look_up_topic()
        offsets = {number: offset for (_, number), offset in self.cluster.begins(self._keys()).items()}
        for store in (self.dead_letters, self.rows):
            state = store.state()
            before = state.marks or now
            store.commit(state, now._replace(offsets=offsets, mode=before.mode, topics=before.topics + 1), [])

    def write(self, batch: Batch) -> BatchResult:
        """Write a micro-batch to the table."""
        columns = set(self.rows.state().schema.names)
        for _ in range(_MAX_ROUNDS):
            state, dead_state = self.rows.state(), self.dead_letters.state()
            marks, dead_marks = self._marks(state), self._marks(dead_state)
            self._check_not_rolled_back(marks)
            reports = batch.run(self._make_task(state, marks, dead_marks), by_key=marks.mode == "upsert")
            wanted = state.schema
            for report in reports:
                wanted = extend_schema(wanted, list(report.wanted), self.definition.fixed)
            if wanted == state.schema:
                break
            self._discard(reports)
            self._evolve(state, marks, wanted)
        else:
            raise TableError(
                f"table {self.definition.name!r}: the columns of a batch were still changing after {_MAX_ROUNDS} "
                "attempts, so another program probably changes them; stop it, then run again"
            )
        marks.check(self.look_up_topic(), self.definition.name)
        self._commit(state, marks, dead_state, dead_marks, reports)
        return BatchResult(
            sum(report.rows for report in reports),
            sum(report.dead for report in reports),
            sum(report.rescued for report in reports),
            tuple(name for name in state.schema.names if name not in columns),
        )

    def _commit(
        self, state: TableState, marks: Marks, dead_state: TableState, dead_marks: Marks, reports: Sequence[TaskReport]
    ) -> None:
        offsets: dict[int, int] = {}
        for report in reports:
            for number, offset in report.offsets.items():
                offsets[number] = max(offsets.get(number, 0), offset)
        ahead = {number: offset for number, offset in offsets.items() if offset > marks.offsets.get(number, 0)}
        dead_ahead = {n: offset for n, offset in offsets.items() if offset > dead_marks.offsets.get(n, 0)}
        dead_files = [file for report in reports for file in report.dead_files]
        if dead_files:
            self.dead_letters.commit(dead_state, dead_marks.advance(dead_ahead), dead_files)
        if not ahead:
            return
        added, removed = [file for report in reports for file in report.files], []
        if marks.mode == "upsert":
            for rewrite in self._rewrite_without_keys(reports):
                added += rewrite.files
                removed += rewrite.removed
        advanced = marks.advance(ahead)
        self.rows.commit(state, advanced, added, removed)
        self._reached = advanced.offsets

    def _rewrite_without_keys(self, reports: Sequence[TaskReport]) -> list[RewriteResult]:
        """Rewrite the stored files that have rows of changed keys, without those rows."""
        changed = [report.keys for report in reports if report.keys is not None and len(report.keys)]
        if not changed:
            return []
        keys = pa.concat_arrays(changed).unique()
        least, greatest = (pa.compute.min_max(keys)[name].as_py() for name in ("min", "max"))
        candidates = [file for file in self.rows.files() if _overlaps(file, least, greatest)]
        work = RewriteTask(self.rows.reader(), self.rows.layout(), self.run, self._target_bytes, keys)
        results = self.engine.map(work, [[file] for file in candidates]) if candidates else []
        return [result for result in results if result is not None]

    def _evolve(self, state: TableState, marks: Marks, wanted: pa.Schema) -> None:
        """Add new columns; if a column changes its type, rewrite all files."""
        types = {field.name: field.type for field in wanted}
        if not any(needs_rewrite(field.type, types[field.name]) for field in state.schema):
            self.rows.add_columns(wanted)
            return
        files = self.rows.files()
        widening = self.rows.widen(wanted)
        work = RewriteTask(self.rows.reader(), widening.layout, self.run, self._target_bytes)
        results = [result for result in self.engine.map(work, [[file] for file in files]) if result is not None]
        self.rows.commit(state, marks, [file for result in results for file in result.files], files, widening)

    def _change_mode(self, marks: Marks) -> Marks:
        """Change the table's mode. From append to upsert, keep only the last row of each key; else keep all rows."""
        marks.check_mode(self.definition.mode, self.definition.name)
        state = self.rows.state()
        changed = marks._replace(mode=self.definition.mode)
        files = self.rows.files() if changed.mode == "upsert" else []
        added: list[NewFile] = []
        if files:
            shares = sum(file.size_bytes for file in files) // _SHARE_BYTES + 1
            work = KeepLastTask(self.rows.reader(), self.rows.layout(), self.run, self._target_bytes, files, shares)
            added = [file for result in self.engine.map(work, range(shares)) for file in result.files]
        self.rows.commit(state, changed, added, files)
        return changed

    def _check_not_rolled_back(self, marks: Marks) -> None:
        """Raise TableError if the table was rolled back during this run, which would skip the records between."""
        for number, offset in self._reached.items():
            if marks.offsets.get(number, 0) < offset:
                raise TableError(
                    f"table {self.definition.name!r} was rolled back during this run: partition {number} is at offset "
                    f"{marks.offsets.get(number, 0)} instead of {offset}. To continue from there, run it again"
                )

    def _make_task(self, state: TableState, marks: Marks, dead_marks: Marks) -> IngestTask:
        return IngestTask(
            topic=self.definition.topic,
            schema=state.schema,
            fixed=self.definition.fixed,
            key=self.definition.key,
            values=self.definition.values,
            mode=marks.mode,
            layout=self.rows.layout(),
            dead_layout=self.dead_letters.layout(),
            offsets=dict(marks.offsets),
            dead_offsets=dict(dead_marks.offsets),
            prefix=self.run,
            target_bytes=self._target_bytes,
        )

    def _keys(self) -> list[tuple[str, int]]:
        return self.cluster.partitions(self.options.subscription)

    def _first_offsets(self) -> dict[int, int]:
        find = self.cluster.begins if self.definition.start == "earliest" else self.cluster.ends
        return {number: offset for (_, number), offset in find(self._keys()).items()}

    def _marks(self, state: TableState) -> Marks:
        assert state.marks is not None, "open() commits marks"
        return state.marks

    def _discard(self, reports: Sequence[TaskReport]) -> None:
        """Delete the files of tasks that had too few columns."""
        for store, files in (
            (self.rows, [file.path for report in reports for file in report.files]),
            (self.dead_letters, [file.path for report in reports for file in report.dead_files]),
        ):
            delete_files(open_file_io(store.layout()), files)


def source_options(definition: Definition) -> Mapping[str, str]:
    """Return the options of the source, except the offsets."""
    return {
        # A client id per table gives each table its own connections, because each runs in its own thread.
        "kafka.client.id": f"ottla-table-{definition.name}",
        **{f"kafka.{name}": value for name, value in _from_file(definition).items()},
        **{f"kafka.{name}": value for name, value in definition.client.items()},
        "kafka.bootstrap.servers": definition.servers,
        "subscribe": definition.topic,
    }


def _from_file(definition: Definition) -> dict[str, str]:
    if definition.client_file is None:
        return {}
    try:
        properties = parse_properties(Path(definition.client_file).read_bytes())
    except OSError as error:
        remedy = f"name another file by `ottla table alter {definition.name} --command-config FILE`"
        raise TableError(
            f"table {definition.name!r}: cannot read its client settings from {definition.client_file}: "
            f"{error.strerror}; {remedy}"
        ) from error
    except InvalidProperties as error:
        raise TableError(f"{definition.client_file}: {error}") from error
    return {name: setting.value for name, setting in properties.items()}


def _overlaps(file: StoredFile, least: Any, greatest: Any) -> bool:
    if file.least_key is None or file.greatest_key is None:
        return True
    return bool(file.least_key <= greatest and least <= file.greatest_key)
