"""Rows written to real nodes, and read back by librdkafka."""

from collections import Counter

import pyarrow as pa
import pytest

from ottla.client.partitioning import partition_for_key
from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.rows import BadRow
from ottla.spark.connector.task_writer import write_at_least_once
from ottla.spark.connector.write_options import WriteOptions, parse_write_options
from tests.spark.clusters import Cluster


def options_of(cluster: Cluster, **given: str) -> WriteOptions:
    return parse_write_options(cluster.options(guarantee="at-least-once", **given))


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([None if number % 7 == 0 else f"key {number}" for number in range(count)]),
            "value": pa.array([None if number % 11 == 0 else b"%d" % number for number in range(count)], pa.binary()),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}] if number % 3 == 0 else None for number in range(count)],
                TYPES["headers"],
            ),
        }
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.usefixtures("form")
def test_rows_are_written_unchanged(cluster: Cluster, codec: str) -> None:
    topic = cluster.new_topic()
    batch = rows(500)
    options = options_of(cluster, topic=topic, kafka__compression__type=codec, kafka__batch__size="3000")
    assert write_at_least_once(options, [batch.slice(0, 200), batch.slice(200)]) == 500
    written = cluster.consume(topic)
    wanted = [(row["key"] and row["key"].encode(), row["value"], row["headers"]) for row in batch.to_pylist()]
    read_back = [(row["key"], row["value"], row["headers"]) for row in written]
    assert sorted(map(repr, read_back)) == sorted(map(repr, wanted))
    assert all(row["partition"] == partition_for_key(row["key"], 3) for row in written if row["key"])
    # Within a partition, rows with keys keep their order.
    for partition in range(3):
        ours = [row["key"] for row in written if row["partition"] == partition and row["key"]]
        assert ours == [key for key, _, _ in wanted if key and partition_for_key(key, 3) == partition]


@pytest.mark.usefixtures("form")
def test_columns_choose_topic_and_partition(cluster: Cluster) -> None:
    one, two = cluster.new_topic(2), cluster.new_topic(4)
    batch = pa.record_batch(
        {
            "topic": pa.array([one, two] * 20),
            "partition": pa.array([1, 3, None, None] * 10, pa.int32()),
            "key": pa.array([b"same"] * 40, pa.binary()),
            "value": pa.array([str(number) for number in range(40)]),
        }
    )
    write_at_least_once(options_of(cluster), [batch])
    assert Counter(row["partition"] for row in cluster.consume(one)) == Counter(
        [1] * 10 + [partition_for_key(b"same", 2)] * 10
    )
    assert Counter(row["partition"] for row in cluster.consume(two)) == Counter(
        [3] * 10 + [partition_for_key(b"same", 4)] * 10
    )
    # The option takes precedence over the column.
    write_at_least_once(options_of(cluster, topic=two), [batch.slice(2, 1)])
    assert len(cluster.consume(two)) == 21


def test_rows_without_keys_are_spread_in_batches(cluster: Cluster) -> None:
    topic = cluster.new_topic(3)
    batch = pa.record_batch({"value": pa.array([b"x" * 100] * 900, pa.binary())})
    write_at_least_once(options_of(cluster, topic=topic, kafka__batch__size="10000"), [batch])
    assert all(count >= 200 for count in Counter(row["partition"] for row in cluster.consume(topic)).values())


def test_acks_0_and_1_need_no_producer_id(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    for acks in ("1", "0"):
        write_at_least_once(options_of(cluster, topic=topic, kafka__acks=acks), [rows(10)])
    assert len(cluster.consume(topic)) == 20


def test_a_record_larger_than_a_request_is_rejected(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    large = pa.record_batch({"value": pa.array([b"s", b"x" * 900_000, b"t"], pa.binary())})
    write_at_least_once(options_of(cluster, topic=topic), [large])
    assert [len(row["value"]) for row in cluster.consume(topic)] == [1, 900_000, 1]
    larger = pa.record_batch({"value": pa.array([b"x" * 1_100_000], pa.binary())})
    with pytest.raises(
        BadRow, match=rf"topic '{topic}': a record is larger than kafka\.max\.request\.size=1048576 bytes"
    ):
        write_at_least_once(options_of(cluster, topic=topic), [larger])


def test_bad_rows_are_reported(cluster: Cluster) -> None:
    topic = cluster.new_topic(2)
    somewhere = pa.record_batch({"value": ["x"], "partition": pa.array([2], pa.int32())})
    with pytest.raises(BadRow, match=f"column partition: topic '{topic}' has no partition 2; use 0 to 1"):
        write_at_least_once(options_of(cluster, topic=topic), [somewhere])
    nowhere = pa.record_batch({"value": ["x", "y"], "topic": pa.array([topic, None])})
    with pytest.raises(BadRow, match="column topic: a row has null"):
        write_at_least_once(options_of(cluster), [nowhere])
    with pytest.raises(UnknownTopicOrPartition, match="topic 'missing': there is no such topic"):
        write_at_least_once(options_of(cluster, topic="missing"), [rows(1)])
    small = cluster.new_topic(1, max_message_bytes="1000")
    with pytest.raises(ApiError, match=f"topic '{small}', partition 0"):
        write_at_least_once(options_of(cluster, topic=small), [rows(500)])
