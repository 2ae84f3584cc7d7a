"""The interface of table formats: a commit adds and removes files, and stores the marks of the table.

A commit applies to the state that it was computed from. If another program has committed since, the commit is retried
on the new state, provided that its marks are the same and it still has the files to remove. If the marks are the same
but the files or columns are not, such as after a compaction, the batch must be computed again (`TransientTableError`).
If the marks differ, another run has done the work, and this run ends (`ConcurrentRunError`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.spark.tables.failures import ConcurrentRunError, TransientTableError
from ottla.spark.tables.marks import Marks
from ottla.spark.tables.partitioning import Partition

_ATTEMPTS = 5


class Conflict(Exception):
    """The table has changed since the state that a commit was computed from."""


class TableState(NamedTuple):
    """A version of a table."""

    version: int
    schema: pa.Schema
    marks: Marks | None
    """None before the first commit from a topic."""


class NewFile(NamedTuple):
    """A data file that a task has written and no commit names yet."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    footer: bytes
    """The Parquet metadata, which has the statistics."""


class StoredFile(NamedTuple):
    """A data file of a table."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    least_key: Any
    greatest_key: Any
    """The bounds of the file's keys; both None if unknown."""
    handle: Any
    """The format's own description of the file."""


class Layout(NamedTuple):
    """Where and how tasks write files."""

    folder: str
    schema: pa.Schema
    partitions: tuple[Partition, ...]
    left_out: frozenset[str]
    """Columns that are not in the files, because the folders' names have their values."""
    settings: tuple[tuple[str, str], ...] = ()
    """The settings of the folder's file system."""


class FileReader(ABC):
    """Reads stored files as rows of the table's columns. Tasks receive it pickled."""

    @abstractmethod
    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table: ...


class Widening(NamedTuple):
    """A prepared change of column types. Files are written with its layout and committed with it."""

    schema: pa.Schema
    layout: Layout
    handle: Any = None


class Expired(NamedTuple):
    """The number of snapshots that expired, and of files that were deleted with them."""

    snapshots: int
    files: int


class Store(ABC):
    """A table of one format."""

    location: str

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def create(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None: ...

    @abstractmethod
    def state(self) -> TableState:
        """Load the current state."""

    @abstractmethod
    def files(self) -> list[StoredFile]:
        """Return the files of the state that `state` returned last."""

    @abstractmethod
    def layout(self) -> Layout: ...

    @abstractmethod
    def reader(self) -> FileReader: ...

    @abstractmethod
    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns and members of structs that are new in the schema."""

    @abstractmethod
    def widen(self, schema: pa.Schema) -> Widening:
        """Prepare a change of column types."""

    @abstractmethod
    def commit_once(
        self,
        base: TableState,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile],
        widening: Widening | None,
    ) -> None:
        """Commit on this state; raise Conflict if it is no longer the current one."""

    @abstractmethod
    def expire(self, keep: int, older_than_s: float) -> Expired:
        """Expire old snapshots, but keep the last `keep` and all younger ones; delete files that no snapshot needs."""

    @abstractmethod
    def drop(self) -> None:
        """Delete the table and all its files."""

    @abstractmethod
    def every_file(self) -> set[str]:
        """Return the paths of all files that a snapshot of the table needs."""

    @abstractmethod
    def snapshots(self) -> int: ...

    def commit(
        self,
        base: TableState,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile] = (),
        widening: Widening | None = None,
    ) -> None:
        """Add and remove files, and store the marks."""
        for _ in range(_ATTEMPTS):
            try:
                return self.commit_once(base, marks, added, removed, widening)
            except Conflict:
                now = self.state()
                current = {file.path: file for file in self.files()}
                if now.marks == base.marks and (
                    widening or now.schema != base.schema or any(file.path not in current for file in removed)
                ):
                    raise TransientTableError(
                        f"table at {self.location}: another program changed its files or columns during the batch; "
                        "nothing was committed, and the next attempt writes the batch again"
                    ) from None
                if now.marks != base.marks:
                    raise ConcurrentRunError(
                        f"table at {self.location}: another run committed to it, up to offsets "
                        f"{json.dumps(now.marks and now.marks.offsets)}. Nothing was written twice. Stop one of the "
                        "runs: only one run at a time can write to a table"
                    ) from None
                base, removed = now, [current[file.path] for file in removed]
        raise ConcurrentRunError(
            f"table at {self.location}: {_ATTEMPTS} attempts to commit failed, because other programs commit to it at "
            "the same time. Stop them, then run again"
        )


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Return the form of a type that tables use: each format's library has its own."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", canonical_type(kind.value_type)))
    return kind


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, canonical_type(field.type)) for field in schema])


def conform(array: Any, kind: pa.DataType) -> Any:
    """Convert an array to a type: missing members become null, and numbers are widened."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([conform(chunk, kind) for chunk in array.chunks], kind)
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = {field.name for field in array.type}
        members = [
            conform(array.field(field.name), field.type) if field.name in names else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind) and array.type != kind:
        plain = array.cast(pa.list_(array.type.value_type))
        items = conform(plain.values, kind.value_type)
        return pa.ListArray.from_arrays(plain.offsets, items, kind, mask=plain.is_null())
    return array.cast(kind)


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of the schema; missing columns become null."""
    names = set(table.column_names)
    columns = [
        conform(table.column(f.name), f.type) if f.name in names else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)
