"""Tables written by Spark, with real nodes and sessions."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.harness.kafka_jars import java
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.failures import TableError
from ottla.spark.tables.formats import open_store
from ottla.spark.tables.maintenance import MaintenancePolicy
from ottla.spark.tables.query import TableQuery, run_queries
from ottla.spark.tables.spark_engine import start_session
from ottla.spark.tables.table_writer import BatchResult
from tests.spark.clusters import Cluster
from tests.spark.tables.local import LocalRun, define, home_in, produce, read

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.local.dir": str(home / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java().parents[1]))
        session = start_session("local[2]", settings, home / "spark.log")
        yield session
        session.stop()


def run_once(
    session: SparkSession, folder: Path, definition: Definition, max_records: int = 1000, *, skip_lost: bool = False
) -> list[BatchResult]:
    results: list[BatchResult] = []
    query = TableQuery(
        session,
        home_in(folder),
        definition,
        max_records=max_records,
        interval_s=None,
        skip_lost=skip_lost,
        maintenance=MaintenancePolicy(),
        on_batch=lambda _, result: results.append(result),
    )
    run_queries([query], lambda words: pytest.fail(words))
    return results


def test_a_topic_becomes_a_table(cluster: Cluster, session: SparkSession, tmp_path: Path) -> None:
    topic = cluster.new_topic(2)
    for number in range(2):
        produce(cluster, topic, *((b"%d" % n, {"id": n}) for n in range(100)), partition=number)
    definition = define(cluster, topic)
    assert sum(done.rows for done in run_once(session, tmp_path, definition, max_records=120)) == 200
    produce(cluster, topic, (b"x", {"id": 100, "note": "new"}), (b"y", b"bad"))
    (done,) = run_once(session, tmp_path, definition)
    assert (done.rows, done.dead, done.new_columns) == (1, 1, ("note",))
    run = LocalRun(home_in(tmp_path), definition)
    assert sorted(row["id"] for row in run.rows()) == sorted([*range(100), *range(100), 100])


@pytest.mark.parametrize("format_", ["iceberg", "delta", "parquet"])
def test_spark_writes_upsert_tables_and_reads_them(
    cluster: Cluster, session: SparkSession, tmp_path: Path, format_: str
) -> None:
    topic = cluster.new_topic(3, cleanup_policy="compact")
    definition = define(cluster, topic, format=format_, mode="upsert", partition_by=("bucket(2, _key)",))
    for number in range(3):
        produce(cluster, topic, *((b"%d" % (n % 20 * 3 + number), {"n": n}) for n in range(60)), partition=number)
    run_once(session, tmp_path, definition, max_records=50)
    produce(cluster, topic, *((b"%d" % (n * 3), None) for n in range(10)), (b"30", {"n": 0.5}))
    run_once(session, tmp_path, definition)
    run = LocalRun(home_in(tmp_path), definition)
    stored_rows = {row["_key"]: row["n"] for row in run.rows()}
    expected = {str(n * 3 + number): float(n + 40) for number in range(3) for n in range(20)}
    for n in range(10):
        del expected[str(n * 3)]
    assert stored_rows == {**expected, "30": 0.5}
    assert len(run.rows()) == len(stored_rows)
    paths = [str(file.path).removeprefix("file://") for file in run.writer.rows.files()]
    rows = session.read.option("mergeSchema", "true").parquet(*paths)
    assert rows.count() == len(expected)
    assert rows.where("n = 0.5").count() == 1


@pytest.mark.parametrize(("moment", "count"), [("files", 2), ("letters", 2), ("commit", 3)])
def test_a_killed_driver_loses_and_duplicates_no_rows(
    cluster: Cluster, tmp_path: Path, moment: str, count: int
) -> None:
    topic = cluster.new_topic(2)
    definition = define(cluster, topic)
    home = home_in(tmp_path)
    home.save(definition)
    for number in range(2):
        produce(
            cluster,
            topic,
            *((b"k", b"bad" if n % 50 == 7 else {"n": n, f"column-{n // 100}": n}) for n in range(300)),
            partition=number,
        )
    killed = run_in_process(home, moment, count)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = run_in_process(home, "never", 0)
    assert finished.returncode == 0, finished.stderr
    run = LocalRun(home, definition)
    rows, dead = run.rows(), run.dead()
    assert [(row["_partition"], row["_offset"]) for row in rows] == [
        (number, n) for number in range(2) for n in range(300) if n % 50 != 7
    ]
    assert all(row["n"] == row[f"column-{row['n'] // 100}"] for row in rows)
    assert [(row["partition"], row["offset"]) for row in dead] == [
        (n, offset) for n in range(2) for offset in range(7, 300, 50)
    ]


def run_in_process(home: TableHome, moment: str, count: int) -> "subprocess.CompletedProcess[str]":
    """Run a table in a process that may be killed. Its JVM exits when it notices that its driver is gone."""
    command = [sys.executable, "-m", "tests.spark.tables.dying_run", str(home.folder), "orders", moment, str(count)]
    environment = {**os.environ, "JAVA_HOME": str(java().parents[1])}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def test_errors_of_the_source_are_one_line(cluster: Cluster, session: SparkSession, tmp_path: Path) -> None:
    topic = cluster.new_topic(1)
    definition = define(cluster, topic)
    produce(cluster, topic, *((b"a", {"n": n}) for n in range(10)))
    run_once(session, tmp_path, definition)
    produce(cluster, topic, *((b"a", {"n": n}) for n in range(10)))
    partition = TopicPartition(topic, 0, 15)
    for future in cluster.admin.delete_records([partition]).values():
        future.result()
    with pytest.raises(TableError, match=rf"^table 'orders': .*topic '{topic}', partition 0.*offset 10") as caught:
        run_once(session, tmp_path, definition)
    assert "\n" not in str(caught.value)
    assert "at org.apache" not in str(caught.value)
    assert "To continue with the remaining records, use --skip-lost" in str(caught.value)
    (done,) = run_once(session, tmp_path, definition, skip_lost=True)
    assert done.rows == 5


def test_a_run_continues_until_it_is_stopped_or_its_topic_is_recreated(cluster: Cluster, tmp_path: Path) -> None:
    topic, home = cluster.new_topic(1), home_in(tmp_path)
    definition = define(cluster, topic)
    home.save(definition)
    produce(cluster, topic, (b"a", {"n": 0}))
    with running_command(home, "--interval", "0.5") as process:
        for number in range(1, 4):
            wait_for_rows(home, definition, number)
            produce(cluster, topic, (b"a", {"n": number}))
        wait_for_rows(home, definition, 4)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    with running_command(home, "--interval", "0.5") as process:
        produce(cluster, topic, (b"a", {"n": 4}))
        wait_for_rows(home, definition, 5)
        for future in cluster.admin.delete_topics([topic]).values():
            future.result()
        cluster.create(topic, 1)
        produce(cluster, topic, *((b"a", {"n": n}) for n in range(100, 110)))
        assert process.wait(120) == 1
        assert process.stderr is not None
        errors = process.stderr.read()
    assert f"topic '{topic}' was recreated" in errors
    assert "Traceback" not in errors
    assert sorted(row["n"] for row in stored(home, definition)) == [0, 1, 2, 3, 4]


@contextlib.contextmanager
def running_command(home: TableHome, *words: str) -> Iterator["subprocess.Popen[str]"]:
    spark = ("--spark", "spark.driver.host=127.0.0.1", "--spark", "spark.driver.memory=512m", "--master", "local[2]")
    command = [sys.executable, "-m", "ottla", "table", "run", "orders", "--home", str(home.folder), *words, *spark]
    environment = {**os.environ, "JAVA_HOME": str(java().parents[1])}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_rows(home: TableHome, definition: Definition, count: int) -> None:
    deadline = time.monotonic() + 180
    while len(stored(home, definition)) < count:
        assert time.monotonic() < deadline, f"{len(stored(home, definition))} of {count} rows"
        time.sleep(0.5)


def stored(home: TableHome, definition: Definition) -> list[dict[str, Any]]:
    store = open_store(home, definition, definition.name)
    return read(store) if store.exists() else []
