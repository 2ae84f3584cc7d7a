"""Jobs on Spark read values as columns, and report wrong input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.clusters import Cluster
from tests.spark.connector.registries import framed, serving
from tests.spark.connector.test_values import AVRO, ORDER, avro

pytestmark = [pytest.mark.timeout(600), pytest.mark.spark]

DDL = "id long, at timestamp, tags array<string>, of struct<x: decimal(6,2)>"
GOOD = b'{"id": %d, "at": "2026-01-31T12:00:00Z", "tags": ["a"], "of": {"x": 1.25}}'


@pytest.fixture
def orders(ottla: Cluster) -> str:
    topic = ottla.new_topic()
    send(ottla, topic, [b"no JSON" if number % 10 == 0 else GOOD % number for number in range(90)])
    return topic


def send(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    producer = cluster.producer()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(30) == 0


def run(frame: DataFrame, folder: Path, name: str = "query") -> None:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / name))
    query = writer.option("path", str(folder / f"{name}-rows")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300), "the query does not end"
    finally:
        query.stop()


def test_a_batch_query_reads_json(spark: SparkSession, ottla: Cluster, orders: str) -> None:
    options = ottla.options(subscribe=orders, value__format="json")
    frame = spark.read.format("ottla").options(**options).option("value.schema", DDL).load()
    assert frame.where("bad is not null").count() == 9
    row = frame.where("value.id = 11").selectExpr("value.*", "cast(value.at as string) text").first()
    assert row is not None
    assert (row["tags"], str(row["of"]["x"]), row["text"]) == (["a"], "1.25", "2026-01-31 12:00:00")
    # The query's own schema gives the same; an inferred schema has times as text.
    own = spark.read.format("ottla").options(**options).schema("value struct<id: bigint>, offset long").load()
    assert own.where("value is not null").selectExpr("sum(value.id)").first() == (sum(n for n in range(90) if n % 10),)
    inferred = spark.read.format("ottla").options(**options).load()
    assert inferred.select("value.*").dtypes[:2] == [("id", "bigint"), ("at", "string")]


def test_a_stream_reads_avro_of_a_registry_and_sends_bad_values_to_dead_letters(
    spark: SparkSession, ottla: Cluster, tmp_path: Path
) -> None:
    topic, dead = ottla.new_topic(), ottla.new_topic(1)
    with serving() as registry:
        number = registry.register(f"{topic}-value", "AVRO", json.dumps(AVRO))
        send(ottla, topic, [framed(number, avro(AVRO, {**ORDER, "id": order})) for order in range(30)] + [b"bad"] * 3)
        options = ottla.options(subscribe=topic, startingOffsets="earliest", value__format="avro")
        stream = spark.readStream.format("ottla").options(**options).option("value.registry", registry.address)
        run(stream.option("value.deadLetterTopic", dead).load().select("value.*"), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "query-rows"))
    assert sorted(row["id"] for row in rows.collect()) == list(range(30))
    assert rows.first()["lines"] == [{"a": 1}]  # type: ignore[index]
    assert [row["value"] for row in ottla.consume(dead)] == [b"bad"] * 3


def missing_topic(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    run(stream_of(spark, ottla, "missing"), folder)


def unknown_option(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    run(stream_of(spark, ottla, topic, value__fromat="json"), folder)


def offset_out_of_range(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    offsets = json.dumps({topic: {"0": 0, "1": 1000, "2": 0}})
    spark.read.format("ottla").options(**ottla.options(subscribe=topic, endingOffsets=offsets)).load().count()


def bad_json(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    run(stream_of(spark, ottla, topic, value__format="json", value__schema=DDL, value__onError="fail"), folder)


def changed_schema(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    changed = ottla.new_topic()
    send(ottla, changed, [GOOD % 1, GOOD % 2, b'{"id": 3, "of": {"x": "much"}}'])
    run(stream_of(spark, ottla, changed, value__format="json", value__schema=DDL, value__onError="fail"), folder)


def unreachable_broker(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    options = {"kafka__bootstrap__servers": "127.0.0.1:1", "kafka__default__api__timeout__ms": "2000"}
    run(stream_of(spark, ottla, topic, **options), folder)


def wrong_checkpoint(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    run(stream_of(spark, ottla, topic).select("offset"), folder)
    run(stream_of(spark, ottla, ottla.new_topic(1)).select("offset"), folder)


def checkpoint_of_another_source(spark: SparkSession, ottla: Cluster, topic: str, folder: Path) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    run(rate.selectExpr("value as offset"), folder)
    run(stream_of(spark, ottla, topic).select("offset"), folder)


def stream_of(spark: SparkSession, ottla: Cluster, topic: str, **options: str) -> DataFrame:
    given = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("ottla").options(**ottla.options(subscribe=topic, **given)).load()


WRONG: dict[Callable[[SparkSession, Cluster, str, Path], Any], str] = {
    unknown_option: "option value.fromat: there is no such option; did you mean value.format?",
    missing_topic: "topic 'missing': there is no such topic",
    offset_out_of_range: "option endingOffsets: offset 1000 of topic '{topic}', partition 1 does not exist",
    # The partition is that of the first task.
    bad_json: ": cannot decode the value: not JSON: Invalid value. To continue with bad values in the column 'bad'",
    changed_schema: "partition 2, offset 0: cannot decode the value: column of.x: ",
    unreachable_broker: "127.0.0.1:1 cannot be reached: connection refused",
    wrong_checkpoint: "the checkpoint belongs to a query that reads {topic}, but this query reads topic-",
    checkpoint_of_another_source: "option checkpointLocation: the checkpoint belongs to a query with another source",
}


@pytest.mark.parametrize("job", WRONG, ids=lambda job: job.__name__)
def test_wrong_input_is_reported_without_a_java_stack_trace(
    spark: SparkSession, ottla: Cluster, orders: str, tmp_path: Path, job: Callable[..., None]
) -> None:
    with pytest.raises(PySparkException) as caught:
        job(spark, ottla, orders, tmp_path)
    message = str(caught.value)
    assert WRONG[job].replace("{topic}", orders) in message
    assert "at org.apache.spark" not in message.split(WRONG[job].split("{")[0])[0]
