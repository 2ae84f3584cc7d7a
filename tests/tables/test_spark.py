"""Tables kept by Spark, with real nodes and sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.tables.definition import Definition
from ottla.tables.keeper import Done
from ottla.tables.maintenance import Upkeep
from ottla.tables.spark import TableQuery, keep_tables, start_session
from tests.interop.kafka_jars import java
from tests.pipeline.clusters import Cluster
from tests.tables.local import LocalRun, define, home_in, produce

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


def keep(session: SparkSession, folder: Path, definition: Definition, max_records: int = 1000) -> list[Done]:
    told: list[Done] = []
    query = TableQuery(
        session,
        home_in(folder),
        definition,
        max_records=max_records,
        interval_s=None,
        upkeep=Upkeep(),
        told=lambda _, done: told.append(done),
    )
    keep_tables([query], lambda words: pytest.fail(words))
    return told


def test_a_topic_becomes_a_table(cluster: Cluster, session: SparkSession, tmp_path: Path) -> None:
    topic = cluster.new_topic(2)
    for number in range(2):
        produce(cluster, topic, *((b"%d" % n, {"id": n}) for n in range(100)), partition=number)
    definition = define(cluster, topic)
    assert sum(done.rows for done in keep(session, tmp_path, definition, max_records=120)) == 200
    produce(cluster, topic, (b"x", {"id": 100, "note": "new"}), (b"y", b"bad"))
    (done,) = keep(session, tmp_path, definition)
    assert (done.rows, done.dead, done.new_columns) == (1, 1, ("note",))
    run = LocalRun(home_in(tmp_path), definition)
    assert sorted(row["id"] for row in run.rows()) == sorted([*range(100), *range(100), 100])
