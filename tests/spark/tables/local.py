"""An engine without Spark: it reads a batch of a real topic and calls the same work, once per partition.

Work and results are pickled, as on the way to a task and back.
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
from ottla.spark.tables.table_writer import BatchResult, TableWriter, source_options
from ottla.spark.tables.tasks import FetchTask, TaskReport
from tests.spark.clusters import Cluster

T = TypeVar("T")
R = TypeVar("R")


def pickled(thing: T) -> T:
    """Return a copy by pickle, as another process receives it."""
    copy: T = pickle.loads(pickle.dumps(thing))
    return copy


class LocalEngine:
    """Runs work in this process, one item after the other."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [pickled(pickled(work)(pickled(item))) for item in items]


class LocalBatch:
    """The records from some offsets of a topic to its end, or at most `most` records per partition."""

    def __init__(self, writer: TableWriter, starts: dict[int, int], most: int | None = None) -> None:
        topic = writer.definition.topic
        given = {**source_options(writer.definition), "startingOffsets": json.dumps({topic: starts})}
        self._options = parse_read_options(given, streaming=False)
        ranges = plan_batch(self._options)
        self.ranges = [r._replace(stop=min(r.stop, r.start + most)) if most else r for r in ranges]

    def run(self, work: Callable[..., TaskReport], *, by_key: bool) -> list[TaskReport]:
        if not by_key:
            return LocalEngine().map(FetchTask(work, self._options), [[part] for part in self.ranges])
        shares: dict[int, list[Any]] = defaultdict(list)
        for part in self.ranges:
            for batch in read_range(self._options, part, SOURCE_SCHEMA):
                for row in batch.to_pylist():
                    shares[zlib.crc32(row["key"] or b"") % 2].append(row)
        return [pickled(pickled(work)(iter([pa.RecordBatch.from_pylist(s, SOURCE_SCHEMA)]))) for s in shares.values()]


class LocalRun:
    """A run of a table, one batch at a time."""

    def __init__(self, home: TableHome, definition: Definition, **settings: Any) -> None:
        self.writer = TableWriter(home, definition, LocalEngine(), **settings)
        self.starts = self.writer.start_offsets(self.writer.open())

    def take(self, most: int | None = None) -> BatchResult:
        batch = LocalBatch(self.writer, self.starts, most)
        done = self.writer.write(batch)
        for part in batch.ranges:
            self.starts[part.partition] = part.stop
        return done

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows, as its own library reads them."""
        return read(self.writer.rows)

    def dead(self) -> list[dict[str, Any]]:
        return read(self.writer.dead_letters)


def read(store: Any) -> list[dict[str, Any]]:
    """Return all rows of a store, by its file reader."""
    store.state()
    reader = store.reader()
    rows = [row for file in store.files() for row in reader.read(file).to_pylist()]
    return sorted(
        rows, key=lambda row: (row.get("_partition", row.get("partition")), row.get("_offset", row.get("offset")))
    )


def produce(cluster: Cluster, topic: str, *records: tuple[bytes | None, Any], partition: int = 0) -> None:
    """Produce records of a key and a value: bytes unchanged, None as a tombstone, anything else as JSON."""
    producer = cluster.producer()
    for key, value in records:
        content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, content, key, partition=partition)
    assert producer.flush(30) == 0


def define(cluster: Cluster, topic: str, name: str = "orders", **settings: Any) -> Definition:
    return Definition(name=name, topic=topic, servers=cluster.address, **settings)


def home_in(folder: Path) -> TableHome:
    return TableHome(folder / "home")
