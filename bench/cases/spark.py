"""Spark jobs: `format("ottla")` on Ottla and Spark's own connector on Kafka, in one common session.

The CPU of a job is that of the JVM, the Python workers, this process and the node.
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
"""Creates the rows of a job; the job's CPU includes this."""

job = functools.partial(case, shares=True, clients_stay=True)
"""Declares a case that runs in the common session."""

PARTITIONS = 4
MICRO_BATCHES, MICRO_BATCH_RECORDS = 30, 100
SOURCE_GOALS = {"job_cpu_s": 1 / 2.5}
TABLE_GOALS = {"job_cpu_s": 1 / 2.5}
SINK_GOALS = {"job_cpu_s": 1.0}
MICRO_BATCH_GOALS = {"time_ms": 1.5}


@functools.cache
def get_session() -> SparkSession:
    """Return the session of this process, on two cores. It stops with the process."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-spark-"))
    spark = start_session(folder, master="local[2]")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(spark.stop)
    return spark


def measure_job(trial: Trial, work: Callable[[], None]) -> Figures:
    """Run a job, and return its CPU and time."""
    pids = [get_session().sparkContext._gateway.proc.pid, *trial.cluster.pids]  # type: ignore[union-attr]
    before, own_s, began_s = cpu_usage(pids), time.process_time(), time.perf_counter()
    work()
    time_s = time.perf_counter() - began_s
    time.sleep(0.2)  # include the last responses and clean-ups
    cpu_s = spent_seconds(before, cpu_usage(pids)) + time.process_time() - own_s
    return {"job_cpu_s": cpu_s, "time_ms": time_s * 1000}


def with_bootstrap(trial: Trial, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": trial.cluster.bootstrap, **options}


def fill_topic(trial: Trial, records: int, record_bytes: int) -> str:
    """Create a topic with keys of 16 bytes and values of this size, which all rounds of this life read."""

    def values(numbers: range) -> list[bytes]:
        return [random.randbytes(record_bytes)] * len(numbers)

    return fill_topic_with(trial, f"{records} of {record_bytes}", records, values)


def fill_topic_with(trial: Trial, name: str, records: int, values: Callable[[range], list[bytes]]) -> str:
    """Create a topic with these values."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, records, 10_000):
            numbers = range(start, min(start + 10_000, records))
            keys = pa.array([b"%016d" % number for number in numbers])
            yield pa.record_batch({"key": keys, "value": pa.array(values(numbers))})

    def fill() -> str:
        topic = trial.new_topic(PARTITIONS)
        write_at_least_once(
            parse_write_options(with_bootstrap(trial, topic=topic, guarantee="at-least-once")), batches()
        )
        return topic

    return trial.cluster.make_once(name, fill)


def load_records(trial: Trial, records: int, record_bytes: int) -> Load:
    """Fill a topic, and return a function that loads its records."""
    topic = fill_topic(trial, trial.scaled(records), record_bytes)
    return lambda: load_topic(trial, topic)


def load_topic(trial: Trial, topic: str) -> DataFrame:
    return get_session().read.format(trial.system.name).options(**with_bootstrap(trial, subscribe=topic)).load()


def load_ready_records(trial: Trial, records: int, record_bytes: int) -> Load:
    """For Ottla, load from a Python source that has all records ready: the minimum cost of any Python source."""
    if trial.system.name != OTTLA:
        return load_records(trial, records, record_bytes)
    register_pickle_by_value(ready_source)  # type: ignore[no-untyped-call] # Python workers cannot import `bench`
    get_session().dataSource.register(ready_source.ReadySource)
    options = {"records": trial.scaled(records), "bytes": record_bytes, "partitions": PARTITIONS}
    return lambda: get_session().read.format(ready_source.ReadySource.name()).options(**options).load()


def write_to_noop(trial: Trial, load: Load) -> Figures:
    return measure_job(trial, lambda: load().write.format("noop").mode("overwrite").save())


def write_to_parquet(trial: Trial, load: Load) -> Figures:
    target = trial.folder / "parquet"
    figures = measure_job(trial, lambda: load().write.mode("overwrite").parquet(str(target)))
    shutil.rmtree(target)
    return figures


def write_to_table(trial: Trial, topic: str, **settings: Any) -> Figures:
    """Create and fill a table, as `ottla table run --once` does."""
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=trial.folder))
    definition = Definition("records", topic, trial.cluster.bootstrap, format="parquet", **settings)
    rows = 0

    def count_rows(_: Definition, result: BatchResult) -> None:
        nonlocal rows
        rows += result.rows

    def run() -> None:
        query = TableQuery(
            get_session(),
            TableHome(folder),
            definition,
            interval_s=None,
            maintenance=MaintenancePolicy(),
            on_batch=count_rows,
        )
        run_queries([query], fail)

    def fail(message: str) -> None:
        raise ToolFailed(message)

    figures = measure_job(trial, run)
    shutil.rmtree(folder)
    if not rows:
        raise ToolFailed(f"the table of topic {topic} is empty")
    return figures


def write_to_raw_table(trial: Trial, records: int, record_bytes: int) -> Figures:
    """Write keys and values as bytes: Ottla into a table, Kafka with a job that writes Parquet files."""
    if trial.system.name != OTTLA:
        return write_to_parquet(trial, load_records(trial, records, record_bytes))
    topic = fill_topic(trial, trial.scaled(records), record_bytes)
    return write_to_table(trial, topic, key="binary", values="bytes")


def write_to_topic(trial: Trial, records: int, record_bytes: int, **ottla_options: str) -> Figures:
    options = ottla_options if trial.system.name == OTTLA else {}
    value = f"cast(repeat('x', {record_bytes}) as binary) value"
    rows = (
        get_session().range(0, trial.scaled(records), 1, 2).selectExpr("cast(cast(id as string) as binary) key", value)
    )
    with trial.topic(PARTITIONS) as topic:
        writer = (
            rows.write.format(trial.system.name).mode("append").options(**with_bootstrap(trial, topic=topic, **options))
        )
        return measure_job(trial, writer.save)


@job(
    "spark-noop-100",
    "2 M × 100 B from a topic, discarded",
    goals=SOURCE_GOALS,
    seconds=38,
)
def noop_100(trial: Trial) -> Figures:
    return write_to_noop(trial, load_records(trial, 2_000_000, 100))


@job(
    "spark-noop-1k",
    "1 M × 1,000 B from a topic, discarded",
    goals=SOURCE_GOALS,
    seconds=20,
)
def noop_1k(trial: Trial) -> Figures:
    return write_to_noop(trial, load_records(trial, 1_000_000, 1_000))


@job(
    "spark-parquet-100",
    "2 M × 100 B from a topic into Parquet",
    goals=SOURCE_GOALS,
    seconds=16,
)
def parquet_100(trial: Trial) -> Figures:
    return write_to_parquet(trial, load_records(trial, 2_000_000, 100))


@job(
    "spark-parquet-1k",
    "1 M × 1,000 B from a topic into Parquet",
    goals=SOURCE_GOALS,
    seconds=20,
)
def parquet_1k(trial: Trial) -> Figures:
    return write_to_parquet(trial, load_records(trial, 1_000_000, 1_000))


@job(
    "spark-table-100",
    "2 M × 100 B from a topic into a table of Parquet files",
    goals=TABLE_GOALS,
    seconds=14,
)
def table_100(trial: Trial) -> Figures:
    return write_to_raw_table(trial, 2_000_000, 100)


@job(
    "spark-table-1k",
    "1 M × 1,000 B from a topic into a table of Parquet files",
    goals=TABLE_GOALS,
    seconds=15,
)
def table_1k(trial: Trial) -> Figures:
    return write_to_raw_table(trial, 1_000_000, 1_000)


@job(
    "spark-table-json",
    "1 M JSON objects of 200 B from a topic into columns of Parquet files",
    goals=TABLE_GOALS,
    seconds=30,
)
def table_json(trial: Trial) -> Figures:
    """Ottla fills a table; Kafka's job uses `from_json` with a given schema."""
    records = trial.scaled(1_000_000)
    topic = fill_topic_with(trial, f"{records} of JSON", records, make_orders)
    if trial.system.name == OTTLA:
        return write_to_table(trial, topic)
    record = ("cast(key as string) key", "partition", "offset", "timestamp")
    parsed = "from_json(cast(value as string), 'id long, customer string, price double, note string') value"

    def load() -> DataFrame:
        rows = load_topic(trial, topic).selectExpr(*record, parsed)
        return rows.select("key", "partition", "offset", "timestamp", "value.*")

    return write_to_parquet(trial, load)


def make_orders(numbers: range) -> list[bytes]:
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
    return write_to_topic(trial, 2_000_000, 100, guarantee="at-least-once")


@job(
    "spark-sink-1k",
    "1 M × 1,000 B into a topic, at least once",
    goals=SINK_GOALS,
    seconds=22,
)
def sink_1k(trial: Trial) -> Figures:
    return write_to_topic(trial, 1_000_000, 1_000, guarantee="at-least-once")


@job(
    "spark-exact",
    "1 M × 1,000 B into a topic: exactly once, Kafka's at least once",
    needs=TRANSACTIONS,
    seconds=23,
)
def exact_1k(trial: Trial) -> Figures:
    return write_to_topic(trial, 1_000_000, 1_000)


@job(
    "spark-microbatch",
    f"micro-batches of {MICRO_BATCH_RECORDS} records from a topic, discarded; time of one",
    goals=MICRO_BATCH_GOALS,
    seconds=28,
)
def micro_batch(trial: Trial) -> Figures:
    topic = fill_topic(trial, MICRO_BATCHES * MICRO_BATCH_RECORDS, 100)
    options = with_bootstrap(
        trial, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(MICRO_BATCH_RECORDS)
    )
    checkpoint = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=trial.folder))
    rows = get_session().readStream.format(trial.system.name).options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    progress: list[Any] = []

    def run() -> None:
        query = writer.start()
        query.awaitTermination()
        progress.extend(query.recentProgress)

    figures = measure_job(trial, run)
    shutil.rmtree(checkpoint)
    assert sum(batch["numInputRows"] for batch in progress) == MICRO_BATCHES * MICRO_BATCH_RECORDS, (
        "records are missing"
    )
    # The first micro-batch includes the start of the query.
    micro_batch_ms = median(batch["durationMs"]["triggerExecution"] for batch in progress[1:])
    return {"job_cpu_s": figures["job_cpu_s"], "time_ms": micro_batch_ms}


def _declare_floor(
    name: str, title: str, work: Callable[[Trial, Load], Figures], records: int, record_bytes: int
) -> None:
    """Declare a case that runs a job with the fastest possible source in Python."""
    declare = job(
        f"spark-floor-{name}",
        f"{title}, from a Python source that has them ready",
        goals=SOURCE_GOALS,
        named_only=True,
    )
    declare(lambda trial: work(trial, load_ready_records(trial, records, record_bytes)))


_declare_floor("noop-100", "2 M × 100 B, discarded", write_to_noop, 2_000_000, 100)
_declare_floor("noop-1k", "1 M × 1,000 B, discarded", write_to_noop, 1_000_000, 1_000)
_declare_floor("parquet-100", "2 M × 100 B into Parquet", write_to_parquet, 2_000_000, 100)
_declare_floor("parquet-1k", "1 M × 1,000 B into Parquet", write_to_parquet, 1_000_000, 1_000)
