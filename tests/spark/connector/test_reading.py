"""Batch queries against real nodes: every option, and the same records that librdkafka sees."""

import gc
import json
import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.micro_batch_reader import plan_batch, read_range
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.range_reader import DataLost
from ottla.spark.connector.read_options import parse_read_options
from tests.spark.clusters import ALL_COLUMNS, Cluster, comparable

COUNT = 300


@pytest.fixture(scope="module")
def topics() -> dict[str, str]:
    return {}


@pytest.fixture
def orders(cluster: Cluster, topics: dict[str, str]) -> str:
    """A topic of 300 records in three partitions, 100 in each."""
    if cluster.address not in topics:
        topics[cluster.address] = cluster.new_topic()
        cluster.fill(topics[cluster.address], COUNT)
    return topics[cluster.address]


def values(rows: list[dict[str, Any]]) -> list[bytes | None]:
    return [row["value"] for row in rows]


def by_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.usefixtures("form")
def test_rows_are_those_that_librdkafka_reads(cluster: Cluster, codec: str) -> None:
    topic = cluster.new_topic()
    cluster.fill(topic, COUNT, settings={"compression.type": codec})
    rows = cluster.read(subscribe=topic)
    assert len(rows) == COUNT
    assert comparable(rows) == cluster.consume(topic)
    assert {row["timestampType"] for row in rows} == {0}


def test_log_append_time_has_its_timestamp_type(cluster: Cluster) -> None:
    topic = cluster.new_topic(1, message_timestamp_type="LogAppendTime")
    cluster.fill(topic, 10, partitions=1)
    rows = cluster.read(subscribe=topic)
    assert {row["timestampType"] for row in rows} == {1}
    assert comparable(rows) == cluster.consume(topic)


def test_a_subset_of_columns_can_be_read_in_any_order(cluster: Cluster, orders: str) -> None:
    whole = cluster.read(subscribe=orders)
    names = ("offset", "value", "partition")
    rows = cluster.read(pa.schema([(name, TYPES[name]) for name in names]), subscribe=orders)
    assert rows == [{name: row[name] for name in names} for row in whole]


def test_topics_are_subscribed_by_name_pattern_and_partition(cluster: Cluster, orders: str) -> None:
    other = cluster.new_topic(1)
    cluster.fill(other, 5, partitions=1)
    assert len(cluster.read(subscribe=f"{orders},{other}")) == COUNT + 5
    assert len(cluster.read(subscribePattern=orders[:-1] + ".")) == COUNT
    assert cluster.read(subscribePattern="nothing-is-called-so-.*") == []
    rows = cluster.read(assign=json.dumps({orders: [1], other: [0]}))
    assert {(row["topic"], row["partition"]) for row in rows} == {(orders, 1), (other, 0)}
    assert len(rows) == 105


def test_offsets_limit_a_query(cluster: Cluster, orders: str) -> None:
    rows = cluster.read(
        subscribe=orders,
        startingOffsets=by_partition(orders, 10, -2, 99),
        endingOffsets=by_partition(orders, 20, 5, -1),
    )
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(10, 20)),
        *((1, offset) for offset in range(5)),
        (2, 99),
    ]
    assert len(cluster.read(subscribe=orders, startingOffsets="earliest", endingOffsets="latest")) == COUNT


def test_timestamps_limit_a_query(cluster: Cluster, orders: str) -> None:
    start = 1_700_000_000_000 + 30_000  # the time of record 30, which is offset 10 of partition 0
    rows = cluster.read(subscribe=orders, startingTimestamp=str(start), endingTimestamp=str(start + 30_000))
    assert sorted(row["offset"] for row in rows) == sorted([*range(10, 20)] * 3)
    times = by_partition(orders, start, start + 1000, start + 290_000)
    with pytest.raises(
        OptionError, match=f"startingOffsetsByTimestamp: topic '{orders}', partition 2 has no record with"
    ):
        cluster.read(subscribe=orders, startingOffsetsByTimestamp=times)
    rows = cluster.read(subscribe=orders, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest")
    assert {(row["partition"]) for row in rows} == {0, 1}
    assert len(rows) == 180
    # No record is that late, so the query reads to the end.
    assert len(cluster.read(subscribe=orders, endingOffsetsByTimestamp=by_partition(orders, *[start * 2] * 3))) == COUNT


def test_options_split_the_ranges(cluster: Cluster, orders: str) -> None:
    def sizes(**options: str) -> list[int]:
        plan = plan_batch(parse_read_options(cluster.options(subscribe=orders, **options), streaming=False))
        return [part.size for part in plan]

    assert sizes() == [100, 100, 100]
    assert sizes(minPartitions="6") == [50] * 6
    assert sizes(maxRecordsPerPartition="40") == [33, 33, 34] * 3
    assert sizes(minPartitions="2") == [100, 100, 100]
    whole = cluster.read(subscribe=orders)
    assert cluster.read(subscribe=orders, minPartitions="7") == whole


def test_aborted_transactions_and_markers_are_skipped(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    wanted = [(number % 3 != 0, [b"%d-%d" % (number, row) for row in range(4)]) for number in range(7)]
    cluster.transact(topic, wanted)
    cluster.fill(topic, 3, partitions=1)
    committed = [value for commit, batch in wanted if commit for value in batch]
    rows = cluster.read(subscribe=topic)
    assert values(rows)[: len(committed)] == committed
    assert comparable(rows) == cluster.consume(topic)
    # The marker of each transaction leaves a gap in the offsets, which is not data loss.
    assert rows[-1]["offset"] == 7 * 5 + 2
    everything = cluster.read(subscribe=topic, kafka__isolation__level="read_uncommitted")
    assert len(everything) == 7 * 4 + 3
    assert comparable(everything) == cluster.consume(topic, committed=False)
    # Ranges may begin or end inside a transaction.
    assert cluster.read(subscribe=topic, minPartitions="9") == rows


def test_an_open_transaction_is_not_read(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    producer = cluster.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    cluster.fill(topic, 5, partitions=1)
    assert cluster.read(subscribe=topic) == []
    producer.commit_transaction(30)
    deadline = time.monotonic() + 30
    while not (rows := cluster.read(subscribe=topic)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(rows) == 6


def test_deleted_records_fail_the_query_or_are_skipped(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    cluster.fill(topic, 50, partitions=1, settings={"batch.num.messages": 10})
    for future in cluster.admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        future.result()
    assert [row["offset"] for row in cluster.read(subscribe=topic)] == list(range(20, 50))
    from_start = {"subscribe": topic, "startingOffsets": by_partition(topic, 5)}
    with pytest.raises(DataLost, match=rf"topic '{topic}', partition 0, .*offset 5 does not exist.* 20 to 49"):
        cluster.read(**from_start)
    assert [row["offset"] for row in cluster.read(**from_start, failOnDataLoss="false")] == list(range(20, 50))
    beyond = {"subscribe": topic, "startingOffsets": by_partition(topic, 60)}
    with pytest.raises(DataLost, match="it ends at offset 50, but the query starts at 60"):
        cluster.read(**beyond)
    assert cluster.read(**beyond, failOnDataLoss="false") == []
    missing = rf"endingOffsets: offset 51 of topic '{topic}', partition 0 does not exist: the partition ends at 50"
    with pytest.raises(OptionError, match=missing):
        cluster.read(subscribe=topic, endingOffsets=by_partition(topic, 51))


def test_missing_topics_and_partitions_are_reported(cluster: Cluster, orders: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic 'missing': there is no such topic"):
        cluster.read(subscribe="missing")
    with pytest.raises(
        UnknownTopicOrPartition, match=f"topic '{orders}' has no partition 3; its partitions are 0 to 2"
    ):
        cluster.read(assign=json.dumps({orders: [0, 3]}))
    with pytest.raises(OptionError, match=f"startingOffsets: topic '{orders}', partition 2 is missing"):
        cluster.read(subscribe=orders, startingOffsets=by_partition(orders, 0, 0))
    with pytest.raises(OptionError, match=f"startingOffsets: topic '{orders}', partition 3 is not read by the query"):
        cluster.read(subscribe=orders, startingOffsets=by_partition(orders, 0, 0, 0, 0))


def test_an_unreachable_cluster_is_reported_with_its_address() -> None:
    unreachable = Cluster("127.0.0.1:1")
    with pytest.raises(ApiError, match=r"127\.0\.0\.1:1 cannot be reached"):
        unreachable.read(subscribe="orders", kafka__default__api__timeout__ms="200")


def test_large_records_and_many_fetches_are_complete(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    producer = cluster.producer()
    sent = [bytes([number % 251]) * (number * 997 % 60_000) for number in range(200)]
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    assert values(cluster.read(subscribe=topic, kafka__max__partition__fetch__bytes="100000")) == sent
    assert values(cluster.read(subscribe=topic, kafka__max__partition__fetch__bytes="1")) == sent


@pytest.mark.filterwarnings("ignore:unclosed")
def test_an_abandoned_reader_does_not_return_its_connection(ottla: Cluster) -> None:
    topic = ottla.new_topic(1)
    ottla.fill(topic, 10, partitions=1)
    parsed = parse_read_options(ottla.options(subscribe=topic, kafka__client__id="left-behind"), streaming=False)
    (wanted,) = plan_batch(parsed)
    for _ in range(3):
        left = read_range(parsed, wanted, ALL_COLUMNS)
        next(left)
        # A cycle, as an exception's traceback makes: the garbage collector finalizes the objects in any order.
        cycle: list[object] = [left]
        cycle.append(cycle)
        del left, cycle
        gc.collect()
        assert sum(batch.num_rows for batch in read_range(parsed, wanted, ALL_COLUMNS)) == 10
