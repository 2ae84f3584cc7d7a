"""Jobs on Spark: `format("ottla")` on Ottla beside Spark's own connector on Kafka, in one session that both share.

A job is charged for everything that works for it: Java, Python's workers, this process, and the node.
"""

import atexit
import functools
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

from bench.harness import ready_source
from bench.harness.case import TRANSACTIONS, Trial, case
from bench.harness.figures import OTTLA, Figures
from bench.harness.measure import cpu_usage, spent_seconds
from bench.harness.spark_session import start_session
from bench.harness.tools import ToolFailed
from ottla.spark.connector.task_writer import write_at_least_once
from ottla.spark.connector.write_options import parse_write_options
from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.maintenance import MaintenancePolicy
from ottla.spark.tables.query import TableQuery, run_queries
from ottla.spark.tables.table_writer import BatchResult

Load = Callable[[], DataFrame]
"""Makes the rows of a job, which is charged for that, too."""

job = functools.partial(case, shares=True, clients_stay=True)
"""Declares a case that runs in the one session."""

PARTITIONS = 4
MICRO_BATCHES, MICRO_BATCH_RECORDS = 30, 100
SOURCE_GOALS = {"job_cpu_s": 1 / 2.5}
TABLE_GOALS = {"job_cpu_s": 1 / 2.5}
SINK_GOALS = {"job_cpu_s": 1.0}
MICRO_BATCH_GOALS = {"time_ms": 1.5}


@functools.cache
def session() -> SparkSession:
    """The one session of this process, on two cores; it ends with the process."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-spark-"))
    spark = start_session(folder, master="local[2]")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(spark.stop)
    return spark


def charged(trial: Trial, work: Callable[[], None]) -> Figures:
    """What a job costs."""
    working = [session().sparkContext._gateway.proc.pid, *trial.cluster.pids]  # type: ignore[union-attr]
    before, own_s, began_s = cpu_usage(working), time.process_time(), time.perf_counter()
    work()
    time_s = time.perf_counter() - began_s
    time.sleep(0.2)  # lets the last answers and clean-ups be counted
    cpu_s = spent_seconds(before, cpu_usage(working)) + time.process_time() - own_s
    return {"job_cpu_s": cpu_s, "time_ms": time_s * 1000}


def options(trial: Trial, **given: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": trial.cluster.bootstrap, **given}


def filled(trial: Trial, records: int, record_bytes: int) -> str:
    """A topic with keys of 16 bytes and values of the size wanted, which all rounds of this life read."""

    def values(numbers: range) -> list[bytes]:
        return [random.randbytes(record_bytes)] * len(numbers)

    return filled_with(trial, f"{records} of {record_bytes}", records, values)


def filled_with(trial: Trial, name: str, records: int, values: Callable[[range], list[bytes]]) -> str:
    """A topic of such values."""

    def made() -> Iterator[pa.RecordBatch]:
        for start in range(0, records, 10_000):
            numbers = range(start, min(start + 10_000, records))
            keys = pa.array([b"%016d" % number for number in numbers])
            yield pa.record_batch({"key": keys, "value": pa.array(values(numbers))})

    def fill() -> str:
        topic = trial.new_topic(PARTITIONS)
        write_at_least_once(parse_write_options(options(trial, topic=topic, guarantee="at-least-once")), made())
        return topic

    return trial.cluster.make_once(name, fill)


def records_of(trial: Trial, records: int, record_bytes: int) -> Load:
    """A topic of such records."""
    topic = filled(trial, trial.scaled(records), record_bytes)
    return lambda: loaded(trial, topic)


def loaded(trial: Trial, topic: str) -> DataFrame:
    return session().read.format(trial.system.name).options(**options(trial, subscribe=topic)).load()


def ready(trial: Trial, records: int, record_bytes: int) -> Load:
    """The least that there is: on Ottla's side, a source in Python that has all records ready."""
    if trial.system.name != OTTLA:
        return records_of(trial, records, record_bytes)
    register_pickle_by_value(ready_source)  # type: ignore[no-untyped-call] # workers have no `bench`
    session().dataSource.register(ready_source.Ready)
    given = {"records": trial.scaled(records), "bytes": record_bytes, "partitions": PARTITIONS}
    return lambda: session().read.format(ready_source.Ready.name()).options(**given).load()


def into_nothing(trial: Trial, load: Load) -> Figures:
    return charged(trial, lambda: load().write.format("noop").mode("overwrite").save())


def into_parquet(trial: Trial, load: Load) -> Figures:
    target = trial.folder / "parquet"
    found = charged(trial, lambda: load().write.mode("overwrite").parquet(str(target)))
    shutil.rmtree(target)
    return found


def into_table(trial: Trial, topic: str, **settings: Any) -> Figures:
    """A table made and filled, as `ottla table run --once` does it."""
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=trial.folder))
    definition = Definition("records", topic, trial.cluster.bootstrap, format="parquet", **settings)
    rows = 0

    def told(_: Definition, done: BatchResult) -> None:
        nonlocal rows
        rows += done.rows

    def run() -> None:
        query = TableQuery(
            session(),
            TableHome(folder),
            definition,
            interval_s=None,
            maintenance=MaintenancePolicy(),
            on_batch=told,
        )
        run_queries([query], complain)

    def complain(words: str) -> None:
        raise ToolFailed(words)

    found = charged(trial, run)
    shutil.rmtree(folder)
    if not rows:
        raise ToolFailed(f"nothing came from {topic} into its table")
    return found


def into_raw_table(trial: Trial, records: int, record_bytes: int) -> Figures:
    """Keys and values as they came. Spark's own way is a job that writes Parquet files."""
    if trial.system.name != OTTLA:
        return into_parquet(trial, records_of(trial, records, record_bytes))
    topic = filled(trial, trial.scaled(records), record_bytes)
    return into_table(trial, topic, key="binary", values="bytes")


def into_topic(trial: Trial, records: int, record_bytes: int, **extra: str) -> Figures:
    given = extra if trial.system.name == OTTLA else {}
    value = f"cast(repeat('x', {record_bytes}) as binary) value"
    rows = session().range(0, trial.scaled(records), 1, 2).selectExpr("cast(cast(id as string) as binary) key", value)
    with trial.topic(PARTITIONS) as topic:
        writer = rows.write.format(trial.system.name).mode("append").options(**options(trial, topic=topic, **given))
        return charged(trial, writer.save)


@job(
    "spark-noop-100",
    "2 M × 100 B from a topic into nothing",
    goals=SOURCE_GOALS,
    seconds=38,
)
def noop_100(trial: Trial) -> Figures:
    return into_nothing(trial, records_of(trial, 2_000_000, 100))


@job(
    "spark-noop-1k",
    "1 M × 1,000 B from a topic into nothing",
    goals=SOURCE_GOALS,
    seconds=20,
)
def noop_1k(trial: Trial) -> Figures:
    return into_nothing(trial, records_of(trial, 1_000_000, 1_000))


@job(
    "spark-parquet-100",
    "2 M × 100 B from a topic into Parquet",
    goals=SOURCE_GOALS,
    seconds=16,
)
def parquet_100(trial: Trial) -> Figures:
    return into_parquet(trial, records_of(trial, 2_000_000, 100))


@job(
    "spark-parquet-1k",
    "1 M × 1,000 B from a topic into Parquet",
    goals=SOURCE_GOALS,
    seconds=20,
)
def parquet_1k(trial: Trial) -> Figures:
    return into_parquet(trial, records_of(trial, 1_000_000, 1_000))


@job(
    "spark-table-100",
    "2 M × 100 B from a topic into a table of Parquet files",
    goals=TABLE_GOALS,
    seconds=14,
)
def table_100(trial: Trial) -> Figures:
    return into_raw_table(trial, 2_000_000, 100)


@job(
    "spark-table-1k",
    "1 M × 1,000 B from a topic into a table of Parquet files",
    goals=TABLE_GOALS,
    seconds=15,
)
def table_1k(trial: Trial) -> Figures:
    return into_raw_table(trial, 1_000_000, 1_000)


@job(
    "spark-table-json",
    "1 M JSON objects of 200 B from a topic into columns of Parquet files",
    goals=TABLE_GOALS,
    seconds=30,
)
def table_json(trial: Trial) -> Figures:
    """Ottla keeps a table; Spark's own way is `from_json` with the schema given."""
    records = trial.scaled(1_000_000)
    topic = filled_with(trial, f"{records} of JSON", records, orders)
    if trial.system.name == OTTLA:
        return into_table(trial, topic)
    record = ("cast(key as string) key", "partition", "offset", "timestamp")
    parsed = "from_json(cast(value as string), 'id long, customer string, price double, note string') value"

    def load() -> DataFrame:
        rows = loaded(trial, topic).selectExpr(*record, parsed)
        return rows.select("key", "partition", "offset", "timestamp", "value.*")

    return into_parquet(trial, load)


def orders(numbers: range) -> list[bytes]:
    return [
        json.dumps({"id": n, "customer": f"customer-{n % 1000}", "price": n / 7, "note": f"{n:0120d}"}).encode()
        for n in numbers
    ]


@job(
    "spark-sink-100",
    "2 M × 100 B into a topic, at least once",
    goals=SINK_GOALS,
    seconds=15,
)
def sink_100(trial: Trial) -> Figures:
    return into_topic(trial, 2_000_000, 100, guarantee="at-least-once")


@job(
    "spark-sink-1k",
    "1 M × 1,000 B into a topic, at least once",
    goals=SINK_GOALS,
    seconds=22,
)
def sink_1k(trial: Trial) -> Figures:
    return into_topic(trial, 1_000_000, 1_000, guarantee="at-least-once")


@job(
    "spark-exact",
    "1 M × 1,000 B into a topic: exactly once, Kafka's at least once",
    needs=TRANSACTIONS,
    seconds=23,
)
def exact_1k(trial: Trial) -> Figures:
    return into_topic(trial, 1_000_000, 1_000)


@job(
    "spark-microbatch",
    f"micro-batches of {MICRO_BATCH_RECORDS} records from a topic into nothing, each",
    goals=MICRO_BATCH_GOALS,
    seconds=28,
)
def micro_batch(trial: Trial) -> Figures:
    topic = filled(trial, MICRO_BATCHES * MICRO_BATCH_RECORDS, 100)
    given = options(trial, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(MICRO_BATCH_RECORDS))
    checkpoint = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=trial.folder))
    rows = session().readStream.format(trial.system.name).options(**given).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    progress: list[Any] = []

    def run() -> None:
        query = writer.start()
        query.awaitTermination()
        progress.extend(query.recentProgress)

    found = charged(trial, run)
    shutil.rmtree(checkpoint)
    assert sum(each["numInputRows"] for each in progress) == MICRO_BATCHES * MICRO_BATCH_RECORDS, "all were read"
    # The first one waits for what the query starts.
    each_ms = median(each["durationMs"]["triggerExecution"] for each in progress[1:])
    return {"job_cpu_s": found["job_cpu_s"], "time_ms": each_ms}


def _floor(name: str, title: str, work: Callable[[Trial, Load], Figures], records: int, record_bytes: int) -> None:
    """Declare how a job would fare with the fastest source in Python that there can be."""
    declare = job(
        f"spark-floor-{name}",
        f"{title}, where a source in Python has them ready",
        goals=SOURCE_GOALS,
        named_only=True,
    )
    declare(lambda trial: work(trial, ready(trial, records, record_bytes)))


_floor("noop-100", "2 M × 100 B into nothing", into_nothing, 2_000_000, 100)
_floor("noop-1k", "1 M × 1,000 B into nothing", into_nothing, 1_000_000, 1_000)
_floor("parquet-100", "2 M × 100 B into Parquet", into_parquet, 2_000_000, 100)
_floor("parquet-1k", "1 M × 1,000 B into Parquet", into_parquet, 1_000_000, 1_000)
