"""Jobs on Spark: `format("ottla")` on Ottla beside Spark's own connector on Kafka, in one session that both share.

A job is charged for everything that works for it: Java, Python's workers, this process, and the node.
"""

import atexit
import functools
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
from ottla.pipeline.write_options import parse_write_options
from ottla.pipeline.writing import write_at_least_once

PARTITIONS = 4
MICRO_BATCHES, MICRO_BATCH_RECORDS = 30, 100
SOURCE_GOALS = {"job_cpu_s": 1 / 2.5}
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

    def made() -> Iterator[pa.RecordBatch]:
        for start in range(0, records, 10_000):
            keys = pa.array([b"%016d" % number for number in range(start, min(start + 10_000, records))])
            yield pa.record_batch({"key": keys, "value": pa.array([random.randbytes(record_bytes)] * len(keys))})

    def fill() -> str:
        topic = trial.new_topic(PARTITIONS)
        write_at_least_once(parse_write_options(options(trial, topic=topic, guarantee="at-least-once")), made())
        return topic

    return trial.cluster.once(f"{records} of {record_bytes}", fill)


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


def into_topic(trial: Trial, records: int, record_bytes: int, **extra: str) -> Figures:
    given = extra if trial.system.name == OTTLA else {}
    value = f"cast(repeat('x', {record_bytes}) as binary) value"
    rows = session().range(0, trial.scaled(records), 1, 2).selectExpr("cast(cast(id as string) as binary) key", value)
    with trial.topic(PARTITIONS) as topic:
        writer = rows.write.format(trial.system.name).mode("append").options(**options(trial, topic=topic, **given))
        return charged(trial, writer.save)


@case("spark-noop-100", "2 M × 100 B from a topic into nothing", goals=SOURCE_GOALS, warm_rounds=3)
def noop_100(trial: Trial) -> Figures:
    return into_nothing(trial, 2_000_000, 100)


@case("spark-noop-1k", "1 M × 1,000 B from a topic into nothing", goals=SOURCE_GOALS, warm_rounds=3)
def noop_1k(trial: Trial) -> Figures:
    return into_nothing(trial, 1_000_000, 1_000)


@case("spark-parquet-100", "2 M × 100 B from a topic into Parquet", goals=SOURCE_GOALS, warm_rounds=3)
def parquet_100(trial: Trial) -> Figures:
    return into_parquet(trial, 2_000_000, 100)


@case("spark-parquet-1k", "1 M × 1,000 B from a topic into Parquet", goals=SOURCE_GOALS, warm_rounds=3)
def parquet_1k(trial: Trial) -> Figures:
    return into_parquet(trial, 1_000_000, 1_000)


@case("spark-sink-100", "2 M × 100 B into a topic, at least once", goals=SINK_GOALS, warm_rounds=3)
def sink_100(trial: Trial) -> Figures:
    return into_topic(trial, 2_000_000, 100, guarantee="at-least-once")


@case("spark-sink-1k", "1 M × 1,000 B into a topic, at least once", goals=SINK_GOALS, warm_rounds=3)
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
