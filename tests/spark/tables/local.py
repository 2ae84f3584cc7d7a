"""What Spark does for a table, done here: reads a batch of a real topic and calls the same work, once a partition.

Everything goes through pickle, as it does on the way to a task and back.
"""

import json
import pickle
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from ottla.spark.connector.micro_batch_reader import plan_batch, read_range
from ottla.spark.connector.read_options import parse_read_options
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.records import SOURCE_SCHEMA
from ottla.spark.tables.table_writer import Done, TableWriter, source_options
from ottla.spark.tables.tasks import FetchTask, Report
from tests.spark.clusters import Cluster

T = TypeVar("T")
R = TypeVar("R")


def carried(thing: T) -> T:
    """As it arrives in another process."""
    found: T = pickle.loads(pickle.dumps(thing))
    return found


class LocalEngine:
    """Runs work here, one item after the other."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [carried(carried(work)(carried(item))) for item in items]


class LocalBatch:
    """What lies between some offsets of a topic and its end, or at most so many records a partition."""

    def __init__(self, keeper: TableWriter, starts: dict[int, int], most: int | None = None) -> None:
        topic = keeper.definition.topic
        given = {**source_options(keeper.definition), "startingOffsets": json.dumps({topic: starts})}
        self._options = parse_read_options(given, streaming=False)
        ranges = plan_batch(self._options)
        self.ranges = [r._replace(stop=min(r.stop, r.start + most)) if most else r for r in ranges]

    def run(self, work: Callable[..., Report], *, by_key: bool) -> list[Report]:
        if not by_key:
            return LocalEngine().map(FetchTask(work, self._options), [[each] for each in self.ranges])
        shares: dict[int, list[Any]] = defaultdict(list)
        for each in self.ranges:
            for batch in read_range(self._options, each, SOURCE_SCHEMA):
                for row in batch.to_pylist():
                    shares[zlib.crc32(row["key"] or b"") % 2].append(row)
        return [carried(carried(work)(iter([pa.RecordBatch.from_pylist(s, SOURCE_SCHEMA)]))) for s in shares.values()]


class LocalRun:
    """A run of a table: opened, then a batch at a time."""

    def __init__(self, home: TableHome, definition: Definition, **settings: Any) -> None:
        self.keeper = TableWriter(home, definition, LocalEngine(), **settings)
        self.starts = self.keeper.starts(self.keeper.open())

    def take(self, most: int | None = None) -> Done:
        batch = LocalBatch(self.keeper, self.starts, most)
        done = self.keeper.take(batch)
        for each in batch.ranges:
            self.starts[each.partition] = each.stop
        return done

    def rows(self) -> list[dict[str, Any]]:
        """What the table holds, as its own library reads it."""
        return read(self.keeper.rows)

    def dead(self) -> list[dict[str, Any]]:
        return read(self.keeper.dead_letters)


def read(store: Any) -> list[dict[str, Any]]:
    """All rows of a store, by its reader of files."""
    store.state()
    reader = store.reader()
    found = [row for file in store.files() for row in reader.read(file).to_pylist()]
    return sorted(
        found, key=lambda row: (row.get("_partition", row.get("partition")), row.get("_offset", row.get("offset")))
    )


def produce(cluster: Cluster, topic: str, *records: tuple[bytes | None, Any], partition: int = 0) -> None:
    """Records of a key and a value: bytes as they are, anything else as JSON, None a tombstone."""
    producer = cluster.producer()
    for key, value in records:
        content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, content, key, partition=partition)
    assert producer.flush(30) == 0


def define(cluster: Cluster, topic: str, name: str = "orders", **settings: Any) -> Definition:
    return Definition(name=name, topic=topic, servers=cluster.address, **settings)


def home_in(folder: Path) -> TableHome:
    return TableHome(folder / "home")
