"""Delta tables, by delta-rs (the `deltalake` wheel). Marks are in each commit's metadata, and the next offset of each
partition is a transaction of the log, as Delta has them for streams.

The folder is one of a file system that the driver and all tasks share.
"""

import json
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from ottla.spark.tables.failures import TableError
from ottla.spark.tables.hive import HiveFiles, extra_fields, hive_layout, key_bounds
from ottla.spark.tables.marks import Marks, from_properties
from ottla.spark.tables.partitioning import Partition
from ottla.spark.tables.record_columns import KEY
from ottla.spark.tables.store import (
    Conflict,
    Expired,
    FileReader,
    Layout,
    NewFile,
    State,
    Store,
    StoredFile,
    Widening,
    canonical_schema,
)

_PARTITIONS: Final = "ottla.partitions"
_HISTORY: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaStore(Store):
    """One folder with its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.location = str(folder)
        self._loaded: DeltaTable | None = None

    @property
    def table(self) -> DeltaTable:
        """As it was when it was looked at last."""
        if self._loaded is None:
            self._loaded = DeltaTable(self.location)
        return self._loaded

    def exists(self) -> bool:
        return DeltaTable.is_deltatable(self.location)

    def create(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        columns = pa.schema([*schema, *extra_fields(schema, partitions)])
        self._loaded = DeltaTable.create(
            self.location,
            Schema.from_arrow(columns),
            partition_by=[each.name for each in partitions],
            # A transform is ours: Delta knows only the column that it makes.
            configuration={
                "delta.logRetentionDuration": "interval 1 days",
                "delta.deletedFileRetentionDuration": "interval 1 hours",
            },
            description=json.dumps({_PARTITIONS: partitions}),
        )

    def state(self) -> State:
        self._loaded = DeltaTable(self.location)
        return State(self._loaded.version(), self._schema, self._marks())

    def _marks(self) -> Marks | None:
        """Those of the last commit that has any: others may have committed since."""
        for commit in self.table.history(_HISTORY):
            found = from_properties(commit)
            if found is not None:
                return found
        if self.table.version() < _HISTORY and self.table.history()[-1]["operation"].startswith("CREATE"):
            return None
        raise TableError(
            f"table at {self.location}: no commit is left that says how far it has come. Drop the table and create it "
            "again"
        )

    def files(self) -> list[StoredFile]:
        names = [each.name for each in self._partitions]
        actions = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        return [
            StoredFile(
                path=str(self._folder / unquote(each["path"])),
                size_bytes=each["size_bytes"],
                rows=each["num_records"],
                partition=tuple(
                    _internal(partition, each[f"partition.{name}"])
                    for partition, name in zip(self._partitions, names, strict=True)
                ),
                least_key=each.get(f"min.{KEY}"),
                greatest_key=each.get(f"max.{KEY}"),
                handle=(unquote(each["path"]), {name: _text(each[f"partition.{name}"]) for name in names}),
            )
            for each in actions
        ]

    def layout(self) -> Layout:
        return hive_layout(self.location, self._schema, self._partitions)

    def reader(self) -> FileReader:
        return HiveFiles(self._schema, self._partitions)

    def add_columns(self, schema: pa.Schema) -> None:
        while True:
            base = self.state()
            known = {field.name: field.type for field in base.schema}
            changed = [field for field in schema if known.get(field.name) != field.type]
            fields = Schema.from_arrow(pa.schema(changed)).fields
            try:
                self.table.alter.add_columns(fields, commit_properties=_properties(base.marks))
                return
            except CommitFailedError:
                continue

    def widen(self, schema: pa.Schema) -> Widening:
        return Widening(schema, hive_layout(self.location, schema, self._partitions))

    def commit_once(
        self,
        base: State,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile],
        widening: Widening | None,
    ) -> None:
        if self.table.version() != base.version:
            raise Conflict
        adds = [self._add(file) for file in added]
        if widening is not None:
            self._write(adds, "overwrite", widening.schema, marks)
            return
        now_ms = time.time_ns() // 1_000_000
        # Paths are escaped in the log, and not here.
        removes = [RemoveAction(file.handle[0], True, now_ms, file.size_bytes, file.handle[1]) for file in removed]
        self._write([*adds, *removes], "append", base.schema, marks)

    def expire(self, keep: int, older_than_s: float) -> Expired:
        table = DeltaTable(self.location)
        before = self.snapshots()
        hours = int(older_than_s // 3600)
        gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()
        return Expired(before - self.snapshots(), len(gone))

    def every_file(self) -> set[str]:
        """Those of the last state, and all that the log that is left speaks of."""
        self.state()
        found = {file.path for file in self.files()}
        for path in (self._folder / "_delta_log").glob("*.json"):
            for line in path.read_text().splitlines():
                action = json.loads(line)
                named = action.get("add") or action.get("remove")
                if named:
                    found.add(str(self._folder / unquote(named["path"])))
        return found

    def snapshots(self) -> int:
        return len(list((self._folder / "_delta_log").glob("*.json")))

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, actions: Sequence[AddAction | RemoveAction], mode: str, schema: pa.Schema, marks: Marks) -> None:
        columns = pa.schema([*schema, *extra_fields(schema, self._partitions)])
        try:
            self.table.create_write_transaction(
                list(actions),
                mode,
                Schema.from_arrow(columns),
                [each.name for each in self._partitions],
                commit_properties=_properties(marks),
            )
        except CommitFailedError:
            raise Conflict from None

    def _add(self, file: NewFile) -> AddAction:
        values = dict(zip((each.name for each in self._partitions), self._shown(file), strict=True))
        least, greatest = key_bounds(file)
        statistics: dict[str, Any] = {"numRecords": file.rows}
        if isinstance(least, str):
            statistics |= {"minValues": {KEY: least}, "maxValues": {KEY: greatest}}
        return AddAction(
            path=str(Path(file.path).relative_to(self._folder)),
            size=file.size_bytes,
            partition_values={name: _text(value) for name, value in values.items()},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps(statistics),
        )

    def _shown(self, file: NewFile) -> list[Any]:
        return [each.shown(value) for each, value in zip(self._partitions, file.partition, strict=True)]

    @property
    def _partitions(self) -> tuple[Partition, ...]:
        said = json.loads(self.table.metadata().description)
        return tuple(Partition(*each) for each in said[_PARTITIONS])

    @property
    def _schema(self) -> pa.Schema:
        extra = {each.name for each in self._partitions if each.transform != "identity"}
        found = pa.schema(self.table.schema().to_arrow())
        return canonical_schema(pa.schema([field for field in found if field.name not in extra]))


def _properties(marks: Marks | None) -> CommitProperties:
    if marks is None:
        return CommitProperties(max_commit_retries=0)
    stream = f"ottla/{marks.cluster}/{marks.topic_id}"
    transactions = [Transaction(f"{stream}/{number}", offset) for number, offset in sorted(marks.offsets.items())]
    # A commit that lost a race is looked at again here: delta-rs would add the same rows behind another run's.
    return CommitProperties(marks.to_properties(), max_commit_retries=0, app_transactions=transactions)


def _text(value: Any) -> str | None:
    """A partition's value as Delta's log has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode("latin-1")
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case _:
            return str(value)


def _internal(partition: Partition, value: Any) -> Any:
    """A value of the partition's column as it is here: the other way round than `Partition.shown`."""
    if value is None:
        return None
    match partition.transform:
        case "year":
            return value - 1970
        case "month":
            year, month = value.split("-")
            return (int(year) - 1970) * 12 + int(month) - 1
        case "day":
            return (value - _EPOCH.date()).days
        case "hour":
            moment = datetime.strptime(value, "%Y-%m-%d-%H").replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(hours=1)
        case _:
            return value
