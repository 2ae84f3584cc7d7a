"""The pipeline: records into Arrow columns and back, and Spark jobs beside Spark's own connector on Apache Kafka.

Jobs are charged for everything that works for them: Java, Python's workers, and the node that they read from.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from tests.pipeline.clusters import Cluster, running
from tests.pipeline.sessions import start_session

from bench.timing import compare
from ottla.pipeline import columns, rows
from ottla.pipeline.columns import TYPES, Columns, Piece
from ottla.pipeline.rows import Rows
from ottla.pipeline.write_options import parse_write_options
from ottla.pipeline.writing import write_at_least_once
from ottla.wire.batch import HEADER_BYTES, read_header
from ottla.wire.records import Record, build_batch

BATCH = 1000
JOBS = ((2_000_000, 100), (1_000_000, 1000))
PARTITIONS = 4
ROUNDS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


def run() -> None:
    """Print the figures."""
    decode_and_encode()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        spark_jobs(Path(folder))


def decode_and_encode() -> None:
    """Without Spark and without a network, one core."""
    print("million records a CPU-second    decode   decode in Python   encode   encode in Python")
    for size in (100, 1000):
        batch = build_batch([Record(n, n, b"%016d" % n, random.randbytes(size)) for n in range(BATCH)])
        pieces = [Piece(read_header(batch), memoryview(batch)[HEADER_BYTES:])] * 10
        wanted = Columns(pa.schema([(name, TYPES[name]) for name in list(TYPES)[:7]]), "orders", 0)
        decoded = wanted.decode(pieces, 0, 1 << 62)
        members = np.arange(decoded.num_rows, dtype=np.int32)
        room = bytearray(decoded.num_rows * (size + 40))

        def encode(decoded: pa.RecordBatch = decoded, members: rows.Indices = members, room: bytearray = room) -> None:
            Rows(decoded.column("key"), decoded.column("value"), None, decoded.num_rows).encode(members, 0, room, 0, 0)

        def decode(wanted: Columns = wanted, pieces: list[Piece] = pieces) -> None:
            wanted.decode(pieces, 0, 1 << 62)

        taken = compare(
            {
                "decode": decode,
                "decode in Python": _in_python(decode),
                "encode": encode,
                "encode in Python": _in_python(encode),
            },
            rounds=5,
        )
        print(f"{size:>10} B" + "".join(f"{10 * BATCH / each / 1e6:16.2f}" for each in taken.values()))


def _in_python(work: Callable[[], None]) -> Callable[[], None]:
    def without_compiled_code() -> None:
        kept = columns.compiled, rows.compiled
        columns.compiled = rows.compiled = None
        try:
            work()
        finally:
            columns.compiled, rows.compiled = kept

    return without_compiled_code


def spark_jobs(folder: Path) -> None:
    """A topic into nothing and into Parquet, and rows into a topic, in turns with Spark's own connector on Kafka."""
    with ExitStack() as stack:
        homes = {name: folder / name for name in ("ottla", "kafka", "spark")}
        for home in homes.values():
            home.mkdir()
        clusters = {kind: stack.enter_context(running(kind, homes[kind])) for kind in ("ottla", "kafka")}
        spark = start_session(homes["spark"], master="local[2]")
        stack.callback(spark.stop)
        print("\nCPU-seconds of everything involved, median of rounds        ottla     kafka     kafka/ottla")
        for count, size in JOBS:
            topics = {kind: _filled(cluster, count, size) for kind, cluster in clusters.items()}
            for target in ("noop", "parquet"):
                _race(
                    f"{count:,} x {size} B into {target}",
                    {kind: _copy(spark, clusters[kind], kind, topics[kind], target, folder) for kind in clusters},
                )
            _race(
                f"{count:,} x {size} B into a topic",
                {kind: _write(spark, clusters[kind], kind, count, size) for kind in clusters},
            )


def _filled(cluster: Cluster, count: int, size: int) -> str:
    topic = cluster.new_topic(PARTITIONS)
    options = parse_write_options(cluster.options(topic=topic, guarantee="at-least-once"))

    def made() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, 10_000):
            keys = pa.array([b"%016d" % number for number in range(start, start + 10_000)])
            yield pa.record_batch({"key": keys, "value": pa.array([random.randbytes(size)] * 10_000)})

    write_at_least_once(options, made())
    return topic


def _copy(
    spark: SparkSession, cluster: Cluster, kind: str, topic: str, target: str, folder: Path
) -> Callable[[], None]:
    def job() -> None:
        frame = spark.read.format(kind).options(**cluster.options(subscribe=topic)).load()
        writer = frame.write.format(target).mode("overwrite")
        writer.save() if target == "noop" else writer.save(str(folder / f"{kind}.parquet"))

    return job


def _write(spark: SparkSession, cluster: Cluster, kind: str, count: int, size: int) -> Callable[[], None]:
    topic = cluster.new_topic(PARTITIONS)
    extra = {"guarantee": "at-least-once"} if kind == "ottla" else {}

    def job() -> None:
        value = f"cast(repeat('x', {size}) as binary) value"
        frame = spark.range(0, count, 1, 2).selectExpr("cast(cast(id as string) as binary) key", value)
        frame.write.format(kind).mode("append").options(**cluster.options(topic=topic, **extra)).save()

    return job


def _race(name: str, jobs: dict[str, Callable[[], None]]) -> None:
    taken: dict[str, list[float]] = {kind: [] for kind in jobs}
    for number in range(ROUNDS + 1):
        for kind, job in jobs.items():
            before = _cpu_s()
            job()
            time.sleep(0.2)  # lets the last answers and clean-ups be counted
            if number:  # the first round warms up
                taken[kind].append(_cpu_s() - before)
    ours, theirs = (median(taken[kind]) for kind in ("ottla", "kafka"))
    print(f"{name:54} {ours:10.2f}{theirs:10.2f}{theirs / ours:14.2f}", flush=True)


def _cpu_s() -> float:
    """What this process and all that it started have used, also those that are gone by now."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        used[int(entry.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        number = left.pop()
        total += used.get(number, 0)
        left += parents.get(number, [])
    return total / _TICKS
