"""Start and end positions of a consumer, and the records of transactions that it sees."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
from confluent_kafka import Producer as OtherProducer

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer, FromEnd, FromTimestamp
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.producer import Producer
from ottla.protocol.errors import OffsetOutOfRange, UnknownTopicOrPartition


def with_ten_records(address: str, topic: str, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster:
            # The timestamps are old: without this setting, retention would delete the records.
            await Admin(cluster).create_topic(topic, partitions=2, settings={"retention.ms": "-1"})
            async with Producer(cluster) as producer:
                for number in range(10):
                    await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000_000 + number * 10)
            await work(cluster)

    asyncio.run(main())


async def values(consumer: Consumer) -> list[int]:
    return [int(record.value or b"") async for chunk in consumer.chunks() for record in chunk.records]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0),
        (LATEST, 10),
        (4, 4),
        (FromTimestamp(1_000_041), 5),
        (FromTimestamp(9_000_000), 10),
        (FromEnd(3), 7),
    ],
)
def test_a_consumer_reads_from_its_start_to_the_end(
    address: str, topic: str, start: int | FromTimestamp | FromEnd, first: int
) -> None:
    async def work(cluster: Cluster) -> None:
        consumer = Consumer(cluster)
        await consumer.assign(topic, partitions=[0], start=start)
        assert await values(consumer) == list(range(first, 10))
        assert await values(consumer) == []
        assert consumer.positions == {(topic, 0): 10}

    with_ten_records(address, topic, work)


@pytest.mark.parametrize("sessions", [False, True])
def test_a_following_consumer_gets_later_records(address: str, topic: str, sessions: bool) -> None:
    async def work(cluster: Cluster) -> None:
        consumer = Consumer(cluster, sessions=sessions)
        await consumer.assign(topic, start=LATEST)
        values_read: list[tuple[int, bytes | None]] = []
        async with Producer(cluster, linger_s=0) as producer, aclosing(consumer.chunks(follow=True)) as chunks:
            for number in range(5):
                await producer.send(topic, b"new %d" % number, partition=number % 2)
                chunk = await anext(chunks)
                values_read += [(chunk.partition, record.value) for record in chunk.records]
        assert values_read == [(number % 2, b"new %d" % number) for number in range(5)]

    with_ten_records(address, topic, work)


def test_an_offset_out_of_range_is_an_error_or_is_reset(address: str, topic: str) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).delete_records({(topic, 0): 4})
        consumer = Consumer(cluster)
        await consumer.assign(topic, partitions=[0], start=2)
        with pytest.raises(
            OffsetOutOfRange, match=f"topic '{topic}', partition 0: offset 2 is out of range: .* 4 to 9"
        ):
            await values(consumer)
        consumer = Consumer(cluster, reset=EARLIEST)
        await consumer.assign(topic, partitions=[0], start=2)
        assert await values(consumer) == list(range(4, 10))

    with_ten_records(address, topic, work)


def test_unknown_topics_and_partitions_cannot_be_assigned(address: str, topic: str) -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(UnknownTopicOrPartition, match="has no partition 7"):
            await Consumer(cluster).assign(topic, partitions=[7])
        with pytest.raises(UnknownTopicOrPartition, match="no such topic"):
            await Consumer(cluster).assign(topic + "-none")

    with_ten_records(address, topic, work)


def test_a_consumer_sees_only_committed_records_by_default(kafka_address: str, topic: str) -> None:
    async def create() -> None:
        async with Cluster(kafka_address) as cluster:
            await Admin(cluster).create_topic(topic)

    asyncio.run(create())
    other = OtherProducer({"bootstrap.servers": kafka_address, "transactional.id": topic, "log_level": 0})
    other.init_transactions(30)
    for number, commits in enumerate((True, False, True)):
        other.begin_transaction()
        for _ in range(3):
            other.produce(topic, b"%d" % number)
        other.flush(30)
        (other.commit_transaction if commits else other.abort_transaction)(30)

    async def read(*, committed: bool) -> list[int]:
        async with Cluster(kafka_address) as cluster:
            consumer = Consumer(cluster, committed=committed)
            await consumer.assign(topic)
            return await values(consumer)

    assert asyncio.run(read(committed=True)) == [0, 0, 0, 2, 2, 2]
    assert asyncio.run(read(committed=False)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
