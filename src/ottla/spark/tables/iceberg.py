"""Iceberg tables, by PyIceberg: any of its catalogs. Marks are in each snapshot's summary, so that a table that is
rolled back to an earlier snapshot goes on from there."""

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
from ottla.spark.tables.files import delete_files, metadata_of
from ottla.spark.tables.marks import Marks, from_properties
from ottla.spark.tables.partitioning import Partition, parse_partitions
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
    conformed_table,
)

_NO_SNAPSHOT: Final = -1
_PROPERTIES: Final = {
    "format-version": "2",
    # A commit that lost a race is looked at again here: PyIceberg would add the same rows behind another run's.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergStore(Store):
    """One table in a catalog."""

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
            except Exception as error:  # whatever a catalog's library raises
                raise TableError(f"the Iceberg catalog cannot be used: {error}; see --catalog") from error
        return self._catalog

    @property
    def table(self) -> Table:
        """As it was when it was looked at last."""
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
                PartitionField(columns.find_field(each.column).field_id, 1000 + number, _transform(each), each.name)
                for number, each in enumerate(partitions)
            )
        )
        self._table = self.catalog.create_table(self._identifier, columns, partition_spec=spec, properties=_PROPERTIES)

    def state(self) -> State:
        self._table = self.catalog.load_table(self._identifier)
        snapshot = self._table.current_snapshot()
        version = _NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id
        return State(version, _columns(self._table.schema()), self._marks(snapshot))

    def _marks(self, snapshot: Snapshot | None) -> Marks | None:
        """Those of the last snapshot that has any: others may have committed since, such as a compaction."""
        at = snapshot
        while at is not None:
            found = from_properties(at.summary.additional_properties if at.summary else {})
            if found is not None:
                return found
            parent = at.parent_snapshot_id
            at = None if parent is None else self.table.snapshot_by_id(parent)
            if at is None and parent is not None:
                raise TableError(
                    f"table {self.location}: no snapshot is left that says how far it has come; another program "
                    "expired them. Drop the table and create it again"
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
        return IcebergFiles(self.table.metadata.model_dump_json(), dict(self.table.io.properties))

    def add_columns(self, schema: pa.Schema) -> None:
        with self.table.update_schema() as update:
            update.union_by_name(_pyarrow_to_schema_without_ids(schema))

    def widen(self, schema: pa.Schema) -> Widening:
        """A column of another type is another column, with an id of its own, under the same name."""
        transaction = self.table.transaction()
        known = {field.name: field.type for field in _columns(self.table.schema())}
        changed = [field for field in schema if field.name in known and needs_rewrite(known[field.name], field.type)]
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
        base: State,
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
        snapshots = sorted(self.table.metadata.snapshots, key=lambda each: each.timestamp_ms)
        protected = {ref.snapshot_id for ref in self.table.metadata.refs.values()}
        old = [
            each
            for each in snapshots[: len(snapshots) - keep]
            if each.timestamp_ms < latest_ms and each.snapshot_id not in protected
        ]
        if not old:
            return Expired(0, 0)
        gone, read = set(old), _Manifests(self.table)
        needed = {path for each in snapshots if each not in gone for path in read.paths(each)}
        garbage = {path for each in old for path in read.paths(each)} - needed
        self.table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
        return Expired(len(old), delete_files(self.table.io, garbage))

    def every_file(self) -> set[str]:
        self.state()
        read = _Manifests(self.table)
        return {path for each in self.table.metadata.snapshots for path in read.paths(each)}

    def snapshots(self) -> int:
        return len(self.table.metadata.snapshots)

    def drop(self) -> None:
        try:
            self.catalog.purge_table(self._identifier)
        except NoSuchTableError:
            return


class _Manifests:
    """Which files snapshots need. Most share most of their manifests, and each is read once."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._read: dict[str, list[str]] = {}

    def paths(self, snapshot: Snapshot) -> set[str]:
        found = {snapshot.manifest_list}
        for manifest in snapshot.manifests(self._io):
            path = manifest.manifest_path
            if path not in self._read:
                entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
                self._read[path] = [entry.data_file.file_path for entry in entries]
            found |= {path, *self._read[path]}
        return found


class ScannedFile:
    """A data file with the deletes of others that apply to it."""

    def __init__(self, task: FileScanTask) -> None:
        self.file = task.file
        self.deletes = task.delete_files

    def task(self) -> FileScanTask:
        return FileScanTask(self.file, delete_files=set(self.deletes))


class IcebergFiles(FileReader):
    """Reads by column ids, and without the rows that others have deleted."""

    def __init__(self, metadata: str, settings: dict[str, str]) -> None:
        self._metadata = metadata
        self._settings = settings

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        metadata = TableMetadataUtil.parse_raw(self._metadata)
        schema = metadata.schema()
        wanted = schema if columns is None else schema.select(*columns)
        file_io = load_file_io(self._settings, metadata.location)
        table = ArrowScan(metadata, file_io, wanted, AlwaysTrue()).to_table([file.handle.task()])
        return conformed_table(table, _columns(wanted))


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
        metadata_of(file), compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
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
