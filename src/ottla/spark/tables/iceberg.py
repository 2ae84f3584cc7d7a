"""Iceberg tables, by PyIceberg, in any of its catalogs.

Each snapshot's summary has the table's marks, so a table that is rolled back to an earlier snapshot continues from
there.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _pyarrow_to_schema_without_ids,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from ottla.spark.tables.evolution import needs_rewrite
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.files import delete_files, read_footer
from ottla.spark.tables.marks import Marks, from_properties
from ottla.spark.tables.partitioning import Partition, parse_partitions
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
    conform_table,
)

_NO_SNAPSHOT: Final = -1
_PROPERTIES: Final = {
    "format-version": "2",
    # No retries: after a conflict PyIceberg would append the same rows after another run's. `Store.commit` decides.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergStore(Store):
    """A table in an Iceberg catalog."""

    def __init__(self, catalog: Mapping[str, str], namespace: str, name: str) -> None:
        self._properties = dict(catalog)
        self._namespace = namespace
        self._identifier = (namespace, name)
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self.location = ".".join(self._identifier)

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            try:
                properties = {"name": "ottla", **self._properties}
                self._catalog = load_catalog(properties.pop("name"), **properties)
            except Exception as error:  # each catalog's library has its own errors
                raise TableError(f"cannot open the Iceberg catalog: {error}; check --catalog") from error
        return self._catalog

    @property
    def table(self) -> Table:
        """The table as of the last call of `state`."""
        if self._table is None:
            self._table = self.catalog.load_table(self._identifier)
        return self._table

    def exists(self) -> bool:
        return self.catalog.table_exists(self._identifier)

    def create(self, schema: pa.Schema, partitions: tuple[Partition, ...]) -> None:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(self._namespace)
        columns = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
        spec = PartitionSpec(
            *(
                PartitionField(columns.find_field(part.column).field_id, 1000 + number, _transform(part), part.name)
                for number, part in enumerate(partitions)
            )
        )
        self._table = self.catalog.create_table(self._identifier, columns, partition_spec=spec, properties=_PROPERTIES)

    def state(self) -> TableState:
        self._table = self.catalog.load_table(self._identifier)
        snapshot = self._table.current_snapshot()
        version = _NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id
        return TableState(version, _columns(self._table.schema()), self._marks(snapshot))

    def _marks(self, snapshot: Snapshot | None) -> Marks | None:
        """Return the marks of the last snapshot that has any: another program may have committed since."""
        while snapshot is not None:
            marks = from_properties(snapshot.summary.additional_properties if snapshot.summary else {})
            if marks is not None:
                return marks
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.snapshot_by_id(parent)
            if snapshot is None and parent is not None:
                raise TableError(
                    f"table {self.location}: its offsets are unknown, because another program expired all snapshots "
                    "that have them. Drop the table and create it again"
                )
        return None

    def files(self) -> list[StoredFile]:
        return [_stored(self.table, task) for task in self.table.scan().plan_files()]

    def layout(self) -> Layout:
        return self._layout_of(self.table.metadata)

    def _layout_of(self, metadata: TableMetadata) -> Layout:
        schema = metadata.schema()
        return Layout(
            folder=f"{metadata.location}/data",
            schema=schema_to_pyarrow(schema, include_field_ids=True),
            partitions=_partitions(metadata),
            left_out=frozenset(),
            settings=tuple(self.table.io.properties.items()),
        )

    def reader(self) -> FileReader:
        return IcebergFileReader(self.table.metadata.model_dump_json(), dict(self.table.io.properties))

    def add_columns(self, schema: pa.Schema) -> None:
        with self.table.update_schema() as update:
            update.union_by_name(_pyarrow_to_schema_without_ids(schema))

    def widen(self, schema: pa.Schema) -> Widening:
        """Prepare columns of other types. Each one becomes a new column id with the same name.

        Iceberg cannot promote integers to doubles, so the column is replaced, and its files are rewritten in the same
        commit.
        """
        transaction = self.table.transaction()
        types = {field.name: field.type for field in _columns(self.table.schema())}
        changed = [field for field in schema if field.name in types and needs_rewrite(types[field.name], field.type)]
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in changed:
                update.delete_column((field.name,))
        with transaction.update_schema() as update:
            update.union_by_name(_pyarrow_to_schema_without_ids(schema))
        return Widening(
            _columns(transaction.table_metadata.schema()), self._layout_of(transaction.table_metadata), transaction
        )

    def commit_once(
        self,
        base: TableState,
        marks: Marks,
        added: Sequence[NewFile],
        removed: Sequence[StoredFile],
        widening: Widening | None,
    ) -> None:
        transaction: Transaction = widening.handle if widening else self.table.transaction()
        current = self.table.current_snapshot()
        if (_NO_SNAPSHOT if current is None else current.snapshot_id) != base.version:
            raise Conflict
        update = transaction.update_snapshot(snapshot_properties=marks.to_properties())
        with update.overwrite() if removed else update.merge_append() as producer:
            for file in added:
                producer.append_data_file(_data_file(transaction.table_metadata, file))
            for old in removed:
                producer.delete_data_file(old.handle.file)
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            raise Conflict from None

    def expire(self, keep: int, older_than_s: float) -> Expired:
        self.state()
        latest_ms = (time.time() - older_than_s) * 1000
        snapshots = sorted(self.table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
        protected = {ref.snapshot_id for ref in self.table.metadata.refs.values()}
        old = [
            snapshot
            for snapshot in snapshots[: len(snapshots) - keep]
            if snapshot.timestamp_ms < latest_ms and snapshot.snapshot_id not in protected
        ]
        if not old:
            return Expired(0, 0)
        expiring, manifests = set(old), _Manifests(self.table)
        needed = {path for kept in snapshots if kept not in expiring for path in manifests.paths(kept)}
        garbage = {path for snapshot in old for path in manifests.paths(snapshot)} - needed
        self.table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
        return Expired(len(old), delete_files(self.table.io, garbage))

    def every_file(self) -> set[str]:
        self.state()
        manifests = _Manifests(self.table)
        return {path for snapshot in self.table.metadata.snapshots for path in manifests.paths(snapshot)}

    def snapshots(self) -> int:
        return len(self.table.metadata.snapshots)

    def drop(self) -> None:
        try:
            self.catalog.purge_table(self._identifier)
        except NoSuchTableError:
            return


class _Manifests:
    """Finds the files that snapshots need. Snapshots share most of their manifests, so each one is read once."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._read: dict[str, list[str]] = {}

    def paths(self, snapshot: Snapshot) -> set[str]:
        paths = {snapshot.manifest_list}
        for manifest in snapshot.manifests(self._io):
            path = manifest.manifest_path
            if path not in self._read:
                entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
                self._read[path] = [entry.data_file.file_path for entry in entries]
            paths |= {path, *self._read[path]}
        return paths


class ScannedFile:
    """A data file with the delete files that apply to it."""

    def __init__(self, task: FileScanTask) -> None:
        self.file = task.file
        self.deletes = task.delete_files

    def task(self) -> FileScanTask:
        return FileScanTask(self.file, delete_files=set(self.deletes))


class IcebergFileReader(FileReader):
    """Reads files by column id, without the rows that delete files remove."""

    def __init__(self, metadata: str, settings: dict[str, str]) -> None:
        self._metadata = metadata
        self._settings = settings

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        metadata = TableMetadataUtil.parse_raw(self._metadata)
        schema = metadata.schema()
        wanted = schema if columns is None else schema.select(*columns)
        file_io = load_file_io(self._settings, metadata.location)
        table = ArrowScan(metadata, file_io, wanted, AlwaysTrue()).to_table([file.handle.task()])
        return conform_table(table, _columns(wanted))


def _columns(schema: Schema) -> pa.Schema:
    return canonical_schema(schema_to_pyarrow(schema, include_field_ids=False))


def _transform(partition: Partition) -> Any:
    argument = "" if partition.argument is None else f"[{partition.argument}]"
    return parse_transform(f"{partition.transform}{argument}")


def _partitions(metadata: TableMetadata) -> tuple[Partition, ...]:
    schema = metadata.schema()
    types = {field.name: field.type for field in _columns(schema)}
    texts = []
    for field in metadata.spec().fields:
        name, _, argument = str(field.transform).rstrip("]").partition("[")
        column = schema.find_column_name(field.source_id)
        texts.append(f"{name}({argument + ', ' if argument else ''}{column})")
    return parse_partitions(texts, types)


def _data_file(metadata: TableMetadata, file: NewFile) -> DataFile:
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        read_footer(file), compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _stored(table: Table, task: FileScanTask) -> StoredFile:
    file = task.file
    least = greatest = None
    names = table.schema().column_names
    if KEY in names:
        key = table.schema().find_field(KEY)
        low, high = (file.lower_bounds or {}).get(key.field_id), (file.upper_bounds or {}).get(key.field_id)
        if low is not None and high is not None:
            kind = cast(PrimitiveType, key.field_type)
            least, greatest = from_bytes(kind, low), from_bytes(kind, high)
    partition = tuple(file.partition[number] for number in range(len(file.partition)))
    return StoredFile(
        file.file_path, file.file_size_in_bytes, file.record_count, partition, least, greatest, ScannedFile(task)
    )
