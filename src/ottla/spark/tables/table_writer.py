"""Keeps one table in step with its topic: from a micro-batch of records to a commit. On the driver, without Spark.

A batch's records are read as often as it takes until the table's columns hold all of them: once, but twice where they
bring something new. Dead letters are committed first, then the rows. Each table's commit says how far it has come, so
that whatever happens in between, the next run passes over what is there.
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
from ottla.spark.tables.evolution import extended, needs_rewrite
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.files import TARGET_BYTES, delete_files, file_io
from ottla.spark.tables.marks import Marks
from ottla.spark.tables.record_columns import DEAD_LETTERS
from ottla.spark.tables.store import NewFile, State, Store, StoredFile
from ottla.spark.tables.stores import open_store
from ottla.spark.tables.tasks import IngestTask, KeepLast, Report, Rewrite, Rewritten

T = TypeVar("T")
R = TypeVar("R")
_MAX_ROUNDS: Final = 20
_SHARE_BYTES: Final = 256 << 20


class Engine(Protocol):
    """What runs work for many items at once."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]: ...


class Batch(Protocol):
    """The records of a micro-batch, which can be read again."""

    def run(self, work: Callable[..., Report], *, by_key: bool) -> list[Report]:
        """What the work says of each share; `by_key`: all records of a key in one share."""


class Done(NamedTuple):
    """What became of a micro-batch."""

    rows: int = 0
    dead: int = 0
    rescued: int = 0
    new_columns: tuple[str, ...] = ()


class TableWriter:
    """One table, for one run."""

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
        """Make what is missing, see that the topic is the same still, and say where to read on."""
        now = self.look()
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

    def look(self) -> Marks:
        """The cluster and the topic as they are now; nothing was read of it yet."""
        name = self.definition.topic
        try:
            self.cluster.partitions(self.options.subscription)
        except UnknownTopicOrPartition as error:
            raise TableError(
                f"table {self.definition.name!r}: topic {name!r} is not there ({error.message}); create it, or drop "
                "the table"
            ) from error
        topic, cluster_id = self.cluster.topic(name), self.cluster.async_cluster.cluster_id
        return Marks(cluster_id or "", name, topic.id.hex(), self.definition.mode, {})

    def check_topic(self) -> None:
        """Raise TableError if the topic is gone, or another."""
        self._marks(self.rows.state()).check(self.look(), self.definition.name)

    def starts(self, marks: Marks) -> dict[int, int]:
        """Where each partition that there is now is read on; those that came later, from their beginning."""
        keys = self.cluster.partitions(self.options.subscription)
        return {number: marks.offsets.get(number, EARLIEST) for _, number in keys}

    def accept_topic(self) -> None:
        """Take the topic as it is now for the table's own, to be read from its beginning."""
        now = self.look()
        offsets = {number: offset for (_, number), offset in self.cluster.begins(self._keys()).items()}
        for store in (self.dead_letters, self.rows):
            state = store.state()
            before = state.marks or now
            store.commit(state, now._replace(offsets=offsets, mode=before.mode, topics=before.topics + 1), [])

    def take(self, batch: Batch) -> Done:
        """Read a micro-batch into the table."""
        columns = set(self.rows.state().schema.names)
        for _ in range(_MAX_ROUNDS):
            state, dead_state = self.rows.state(), self.dead_letters.state()
            marks, dead_marks = self._marks(state), self._marks(dead_state)
            self._check_no_way_back(marks)
            reports = batch.run(self._intake(state, marks, dead_marks), by_key=marks.mode == "upsert")
            wanted = state.schema
            for report in reports:
                wanted = extended(wanted, list(report.wanted), self.definition.fixed)
            if wanted == state.schema:
                break
            self._discard(reports)
            self._evolve(state, marks, wanted)
        else:
            raise TableError(f"table {self.definition.name!r}: its columns change faster than a batch can be read")
        marks.check(self.look(), self.definition.name)
        self._commit(state, marks, dead_state, dead_marks, reports)
        return Done(
            sum(each.rows for each in reports),
            sum(each.dead for each in reports),
            sum(each.rescued for each in reports),
            tuple(name for name in state.schema.names if name not in columns),
        )

    def _commit(
        self, state: State, marks: Marks, dead_state: State, dead_marks: Marks, reports: Sequence[Report]
    ) -> None:
        offsets: dict[int, int] = {}
        for report in reports:
            for number, offset in report.offsets.items():
                offsets[number] = max(offsets.get(number, 0), offset)
        ahead = {number: offset for number, offset in offsets.items() if offset > marks.offsets.get(number, 0)}
        dead_ahead = {n: offset for n, offset in offsets.items() if offset > dead_marks.offsets.get(n, 0)}
        dead_files = [file for report in reports for file in report.dead_files]
        if dead_files:
            self.dead_letters.commit(dead_state, dead_marks.advanced(dead_ahead), dead_files)
        if not ahead:
            return
        added, removed = [file for report in reports for file in report.files], []
        if marks.mode == "upsert":
            for each in self._without(reports):
                added += each.files
                removed += each.removed
        done = marks.advanced(ahead)
        self.rows.commit(state, done, added, removed)
        self._reached = done.offsets

    def _without(self, reports: Sequence[Report]) -> list[Rewritten]:
        """The stored files that hold rows of keys that changed, written anew without them."""
        changed = [report.keys for report in reports if report.keys is not None and len(report.keys)]
        if not changed:
            return []
        keys = pa.concat_arrays(changed).unique()
        least, greatest = (pa.compute.min_max(keys)[name].as_py() for name in ("min", "max"))
        near = [file for file in self.rows.files() if _overlaps(file, least, greatest)]
        work = Rewrite(self.rows.reader(), self.rows.layout(), self.run, self._target_bytes, keys)
        found = self.engine.map(work, [[file] for file in near]) if near else []
        return [each for each in found if each is not None]

    def _evolve(self, state: State, marks: Marks, wanted: pa.Schema) -> None:
        """Columns that are new, at once; columns of other types, with all files written anew for them."""
        types = {field.name: field.type for field in wanted}
        if not any(needs_rewrite(field.type, types[field.name]) for field in state.schema):
            self.rows.add_columns(wanted)
            return
        files = self.rows.files()
        widening = self.rows.widen(wanted)
        work = Rewrite(self.rows.reader(), widening.layout, self.run, self._target_bytes)
        done = [each for each in self.engine.map(work, [[file] for file in files]) if each is not None]
        self.rows.commit(state, marks, [file for each in done for file in each.files], files, widening)

    def _change_mode(self, marks: Marks) -> Marks:
        """From upsert to append nothing has to change; the other way, only the last row of each key stays."""
        marks.check_mode(self.definition.mode, self.definition.name)
        state = self.rows.state()
        changed = marks._replace(mode=self.definition.mode)
        files = self.rows.files() if changed.mode == "upsert" else []
        added: list[NewFile] = []
        if files:
            shares = sum(file.size_bytes for file in files) // _SHARE_BYTES + 1
            work = KeepLast(self.rows.reader(), self.rows.layout(), self.run, self._target_bytes, files, shares)
            added = [file for each in self.engine.map(work, range(shares)) for file in each.files]
        self.rows.commit(state, changed, added, files)
        return changed

    def _check_no_way_back(self, marks: Marks) -> None:
        """A table that was rolled back while it is written would miss what lies between."""
        for number, offset in self._reached.items():
            if marks.offsets.get(number, 0) < offset:
                raise TableError(
                    f"table {self.definition.name!r} was set back while it was written: its partition {number} is at "
                    f"offset {marks.offsets.get(number, 0)}, and was at {offset}. A new run goes on from there"
                )

    def _intake(self, state: State, marks: Marks, dead_marks: Marks) -> IngestTask:
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

    def _marks(self, state: State) -> Marks:
        assert state.marks is not None, "a table that was opened has marks"
        return state.marks

    def _discard(self, reports: Sequence[Report]) -> None:
        """Delete what tasks wrote for columns that were not enough."""
        for store, files in (
            (self.rows, [file.path for report in reports for file in report.files]),
            (self.dead_letters, [file.path for report in reports for file in report.dead_files]),
        ):
            delete_files(file_io(store.layout()), files)


def source_options(definition: Definition) -> Mapping[str, str]:
    """The options of the query's source that do not depend on where the table is."""
    return {
        # Each table has connections of its own: its batches run in a thread of their own.
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
        found = parse_properties(Path(definition.client_file).read_bytes())
    except OSError as error:
        way = f"`ottla table alter {definition.name} --command-config FILE` says where its settings are now"
        raise TableError(f"{definition.client_file} cannot be read: {error.strerror}; {way}") from error
    except InvalidProperties as error:
        raise TableError(f"{definition.client_file}: {error}") from error
    return {name: each.value for name, each in found.items()}


def _overlaps(file: StoredFile, least: Any, greatest: Any) -> bool:
    if file.least_key is None or file.greatest_key is None:
        return True
    return bool(file.least_key <= greatest and least <= file.greatest_key)
