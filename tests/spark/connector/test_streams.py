"""The source of a streaming query against real nodes, called as Spark calls it."""

import json
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from ottla.spark.connector.data_source import OttlaDataSource
from ottla.spark.connector.micro_batch_reader import StreamPlanner
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.positions import from_json
from ottla.spark.connector.range_reader import DataLost
from ottla.spark.connector.read_options import parse_read_options
from tests.spark.clusters import Cluster


def open_stream(cluster: Cluster, topic: str, **options: str) -> StreamPlanner:
    given = cluster.options(subscribe=topic, **options)
    return StreamPlanner(parse_read_options(given, streaming=True))


def committed(cluster: Cluster, group: str) -> Mapping[int, int]:
    future = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {position.partition: position.offset for position in future.result().topic_partitions}


def test_a_query_starts_at_the_end_or_at_its_starting_offsets(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    cluster.fill(topic, 30)
    assert open_stream(cluster, topic).initial() == {(topic, number): 10 for number in range(3)}
    assert open_stream(cluster, topic, startingOffsets="earliest").initial() == {(topic, n): 0 for n in range(3)}
    given = json.dumps({topic: {"0": 3, "1": -1, "2": -2}})
    initial = open_stream(cluster, topic, startingOffsets=given).initial()
    assert initial == {(topic, 0): 3, (topic, 1): 10, (topic, 2): 0}


def test_a_micro_batch_takes_new_records_up_to_its_limit(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    stream = open_stream(cluster, topic)
    start = stream.initial()
    assert stream.next_end(start, None, waits=False) == start
    cluster.fill(topic, 90)
    half = stream.next_end(start, 45, waits=True)
    assert half == {(topic, number): 15 for number in range(3)}
    assert stream.latest() == {(topic, number): 30 for number in range(3)}
    assert [part.size for part in stream.plan(start, half)] == [15, 15, 15]
    assert stream.next_end(half, None, waits=False) == stream.latest()
    # The same batch after a restart is planned the same way.
    assert open_stream(cluster, topic).plan(start, half) == stream.plan(start, half)


def test_a_small_micro_batch_waits(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    start = {(topic, 0): 0}
    cluster.fill(topic, 5, partitions=1)
    patient = open_stream(cluster, topic, minOffsetsPerTrigger="6")
    assert patient.next_end(start, None, waits=True) == start
    hasty = open_stream(cluster, topic, minOffsetsPerTrigger="6", maxTriggerDelay="0ms")
    assert hasty.next_end(start, None, waits=True) == {(topic, 0): 5}
    cluster.fill(topic, 1, partitions=1)
    assert patient.next_end(start, None, waits=True) == {(topic, 0): 6}


def test_available_now_does_not_see_what_comes_later(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    cluster.fill(topic, 10, partitions=1)
    stream = open_stream(cluster, topic, startingOffsets="earliest", minOffsetsPerTrigger="100")
    start = stream.initial()
    stream.fix_target()
    cluster.fill(topic, 10, partitions=1)
    middle = stream.next_end(start, 7, waits=True)
    assert middle == {(topic, 0): 7}
    assert stream.next_end(middle, 7, waits=True) == {(topic, 0): 10}
    assert stream.next_end({(topic, 0): 10}, 7, waits=True) == {(topic, 0): 10}


def test_new_partitions_are_read_from_their_beginning(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    cluster.fill(topic, 5, partitions=1)
    stream = open_stream(cluster, topic)
    start = stream.initial()
    for future in cluster.admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result()
    producer = cluster.producer()
    for _ in range(4):
        producer.produce(topic, b"new", partition=1)
    assert producer.flush(30) == 0
    stop = stream.next_end(start, None, waits=False)
    assert stop == {(topic, 0): 5, (topic, 1): 4}
    assert [(part.partition, part.start, part.stop) for part in stream.plan(start, stop)] == [(1, 0, 4)]


def test_a_topic_that_ends_before_the_query_is_data_loss(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    cluster.fill(topic, 5, partitions=1)
    start = {(topic, 0): 50}
    with pytest.raises(
        DataLost, match=f"topic '{topic}', partition 0: it ends at offset 5, but the query is at offset 50"
    ):
        open_stream(cluster, topic).next_end(start, None, waits=False)
    assert open_stream(cluster, topic, failOnDataLoss="false").next_end(start, None, waits=False) == start
    gone = {(topic, 0): 5, (topic, 7): 3}
    with pytest.raises(DataLost, match=f"topic '{topic}', partition 7: the partition no longer exists"):
        open_stream(cluster, topic).next_end(gone, None, waits=False)
    assert open_stream(cluster, topic, failOnDataLoss="false").next_end(gone, None, waits=False) == {(topic, 0): 5}


def test_a_checkpoint_of_another_query_is_rejected(cluster: Cluster) -> None:
    topic, other = cluster.new_topic(1), cluster.new_topic(1)
    message = f"the checkpoint belongs to a query that reads {other}, but this query reads {topic}; use a new"
    with pytest.raises(OptionError, match=f"option checkpointLocation: {message}"):
        open_stream(cluster, topic, failOnDataLoss="false").next_end({(other, 0): 0}, None, waits=False)
    more = open_stream(cluster, f"{topic},{other}")
    assert more.next_end({(other, 0): 0}, None, waits=False) == {(topic, 0): 0, (other, 0): 0}
    for offset in ({"offset": 7}, {"t": {"0": "x"}}, {"t": {"x": 1}}):
        with pytest.raises(OptionError, match="option checkpointLocation: the checkpoint belongs to a query with ano"):
            from_json(offset)  # type: ignore[arg-type]


def test_finished_offsets_are_committed_for_the_group(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    cluster.fill(topic, 30)
    group = f"group-of-{topic}"
    stream = open_stream(cluster, topic, kafka__group__id=group, startingOffsets="earliest")
    start = stream.initial()
    stop = stream.next_end(start, None, waits=False)
    assert committed(cluster, group) == {0: 0, 1: 0, 2: 0}
    stream.next_end(stop, None, waits=False)
    assert committed(cluster, group) == {0: 10, 1: 10, 2: 10}


def test_a_group_with_members_fails_the_query(cluster: Cluster) -> None:
    topic = cluster.new_topic(1)
    group = f"group-of-{topic}"
    member = Consumer({"bootstrap.servers": cluster.address, "group.id": group, "log_level": 0})
    try:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        stream = open_stream(cluster, topic, kafka__group__id=group)
        with pytest.raises(OptionError, match=rf"kafka\.group\.id: commit for group '{group}', topic '{topic}'"):
            stream.next_end({(topic, 0): 0}, None, waits=False)
    finally:
        member.close()


def test_small_partitions_share_a_task_unless_the_query_splits_them(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    cluster.fill(topic, 30)

    def tasks(**options: str) -> list[int]:
        source = OttlaDataSource(cluster.options(subscribe=topic, **options))
        reader = source.reader(source.schema())
        return [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]

    assert tasks() == [30]
    assert tasks(minPartitions="3") == [10, 10, 10]
    assert tasks(maxRecordsPerPartition="5") == [5] * 6
