"""Delta tables, by delta-rs (the `deltalake` wheel).

Each commit's metadata has the table's marks. The next offset of each partition is also a `txn` action of the log, as
Delta defines it for streams.

The driver and all tasks must share the file system of the table's folder.
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
from ottla.spark.tables.hive import HiveFileReader, extra_fields, hive_layout, key_bounds
from ottla.spark.tables.marks import Marks, from_properties
from ottla.spark.tables.partitioning import Partition
from ottla.spark.tables.record_columns import KEY
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
    canonical_schema,
)

_PARTITIONS: Final = "ottla.partitions"
_HISTORY: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaStore(Store):
    """A table in a folder with a Delta log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.location = str(folder)
        self._loaded: DeltaTable | None = None

    @property
    def table(self) -> DeltaTable:
        """The table as of the last call of `state`."""
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
            partition_by=[partition.name for partition in partitions],
            # Delta has no transforms, only the columns that they produce, so the description stores the transforms.
            configuration={
                "delta.logRetentionDuration": "interval 1 days",
                "delta.deletedFileRetentionDuration": "interval 1 hours",
            },
            description=json.dumps({_PARTITIONS: partitions}),
        )

    def state(self) -> TableState:
        self._loaded = DeltaTable(self.location)
        return TableState(self._loaded.version(), self._schema, self._marks())

    def _marks(self) -> Marks | None:
        """Return the marks of the last commit that has any: other programs may have committed since."""
        for commit in self.table.history(_HISTORY):
            marks = from_properties(commit)
            if marks is not None:
                return marks
        if self.table.version() < _HISTORY and self.table.history()[-1]["operation"].startswith("CREATE"):
            return None
        raise TableError(
            f"table at {self.location}: its offsets are unknown, because no commit in its log has them. "
            "Drop the table and create it again"
        )

    def files(self) -> list[StoredFile]:
        names = [partition.name for partition in self._partitions]
        actions = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        return [
            StoredFile(
                path=str(self._folder / unquote(action["path"])),
                size_bytes=action["size_bytes"],
                rows=action["num_records"],
                partition=tuple(
                    _from_column_value(partition, action[f"partition.{name}"])
                    for partition, name in zip(self._partitions, names, strict=True)
                ),
                least_key=action.get(f"min.{KEY}"),
                greatest_key=action.get(f"max.{KEY}"),
                handle=(unquote(action["path"]), {name: _format_value(action[f"partition.{name}"]) for name in names}),
            )
            for action in actions
        ]

    def layout(self) -> Layout:
        return hive_layout(self.location, self._schema, self._partitions)

    def reader(self) -> FileReader:
        return HiveFileReader(self._schema, self._partitions)

    def add_columns(self, schema: pa.Schema) -> None:
        while True:
            base = self.state()
            types = {field.name: field.type for field in base.schema}
            changed = [field for field in schema if types.get(field.name) != field.type]
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
        base: TableState,
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
        # delta-rs escapes the paths itself.
        removes = [RemoveAction(file.handle[0], True, now_ms, file.size_bytes, file.handle[1]) for file in removed]
        self._write([*adds, *removes], "append", base.schema, marks)

    def expire(self, keep: int, older_than_s: float) -> Expired:
        table = DeltaTable(self.location)
        before = self.snapshots()
        hours = int(older_than_s // 3600)
        deleted = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()
        return Expired(before - self.snapshots(), len(deleted))

    def every_file(self) -> set[str]:
        """Return the files of the current state, and all files that the remaining log names."""
        self.state()
        paths = {file.path for file in self.files()}
        for log_file in (self._folder / "_delta_log").glob("*.json"):
            for line in log_file.read_text().splitlines():
                action = json.loads(line)
                file_action = action.get("add") or action.get("remove")
                if file_action:
                    paths.add(str(self._folder / unquote(file_action["path"])))
        return paths

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
                [partition.name for partition in self._partitions],
                commit_properties=_properties(marks),
            )
        except CommitFailedError:
            raise Conflict from None

    def _add(self, file: NewFile) -> AddAction:
        names = (partition.name for partition in self._partitions)
        values = dict(zip(names, self._column_values(file), strict=True))
        least, greatest = key_bounds(file)
        statistics: dict[str, Any] = {"numRecords": file.rows}
        if isinstance(least, str):
            statistics |= {"minValues": {KEY: least}, "maxValues": {KEY: greatest}}
        return AddAction(
            path=str(Path(file.path).relative_to(self._folder)),
            size=file.size_bytes,
            partition_values={name: _format_value(value) for name, value in values.items()},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps(statistics),
        )

    def _column_values(self, file: NewFile) -> list[Any]:
        pairs = zip(self._partitions, file.partition, strict=True)
        return [partition.to_column_value(value) for partition, value in pairs]

    @property
    def _partitions(self) -> tuple[Partition, ...]:
        description = json.loads(self.table.metadata().description)
        return tuple(Partition(*fields) for fields in description[_PARTITIONS])

    @property
    def _schema(self) -> pa.Schema:
        extra = {partition.name for partition in self._partitions if partition.transform != "identity"}
        schema = pa.schema(self.table.schema().to_arrow())
        return canonical_schema(pa.schema([field for field in schema if field.name not in extra]))


def _properties(marks: Marks | None) -> CommitProperties:
    if marks is None:
        return CommitProperties(max_commit_retries=0)
    stream = f"ottla/{marks.cluster}/{marks.topic_id}"
    transactions = [Transaction(f"{stream}/{number}", offset) for number, offset in sorted(marks.offsets.items())]
    # No retries: after a conflict delta-rs would append the same rows after another run's. `Store.commit` decides.
    return CommitProperties(marks.to_properties(), max_commit_retries=0, app_transactions=transactions)


def _format_value(value: Any) -> str | None:
    """Format a partition's value for Delta's log."""
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


def _from_column_value(partition: Partition, value: Any) -> Any:
    """Return the transform's value for a value of its column; the inverse of `Partition.to_column_value`."""
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
            hour = datetime.strptime(value, "%Y-%m-%d-%H").replace(tzinfo=UTC)
            return (hour - _EPOCH) // timedelta(hours=1)
        case _:
            return value
