"""Jobs on Spark give the same with `format("ottla")` as with Spark's own `format("kafka")`, option by option."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, count, expr, struct, to_json

from tests.spark.clusters import Cluster

# The first test starts Java and waits for its compiler.
pytestmark = [pytest.mark.timeout(600), pytest.mark.spark]

COUNT = 300
TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def orders(ottla: Cluster) -> str:
    topic = ottla.new_topic()
    ottla.fill(topic, COUNT, settings={"compression.type": "zstd"})
    ottla.transact(topic, [(True, [b"kept"] * 5), (False, [b"undone"] * 5), (True, [b"kept too"])], partition=1)
    return topic


def read(spark: SparkSession, cluster: Cluster, kind: str, **options: str) -> DataFrame:
    given = {"kafka.isolation.level": "read_committed", **cluster.options(**options)}
    return spark.read.format(kind).options(**given).load()


def stream(spark: SparkSession, cluster: Cluster, kind: str, **options: str) -> DataFrame:
    given = {"kafka.isolation.level": "read_committed", **cluster.options(**options)}
    return spark.readStream.format(kind).options(**given).load()


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def by_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


OPTIONS: dict[str, Callable[[str], dict[str, str]]] = {
    "subscribe": lambda topic: {"subscribe": topic},
    "subscribePattern and headers": lambda topic: {"subscribePattern": topic[:-1] + ".", "includeHeaders": "true"},
    "assign": lambda topic: {"assign": json.dumps({topic: [0, 2]})},
    "offsets": lambda topic: {
        "subscribe": topic,
        "startingOffsets": by_partition(topic, 10, -2, 50),
        "endingOffsets": by_partition(topic, 90, -1, 60),
    },
    "one time": lambda topic: {"subscribe": topic, "startingTimestamp": str(TIME + 30_000)},
    "times": lambda topic: {
        "assign": json.dumps({topic: [0, 2]}),
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": TIME + 9_000, "2": TIME + 100_000}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": TIME + 90_000, "2": TIME * 2}}),
    },
    "minPartitions": lambda topic: {"subscribe": topic, "minPartitions": "5"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_batch_query_gives_the_rows_of_sparks_connector(
    spark: SparkSession, ottla: Cluster, orders: str, name: str
) -> None:
    options = OPTIONS[name](orders)
    ours, theirs = read(spark, ottla, "ottla", **options), read(spark, ottla, "kafka", **options)
    assert ours.schema == theirs.schema
    rows = rows_of(ours)
    assert rows == rows_of(theirs)
    assert rows


def test_an_apache_kafka_cluster_can_be_read(spark: SparkSession, kafka: Cluster) -> None:
    topic = kafka.new_topic()
    kafka.fill(topic, COUNT, settings={"compression.type": "snappy"})
    kafka.transact(topic, [(False, [b"undone"]), (True, [b"kept"])])
    ours = rows_of(read(spark, kafka, "ottla", subscribe=topic, includeHeaders="true"))
    assert ours == rows_of(read(spark, kafka, "kafka", subscribe=topic, includeHeaders="true"))
    assert len(ours) == COUNT + 1


def test_only_the_columns_of_the_schema_are_read(spark: SparkSession, ottla: Cluster, orders: str) -> None:
    reader = spark.read.format("ottla").options(**ottla.options(subscribe=orders))
    assert reader.schema("offset long, value binary").load().columns == ["offset", "value"]
    assert reader.schema("partition int").load().groupBy("partition").count().count() == 3
    with pytest.raises(AnalysisException, match="there is no column 'price'"):
        reader.schema("price double").load().collect()
    with pytest.raises(AnalysisException, match="column 'value' is binary, not string"):
        reader.schema("value string").load().collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "missing"}, "topic 'missing': there is no such topic"),
        ({"subscribee": "orders"}, "option subscribee: there is no such option; did you mean subscribe?"),
        ({"subscribe": "orders", "startingOffsets": "latest"}, "option startingOffsets: a batch query cannot use"),
    ],
)
def test_a_wrong_option_is_reported_without_a_java_stack_trace(
    spark: SparkSession, ottla: Cluster, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ottla").options(**ottla.options(**options)).load().collect()
    assert message in str(caught.value)
    assert "at org.apache.spark" not in str(caught.value)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Return a function that runs a query over all records and returns its progress."""

    def until_done(
        frame: DataFrame, kind: str, name: str = "query", mode: str = "append", **options: str
    ) -> list[dict[str, Any]]:
        writer = frame.writeStream.format(kind).outputMode(mode).options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300), "the query does not end"
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    yield until_done
    for query in spark.streams.active:
        query.stop()


def test_a_stream_gives_the_rows_of_sparks_connector_and_resumes_from_its_checkpoint(
    spark: SparkSession, ottla: Cluster, run: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    topic = ottla.new_topic()
    ottla.fill(topic, 120)
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "50",
        "includeHeaders": "true",
    }
    group = f"group-of-{topic}"
    for round_ in range(2):
        for kind in ("ottla", "kafka"):
            extra = {"kafka__group__id": group} if kind == "ottla" else {}
            frame = stream(spark, ottla, kind, **options, **extra)
            progress = run(frame, "parquet", kind, path=str(tmp_path / f"{kind}-rows"))
            batches = [batch["numInputRows"] for batch in progress]
            assert batches[:1] == ([48] if round_ == 0 else [30]), kind  # each partition's share of 50, rounded down
            assert sum(batches) == (120 if round_ == 0 else 30), kind
            assert progress[-1]["sources"][0]["endOffset"] == progress[-1]["sources"][0]["latestOffset"]
        ours, theirs = (rows_of(spark.read.parquet(str(tmp_path / f"{kind}-rows"))) for kind in ("ottla", "kafka"))
        assert ours == theirs
        # The offsets of the last batch are committed as well.
        committed = ottla.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        assert sum(partition.offset for partition in committed.topic_partitions) == len(ours)
        ottla.fill(topic, 30)


def test_a_batch_is_written_once_although_a_task_fails(spark: SparkSession, ottla: Cluster) -> None:
    topic = ottla.new_topic()

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if context.attemptNumber() == 0 and context.partitionId() == 1 and number == 1:
                raise ValueError("a task fails after its first rows")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        frame = spark.range(0, 400, 1, 3).selectExpr("cast(id as string) key", "cast(id as string) value")
        failing = frame.mapInArrow(fail_once, frame.schema)
        failing.write.format("ottla").mode("append").options(**ottla.options(topic=topic)).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    written = ottla.consume(topic)
    assert Counter(int(row["value"]) for row in written) == Counter(range(400))
    assert all(row["key"] == row["value"] for row in written)


def test_columns_choose_where_rows_go(spark: SparkSession, ottla: Cluster) -> None:
    topic = ottla.new_topic(4)
    frame = spark.range(0, 40, 1, 2).select(
        expr(f"'{topic}'").alias("topic"),
        expr("cast(id % 4 as int)").alias("partition"),
        expr("cast(null as binary)").alias("key"),
        to_json(struct(col("id"))).alias("value"),
        expr("array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary)))").alias("headers"),
        col("id").alias("ignored"),
    )
    frame.write.format("ottla").mode("append").options(**ottla.options(guarantee="at-least-once")).save()
    rows = ottla.consume(topic)
    assert Counter(row["partition"] for row in rows) == Counter(dict.fromkeys(range(4), 10))
    assert all(json.loads(row["value"])["id"] % 4 == row["partition"] for row in rows)
    assert all(row["headers"][0]["key"] == "h" for row in rows)
    with pytest.raises(PySparkException, match="option mode: a topic cannot be overwritten; use mode"):
        frame.write.format("ottla").mode("overwrite").options(**ottla.options(topic=topic)).save()
    writer = frame.drop("topic").write.format("ottla").mode("append").options(**ottla.options())
    with pytest.raises(PySparkException, match="option topic: is missing, and there is no column 'topic'"):
        writer.save()


def test_a_stateful_stream_with_a_shuffle_is_written_once(
    spark: SparkSession, ottla: Cluster, run: Callable[..., list[dict[str, Any]]]
) -> None:
    source, sink = ottla.new_topic(), ottla.new_topic(2)
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    for _ in range(2):
        ottla.fill(source, 90)  # the second time, the same keys again
        frame = stream(spark, ottla, "ottla", **options).select("key", "value").dropDuplicates(["key"])
        progress = run(frame, "ottla", **ottla.options(topic=sink))
        assert len(progress) == 2
    keys = Counter(row["key"] for row in ottla.consume(sink))
    assert keys == Counter([None, *(b"key %d" % number for number in range(90) if number % 7)])


def test_complete_mode_writes_the_whole_result_in_each_batch(
    spark: SparkSession, ottla: Cluster, run: Callable[..., list[dict[str, Any]]]
) -> None:
    source, sink = ottla.new_topic(), ottla.new_topic(1)
    ottla.fill(source, 90)
    read_all = stream(spark, ottla, "ottla", subscribe=source, startingOffsets="earliest")
    totals = read_all.groupBy(expr("cast(partition as string)").alias("key")).agg(count("*").alias("total"))
    frame = totals.selectExpr("key", "cast(total as string) value")
    run(frame, "ottla", mode="complete", **ottla.options(topic=sink))
    assert {row["key"]: row["value"] for row in ottla.consume(sink)} == {b"0": b"30", b"1": b"30", b"2": b"30"}


def test_sparks_own_connector_works_with_ottla_as_its_cluster(
    spark: SparkSession, ottla: Cluster, run: Callable[..., list[dict[str, Any]]]
) -> None:
    source, sink = ottla.new_topic(), ottla.new_topic()
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")
    frame.write.format("kafka").options(**ottla.options(topic=source)).save()
    copied = stream(spark, ottla, "kafka", subscribe=source, startingOffsets="earliest").select("key", "value")
    run(copied, "kafka", **ottla.options(topic=sink))
    assert Counter(int(row["value"]) for row in ottla.consume(sink)) == Counter(range(100))


def test_a_stream_reports_that_its_topic_lost_records(
    spark: SparkSession, ottla: Cluster, run: Callable[..., list[dict[str, Any]]]
) -> None:
    topic = ottla.new_topic(1)
    ottla.fill(topic, 10, partitions=1)
    given = {"subscribe": topic, "startingOffsets": by_partition(topic, 20)}
    with pytest.raises(StreamingQueryException) as caught:
        run(stream(spark, ottla, "ottla", **given), "noop")
    assert f"topic '{topic}', partition 0: it ends at offset 10, but the query is at offset 20" in str(caught.value)
