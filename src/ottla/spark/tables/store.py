"""What a format must be able to do: files come and go in one commit, which says how far the table has come.

A commit is made on the state that it was worked out from. Where somebody else has committed meanwhile, it is made again
on what is there now, if that says the same of how far the table has come and still has the files that are to go. If
only the files are others (somebody has compacted them), the batch has to be worked out again (`TransientTableError`);
if the table has come further, another run has done this one's work, and this one ends (`Overtaken`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.spark.tables.failures import Overtaken, TransientTableError
from ottla.spark.tables.marks import Marks
from ottla.spark.tables.partitioning import Partition

_ATTEMPTS = 5


class Conflict(Exception):
    """The table is not in the state any more that a commit was made on."""


class State(NamedTuple):
    """A table at one moment."""

    version: int
    schema: pa.Schema
    marks: Marks | None
    """None if nothing was ever committed from a topic."""


class NewFile(NamedTuple):
    """A data file that a task has written, and nobody reads yet."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    footer: bytes
    """Its Parquet metadata: what statistics are taken from."""


class StoredFile(NamedTuple):
    """A data file of a table."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    least_key: Any
    greatest_key: Any
    """Bounds of the keys in it; both None if they are not known."""
    handle: Any
    """What the format itself has to say of it."""


class Layout(NamedTuple):
    """All that a task must know to write files."""

    folder: str
    schema: pa.Schema
    partitions: tuple[Partition, ...]
    left_out: frozenset[str]
    """Columns whose values are in the folders' names alone."""
    settings: tuple[tuple[str, str], ...] = ()
    """How the folder is reached."""


class FileReader(ABC):
    """Reads stored files as rows of the table's columns; goes to tasks."""

    @abstractmethod
    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table: ...


class Widening(NamedTuple):
    """A change of columns' types, prepared: files are written to its layout, and committed with it."""

    schema: pa.Schema
    layout: Layout
    handle: Any = None


class Expired(NamedTuple):
    """What an expiry took away."""

    snapshots: int
    files: int


class Store(ABC):
    """One table of one format."""

    location: str

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def create(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None: ...

    @abstractmethod
    def state(self) -> State: ...

    @abstractmethod
    def files(self) -> list[StoredFile]:
        """The files of the last state that was looked at."""

    @abstractmethod
    def layout(self) -> Layout: ...

    @abstractmethod
    def reader(self) -> FileReader: ...

    @abstractmethod
    def add_columns(self, schema: pa.Schema) -> None:
        """Take on columns, and members of structs, that are new in the schema."""

    @abstractmethod
    def widen(self, schema: pa.Schema) -> Widening:
        """Prepare columns of other types."""

    @abstractmethod
    def commit_once(
        self,
        base: State,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile],
        widening: Widening | None,
    ) -> None:
        """Commit on this very state; raises Conflict if it is not the last any more."""

    @abstractmethod
    def expire(self, keep: int, older_than_s: float) -> Expired:
        """Forget all states but so many, and those that are younger; delete the files that are only theirs."""

    @abstractmethod
    def drop(self) -> None:
        """The table and all its files."""

    @abstractmethod
    def every_file(self) -> set[str]:
        """The paths of all files that any state of the table still needs."""

    @abstractmethod
    def snapshots(self) -> int: ...

    def commit(
        self,
        base: State,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile] = (),
        widening: Widening | None = None,
    ) -> None:
        """Files come and go, and the table has come as far as the marks say."""
        for _ in range(_ATTEMPTS):
            try:
                return self.commit_once(base, marks, added, removed, widening)
            except Conflict:
                now = self.state()
                there = {file.path: file for file in self.files()}
                if now.marks == base.marks and (
                    widening or now.schema != base.schema or any(file.path not in there for file in removed)
                ):
                    raise TransientTableError(
                        f"table at {self.location}: another program has changed its files or columns meanwhile, though "
                        "not its rows; the batch is to be worked out again"
                    ) from None
                if now.marks != base.marks:
                    raise Overtaken(
                        f"table at {self.location}: another run committed to it meanwhile, up to "
                        f"{json.dumps(now.marks and now.marks.offsets)}; nothing was written twice. Only one run can "
                        "keep a table in step"
                    ) from None
                base, removed = now, [there[file.path] for file in removed]
        raise Overtaken(f"table at {self.location}: others commit to it all the time; is another run at work?")


def canonical(kind: pa.DataType) -> pa.DataType:
    """A type in the one form that is used here, from whatever form a format's library gives it in."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, canonical(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", canonical(kind.value_type)))
    return kind


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, canonical(field.type)) for field in schema])


def conformed(array: Any, kind: pa.DataType) -> Any:
    """An array as this type: members that it has not are null, and numbers as wide as need be."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([conformed(chunk, kind) for chunk in array.chunks], kind)
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = {field.name for field in array.type}
        members = [
            conformed(array.field(each.name), each.type) if each.name in names else pa.nulls(len(array), each.type)
            for each in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind) and array.type != kind:
        plain = array.cast(pa.list_(array.type.value_type))
        items = conformed(plain.values, kind.value_type)
        return pa.ListArray.from_arrays(plain.offsets, items, kind, mask=plain.is_null())
    return array.cast(kind)


def conformed_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the columns of the schema, null where it has none."""
    names = set(table.column_names)
    columns = [
        conformed(table.column(f.name), f.type) if f.name in names else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)
