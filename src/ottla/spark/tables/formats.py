"""Opens the store of a table by its format. The library of a format is imported only when it is used."""

from pathlib import Path

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.store import Store


def open_store(home: TableHome, definition: Definition, name: str) -> Store:
    """Return the store of a table: the definition's own, or that of its dead letters."""
    if definition.format == "iceberg":
        from ottla.spark.tables.iceberg import IcebergStore

        return IcebergStore(catalog_of(home, definition), definition.namespace, name)
    folder = folder_of(home, definition, name)
    if definition.format == "delta":
        from ottla.spark.tables.delta import DeltaStore

        return DeltaStore(folder)
    from ottla.spark.tables.parquet import ParquetStore

    return ParquetStore(folder)


def catalog_of(home: TableHome, definition: Definition) -> dict[str, str]:
    """Return the properties of the Iceberg catalog; the default is SQLite in the home folder."""
    if definition.catalog:
        return dict(definition.catalog)
    home.warehouse.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{home.folder / 'catalog.db'}", "warehouse": f"file://{home.warehouse}"}


def folder_of(home: TableHome, definition: Definition, name: str) -> Path:
    """Return the folder of a table that is not in a catalog."""
    base = Path(definition.location).absolute() if definition.location else home.warehouse
    return base / name
