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
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.sessions import start_session

from bench.case import TRANSACTIONS, Trial, case
from bench.figures import OTTLA, Figures
from bench.measure import cpu_seconds
from bench.tools import ToolFailed
from ottla.pipeline.write_options import parse_write_options
from ottla.pipeline.writing import write_at_least_once
from ottla.tables.definition import Definition, Home
from ottla.tables.keeper import Done
from ottla.tables.maintenance import Upkeep
from ottla.tables.query import TableQuery, keep_tables

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
    java = session().sparkContext._gateway.proc.pid  # type: ignore[union-attr]

    def used_s() -> float:
        return time.process_time() + cpu_seconds([java]) + cpu_seconds(trial.cluster.pids)

    began_s, cpu_s = time.perf_counter(), used_s()
    work()
    time_s = time.perf_counter() - began_s
    time.sleep(0.2)  # lets the last answers and clean-ups be counted
    return {"job_cpu_s": used_s() - cpu_s, "time_ms": time_s * 1000}


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

    return trial.cluster.once(name, fill)


def loaded(trial: Trial, topic: str) -> DataFrame:
    return session().read.format(trial.system.name).options(**options(trial, subscribe=topic)).load()


def into_nothing(trial: Trial, records: int, record_bytes: int) -> Figures:
    topic = filled(trial, trial.scaled(records), record_bytes)
    return charged(trial, lambda: loaded(trial, topic).write.format("noop").mode("overwrite").save())


def into_parquet(trial: Trial, records: int, record_bytes: int) -> Figures:
    topic = filled(trial, trial.scaled(records), record_bytes)
    target = trial.folder / "parquet"
    found = charged(trial, lambda: loaded(trial, topic).write.mode("overwrite").parquet(str(target)))
    shutil.rmtree(target)
    return found


def into_table(trial: Trial, topic: str, **settings: Any) -> Figures:
    """A table made and filled, as `ottla table run --once` does it."""
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=trial.folder))
    definition = Definition("records", topic, trial.cluster.bootstrap, format="parquet", **settings)
    rows = 0

    def told(_: Definition, done: Done) -> None:
        nonlocal rows
        rows += done.rows

    def run() -> None:
        query = TableQuery(
            session(),
            Home(folder),
            definition,
            interval_s=None,
            upkeep=Upkeep(),
            told=told,
        )
        keep_tables([query], complain)

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
        return into_parquet(trial, records, record_bytes)
    topic = filled(trial, trial.scaled(records), record_bytes)
    return into_table(trial, topic, key="binary", values="bytes")


def into_topic(trial: Trial, records: int, record_bytes: int, **extra: str) -> Figures:
    given = extra if trial.system.name == OTTLA else {}
    value = f"cast(repeat('x', {record_bytes}) as binary) value"
    rows = session().range(0, trial.scaled(records), 1, 2).selectExpr("cast(cast(id as string) as binary) key", value)
    with trial.topic(PARTITIONS) as topic:
        writer = rows.write.format(trial.system.name).mode("append").options(**options(trial, topic=topic, **given))
        return charged(trial, writer.save)


@case("spark-noop-100", "2 M × 100 B from a topic into nothing", goals=SOURCE_GOALS, warm_rounds=2)
def noop_100(trial: Trial) -> Figures:
    return into_nothing(trial, 2_000_000, 100)


@case("spark-noop-1k", "1 M × 1,000 B from a topic into nothing", goals=SOURCE_GOALS, warm_rounds=2)
def noop_1k(trial: Trial) -> Figures:
    return into_nothing(trial, 1_000_000, 1_000)


@case("spark-parquet-100", "2 M × 100 B from a topic into Parquet", goals=SOURCE_GOALS, warm_rounds=2)
def parquet_100(trial: Trial) -> Figures:
    return into_parquet(trial, 2_000_000, 100)


@case("spark-parquet-1k", "1 M × 1,000 B from a topic into Parquet", goals=SOURCE_GOALS, warm_rounds=2)
def parquet_1k(trial: Trial) -> Figures:
    return into_parquet(trial, 1_000_000, 1_000)


@case("spark-table-100", "2 M × 100 B from a topic into a table of Parquet files", goals=TABLE_GOALS, warm_rounds=2)
def table_100(trial: Trial) -> Figures:
    return into_raw_table(trial, 2_000_000, 100)


@case("spark-table-1k", "1 M × 1,000 B from a topic into a table of Parquet files", goals=TABLE_GOALS, warm_rounds=2)
def table_1k(trial: Trial) -> Figures:
    return into_raw_table(trial, 1_000_000, 1_000)


@case("spark-table-json", "1 M JSON objects of 200 B from a topic into columns of Parquet files", goals=TABLE_GOALS)
def table_json(trial: Trial) -> Figures:
    """Ottla keeps a table; Spark's own way is `from_json` with the schema given."""
    records = trial.scaled(1_000_000)
    topic = filled_with(trial, f"{records} of JSON", records, orders)
    if trial.system.name == OTTLA:
        return into_table(trial, topic)
    target = trial.folder / "parquet"
    record = ("cast(key as string) key", "partition", "offset", "timestamp")
    parsed = "from_json(cast(value as string), 'id long, customer string, price double, note string') value"
    rows = loaded(trial, topic).selectExpr(*record, parsed).select("key", "partition", "offset", "timestamp", "value.*")
    found = charged(trial, lambda: rows.write.mode("overwrite").parquet(str(target)))
    shutil.rmtree(target)
    return found


def orders(numbers: range) -> list[bytes]:
    return [
        json.dumps({"id": n, "customer": f"customer-{n % 1000}", "price": n / 7, "note": f"{n:0120d}"}).encode()
        for n in numbers
    ]


@case("spark-sink-100", "2 M × 100 B into a topic, at least once", goals=SINK_GOALS, warm_rounds=2)
def sink_100(trial: Trial) -> Figures:
    return into_topic(trial, 2_000_000, 100, guarantee="at-least-once")


@case("spark-sink-1k", "1 M × 1,000 B into a topic, at least once", goals=SINK_GOALS, warm_rounds=2)
def sink_1k(trial: Trial) -> Figures:
    return into_topic(trial, 1_000_000, 1_000, guarantee="at-least-once")


@case("spark-exact", "1 M × 1,000 B into a topic: exactly once, Kafka's at least once", needs=TRANSACTIONS)
def exact_1k(trial: Trial) -> Figures:
    return into_topic(trial, 1_000_000, 1_000)


@case(
    "spark-microbatch",
    f"micro-batches of {MICRO_BATCH_RECORDS} records from a topic into nothing, each",
    goals=MICRO_BATCH_GOALS,
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
