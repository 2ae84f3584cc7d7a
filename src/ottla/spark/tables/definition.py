"""What a table is to be, as its maker said it, and where that is kept: a folder with a file for each table.

definitions/orders.json    what was said
catalog.db, warehouse/     Iceberg's catalog and all tables' files, unless they are kept elsewhere
locks/                     so that one run at a time keeps a table
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

from ottla.spark.tables.declared import declared_fields
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
    """A table to be kept in step with a topic."""

    name: str
    topic: str
    servers: str
    format: str = "iceberg"
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    key: str = "string"
    values: str = "json"
    """What records hold: objects of JSON, whose fields become columns, or bytes, which stay one."""
    start: str = "earliest"
    location: str | None = None
    namespace: str = "default"
    catalog: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka's clients, such as isolation.level."""
    client_file: str | None = None
    """A properties file with more of them, read by each run: passwords are not kept here."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith(DEAD_LETTERS_SUFFIX):
            raise TableError(
                f"{self.name!r} cannot be the name of a table: letters, digits and underscores, a letter first, and "
                f"not {DEAD_LETTERS_SUFFIX} at the end"
            )
        for what, value, allowed in (
            ("format", self.format, FORMATS),
            ("mode", self.mode, MODES),
            ("key", self.key, tuple(KEY_TYPES)),
            ("values", self.values, VALUES),
            ("start", self.start, STARTS),
        ):
            if value not in allowed:
                raise TableError(f"table {self.name!r}: {what} {value!r} is none of {', '.join(allowed)}")
        if self.catalog and self.format != "iceberg":
            raise TableError(f"table {self.name!r}: a catalog is for Iceberg tables; this one is {self.format}")
        if self.columns and self.values == "bytes":
            raise TableError(f"table {self.name!r}: values that stay bytes have no columns to declare")
        _ = self.partitions

    @property
    def schema(self) -> pa.Schema:
        """The columns that the table has before any record was read."""
        own = [pa.field(VALUE, pa.binary())] if self.values == "bytes" else declared_fields(self.columns)
        return pa.schema([*record_fields(self.key), *own])

    @property
    def fixed(self) -> frozenset[str]:
        """Columns whose types were said, and stay."""
        return frozenset(self.columns)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return parse_partitions(self.partition_by, {each.name: each.type for each in self.schema})

    @property
    def dead_letters(self) -> str:
        return self.name + DEAD_LETTERS_SUFFIX


class TableHome:
    """The folder that tables are managed from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        if strange := re.findall(r"[%?#]", str(self.folder)):
            raise TableError(f"{self.folder}: tables cannot be kept in a folder with {strange[0]!r} in its name")

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def names(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "definitions").glob("*.json"))

    def load(self, name: str) -> Definition:
        """A definition; raises TableError if there is none."""
        try:
            given = json.loads(self._path(name).read_text())
        except FileNotFoundError:
            known = ", ".join(self.names())
            there = f"there are {known}" if known else "there are none yet"
            raise TableError(
                f"there is no table {name!r} in {self.folder} ({there}); `ottla table create` makes one, --home says "
                "where"
            ) from None
        except ValueError as error:
            raise TableError(f"{self._path(name)} cannot be read: {error}") from None
        return Definition(**{**given, "partition_by": tuple(given["partition_by"])})

    def check_new(self, definition: Definition) -> None:
        """Raise TableError if there is a table of this name."""
        if self._path(definition.name).exists():
            raise TableError(
                f"there is a table {definition.name!r} in {self.folder} already; `ottla table alter` changes it, "
                "`ottla table drop` takes it away"
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
        """Keep all others from this table; raises TableError if somebody has it."""
        path = self.folder / "locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                by = file.read().strip()
                raise TableError(
                    f"table {name!r} is in use by process {by or 'unknown'} on this machine; stop that run first"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def is_locked(self, name: str) -> bool:
        """Whether a run keeps the table now."""
        try:
            with self.lock(name):
                return False
        except TableError:
            return True

    def _path(self, name: str) -> Path:
        return self.folder / "definitions" / f"{name}.json"
