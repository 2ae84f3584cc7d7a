"""Plain Parquet tables: a folder of files, and a log that says which of them belong to the table.

    data/…/*.parquet                        the files, in folders named as in Hive
    _log/00000000000000000042.json          a state of the table: columns, files and marks
    _symlink_format_manifest/manifest       the files of the last state, one per line, for Hive, Trino and Athena

A state is complete: the log file with the highest number describes the whole table. It is written under a temporary
name and then linked to its own name. Linking fails if the name exists, so only one of two concurrent writers succeeds.
The manifest is replaced by a rename afterwards. Readers that list the folder instead also see files that are about to
be added or deleted.

The driver and all tasks must share the file system of the folder.
"""

import base64
import json
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ottla.spark.tables.hive import HiveFileReader, extra_fields, hive_layout, key_bounds
from ottla.spark.tables.marks import Marks, from_properties
from ottla.spark.tables.partitioning import Partition
from ottla.spark.tables.store import (
    Conflict,
    Expired,
    FileReader,
    Layout,
    NewFile,
    Store,
    StoredFile,
    TableState,
    Widening,
)

_LOG: Final = "_log"
_MANIFEST: Final = "_symlink_format_manifest"


class ParquetStore(Store):
    """A table in a folder of Parquet files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.location = str(folder)
        self._loaded: dict[str, Any] = {}

    def exists(self) -> bool:
        return any((self._folder / _LOG).glob("*.json"))

    def create(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None:
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        self._loaded = {"partitions": [list(partition) for partition in partitions]}
        self._write_state(0, schema, None, [])

    def state(self) -> TableState:
        newest = self._versions()[-1]
        self._loaded = json.loads(self._path(newest).read_text())
        self._write_manifest()
        return TableState(newest, self._schema, from_properties(self._loaded["marks"] or {}))

    def files(self) -> list[StoredFile]:
        return [
            StoredFile(
                path=str(self._folder / entry["path"]),
                size_bytes=entry["size"],
                rows=entry["rows"],
                partition=tuple(map(_load_value, entry["partition"])),
                least_key=_load_value(entry["least_key"]),
                greatest_key=_load_value(entry["greatest_key"]),
                handle=entry,
            )
            for entry in self._loaded["files"]
        ]

    def layout(self) -> Layout:
        return self._layout_of(self._schema)

    def reader(self) -> FileReader:
        return HiveFileReader(self._schema, self._partitions)

    def add_columns(self, schema: pa.Schema) -> None:
        while True:
            newest = self.state()
            try:
                return self._write_state(newest.version + 1, schema, newest.marks, self._loaded["files"])
            except Conflict:
                continue

    def widen(self, schema: pa.Schema) -> Widening:
        return Widening(schema, self._layout_of(schema))

    def commit_once(
        self,
        base: TableState,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile],
        widening: Widening | None,
    ) -> None:
        removed_paths = {file.path for file in removed}
        kept = [file.handle for file in self.files() if file.path not in removed_paths]
        schema = widening.schema if widening else base.schema
        self._write_state(base.version + 1, schema, marks, [*kept, *map(self._entry, added)])
        self._loaded = json.loads(self._path(base.version + 1).read_text())
        self._write_manifest()

    def expire(self, keep: int, older_than_s: float) -> Expired:
        versions = self._versions()
        limit_s = time.time() - older_than_s
        old = [version for version in versions[: len(versions) - keep] if self._path(version).stat().st_mtime < limit_s]
        garbage = {path for version in old for path in self._paths(version)}
        garbage -= {path for version in versions if version not in old for path in self._paths(version)}
        for version in old:
            self._path(version).unlink()
        for path in garbage:
            Path(path).unlink(missing_ok=True)
        return Expired(len(old), len(garbage))

    def every_file(self) -> set[str]:
        return {path for version in self._versions() for path in self._paths(version)}

    def snapshots(self) -> int:
        return len(self._versions())

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._loaded["schema"])))

    @property
    def _partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(*fields) for fields in self._loaded["partitions"])

    def _layout_of(self, schema: pa.Schema) -> Layout:
        return hive_layout(str(self._folder / "data"), schema, self._partitions)

    def _versions(self) -> list[int]:
        return sorted(int(path.stem) for path in (self._folder / _LOG).glob("*.json"))

    def _path(self, version: int) -> Path:
        return self._folder / _LOG / f"{version:020d}.json"

    def _paths(self, version: int) -> set[str]:
        return {str(self._folder / entry["path"]) for entry in json.loads(self._path(version).read_text())["files"]}

    def _entry(self, file: NewFile) -> dict[str, Any]:
        least, greatest = key_bounds(file)
        return {
            "path": str(Path(file.path).relative_to(self._folder)),
            "size": file.size_bytes,
            "rows": file.rows,
            "partition": [_dump_value(value) for value in file.partition],
            "least_key": _dump_value(least),
            "greatest_key": _dump_value(greatest),
        }

    def _write_state(
        self, version: int, schema: pa.Schema, marks: Marks | None, files: Sequence[dict[str, Any]]
    ) -> None:
        columns = [*schema, *extra_fields(schema, self._partitions)]
        content = {
            "version": version,
            "columns": {field.name: str(field.type) for field in columns},
            "partitions": self._loaded["partitions"],
            "marks": marks.to_properties() if marks else None,
            "files": list(files),
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        }
        path = self._path(version)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{uuid.uuid4()}.draft")
        try:
            _write_durably(draft, json.dumps(content, indent=1))
            # Linking fails if the name exists, whereas a rename would replace another writer's state.
            os.link(draft, path)
        except FileExistsError:
            raise Conflict from None
        finally:
            draft.unlink(missing_ok=True)

    def _write_manifest(self) -> None:
        path = self._folder / _MANIFEST / "manifest"
        text = "".join(f"file://{self._folder / entry['path']}\n" for entry in self._loaded["files"])
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{uuid.uuid4()}.draft")
        _write_durably(draft, text)
        draft.replace(path)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _dump_value(value: Any) -> Any:
    match value:
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case datetime():
            return {"time": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case _:
            return value


def _load_value(value: Any) -> Any:
    match value:
        case {"bytes": text}:
            return base64.b64decode(text)
        case {"time": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case _:
            return value
