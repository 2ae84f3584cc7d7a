"""How a table is: its rows, files and columns, how far it has come, and how far it is behind its topic."""

from dataclasses import asdict, replace
from typing import Any

from ottla.protocol.errors import ApiError
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.store import Store
from ottla.spark.tables.table_writer import TableWriter


class NoEngine:
    """For those who only look."""

    def map(self, work: Any, items: Any) -> Any:
        raise AssertionError("nothing is to be written here")


def describe(home: TableHome, definition: Definition) -> dict[str, Any]:
    """All there is to say of a table; what the cluster has to say is left out, with why, if it cannot be reached."""
    patience = {"default.api.timeout.ms": "5000", **definition.client}
    keeper = TableWriter(home, replace(definition, client=patience), NoEngine())
    found: dict[str, Any] = {**asdict(definition), "running": home.is_locked(definition.name)}
    found["partition_by"] = [str(each) for each in definition.partitions]
    if not keeper.rows.exists():
        return {**found, "made": False}
    state = keeper.rows.state()
    found |= {
        "made": True,
        "location": keeper.rows.location,
        "columns": {field.name: str(field.type) for field in state.schema},
        "snapshots": keeper.rows.snapshots(),
        **_sizes(keeper.rows),
        "dead_letters": _dead_letters(keeper.dead_letters),
    }
    if state.marks is not None:
        found |= {
            "cluster_id": state.marks.cluster,
            "topic_id": state.marks.topic_id,
            "mode_now": state.marks.mode,
            "offsets": dict(state.marks.offsets),
            **_lag(keeper),
        }
    return found


def _sizes(store: Store) -> dict[str, int]:
    files = store.files()
    return {
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }


def _dead_letters(store: Store) -> int:
    if not store.exists():
        return 0
    store.state()
    return sum(file.rows for file in store.files())


def _lag(keeper: TableWriter) -> dict[str, Any]:
    state = keeper.rows.state()
    assert state.marks is not None, "it was asked for because there are some"
    try:
        state.marks.check(keeper.look(), keeper.definition.name)
        starts = keeper.starts(state.marks)
        keys = [(keeper.definition.topic, number) for number in starts]
        begins, ends = keeper.cluster.begins(keys), keeper.cluster.ends(keys)
    except (ApiError, TableError) as error:
        return {"lag": None, "problem": str(error)}
    return {"lag": sum(ends[key] - max(starts[key[1]], begins[key]) for key in keys)}
