"""The description of a table: its rows, files, columns and offsets, and its lag behind the topic."""

from dataclasses import asdict, replace
from typing import Any

from ottla.protocol.errors import ApiError
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.store import Store
from ottla.spark.tables.table_writer import TableWriter


class NoEngine:
    """An engine for callers that only read."""

    def map(self, work: Any, items: Any) -> Any:
        raise AssertionError("this caller must not write")


def describe(home: TableHome, definition: Definition) -> dict[str, Any]:
    """Describe a table. If the cluster cannot be reached, the description has the problem instead of the lag."""
    settings = {"default.api.timeout.ms": "5000", **definition.client}
    writer = TableWriter(home, replace(definition, client=settings), NoEngine())
    description: dict[str, Any] = {**asdict(definition), "running": home.is_locked(definition.name)}
    description["partition_by"] = [str(partition) for partition in definition.partitions]
    if not writer.rows.exists():
        return {**description, "made": False}
    state = writer.rows.state()
    description |= {
        "made": True,
        "location": writer.rows.location,
        "columns": {field.name: str(field.type) for field in state.schema},
        "snapshots": writer.rows.snapshots(),
        **_sizes(writer.rows),
        "dead_letters": _dead_letters(writer.dead_letters),
    }
    if state.marks is not None:
        description |= {
            "cluster_id": state.marks.cluster,
            "topic_id": state.marks.topic_id,
            "mode_now": state.marks.mode,
            "offsets": dict(state.marks.offsets),
            **_lag(writer),
        }
    return description


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


def _lag(writer: TableWriter) -> dict[str, Any]:
    state = writer.rows.state()
    assert state.marks is not None, "the caller has checked it"
    try:
        state.marks.check(writer.look_up_topic(), writer.definition.name)
        starts = writer.start_offsets(state.marks)
        keys = [(writer.definition.topic, number) for number in starts]
        begins, ends = writer.cluster.begins(keys), writer.cluster.ends(keys)
    except (ApiError, TableError) as error:
        return {"lag": None, "problem": str(error)}
    return {"lag": sum(ends[key] - max(starts[key[1]], begins[key]) for key in keys)}
