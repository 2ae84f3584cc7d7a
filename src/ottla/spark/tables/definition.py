"""Definitions of tables, and the home folder where they are stored.

definitions/orders.json    one definition
catalog.db, warehouse/     the Iceberg catalog and the tables' files, unless they are elsewhere
locks/                     allow one run per table at a time
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ottla.spark.tables.declared_columns import declared_fields
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.partitioning import Partition, parse_partitions
from ottla.spark.tables.record_columns import KEY_TYPES, VALUE, record_fields

FORMATS: Final = ("iceberg", "delta", "parquet")
MODES: Final = ("append", "upsert")
STARTS: Final = ("earliest", "latest")
VALUES: Final = ("json", "bytes")
DEAD_LETTERS_SUFFIX: Final = "_dead_letters"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True)
class Definition:
    """The definition of a table that follows a topic."""

    name: str
    topic: str
    servers: str
    format: str = "iceberg"
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    key: str = "string"
    values: str = "json"
    """The content of values: JSON objects, whose fields become columns, or bytes in a single column."""
    start: str = "earliest"
    location: str | None = None
    namespace: str = "default"
    catalog: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka's clients, such as isolation.level."""
    client_file: str | None = None
    """A properties file with more of these settings, which each run reads; so definitions have no passwords."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith(DEAD_LETTERS_SUFFIX):
            raise TableError(
                f"{self.name!r} is not a valid table name: use letters, digits and underscores, start with a letter, "
                f"and do not end with {DEAD_LETTERS_SUFFIX}"
            )
        for what, value, allowed in (
            ("format", self.format, FORMATS),
            ("mode", self.mode, MODES),
            ("key", self.key, tuple(KEY_TYPES)),
            ("values", self.values, VALUES),
            ("start", self.start, STARTS),
        ):
            if value not in allowed:
                raise TableError(
                    f"table {self.name!r}: {what} {value!r} is not allowed; use one of {', '.join(allowed)}"
                )
        if self.catalog and self.format != "iceberg":
            raise TableError(
                f"table {self.name!r}: only Iceberg tables have a catalog, and its format is {self.format}; remove "
                "the catalog, or use the format iceberg"
            )
        if self.columns and self.values == "bytes":
            raise TableError(
                f"table {self.name!r}: values stored as bytes have no columns to declare; remove the columns, or use "
                "json values"
            )
        _ = self.partitions

    @property
    def schema(self) -> pa.Schema:
        """The columns of the new table, before any record is read."""
        own = [pa.field(VALUE, pa.binary())] if self.values == "bytes" else declared_fields(self.columns)
        return pa.schema([*record_fields(self.key), *own])

    @property
    def fixed(self) -> frozenset[str]:
        """The declared columns, whose types never change."""
        return frozenset(self.columns)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return parse_partitions(self.partition_by, {column.name: column.type for column in self.schema})

    @property
    def dead_letters(self) -> str:
        return self.name + DEAD_LETTERS_SUFFIX


class TableHome:
    """The home folder of managed tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        if special := re.findall(r"[%?#]", str(self.folder)):
            raise TableError(
                f"{self.folder} cannot be the home of tables: its path has {special[0]!r}, which URLs treat specially; "
                "choose another folder by --home"
            )

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def names(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "definitions").glob("*.json"))

    def load(self, name: str) -> Definition:
        """Return a definition; raise TableError if it does not exist."""
        try:
            stored = json.loads(self._path(name).read_text())
        except FileNotFoundError:
            names = ", ".join(self.names())
            existing = f"its tables are {names}" if names else "it has no tables"
            raise TableError(
                f"there is no table {name!r} in {self.folder} ({existing}); create it by `ottla table create`, or name "
                "another home by --home"
            ) from None
        except ValueError as error:
            raise TableError(f"{self._path(name)} cannot be read: {error}") from None
        return Definition(**{**stored, "partition_by": tuple(stored["partition_by"])})

    def check_new(self, definition: Definition) -> None:
        """Raise TableError if there is a table with this name."""
        if self._path(definition.name).exists():
            raise TableError(
                f"table {definition.name!r} already exists in {self.folder}; change it by `ottla table alter`, or "
                "remove it by `ottla table drop`"
            )

    def save(self, definition: Definition) -> None:
        path = self._path(definition.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(definition), indent=2) + "\n")
        draft.replace(path)

    def change(self, name: str, **changes: Any) -> Definition:
        changed = replace(self.load(name), **changes)
        self.save(changed)
        return changed

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lock a table against other runs on this machine; raise TableError if it is locked."""
        path = self.folder / "locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                process = file.read().strip()
                raise TableError(
                    f"table {name!r} is in use by process {process or 'unknown'} on this machine; stop that run first"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def is_locked(self, name: str) -> bool:
        """Whether a run has locked the table."""
        try:
            with self.lock(name):
                return False
        except TableError:
            return True

    def _path(self, name: str) -> Path:
        return self.folder / "definitions" / f"{name}.json"
