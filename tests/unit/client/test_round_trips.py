"""Consumed records equal the produced ones, with Kafka, with Ottla, and with another client."""

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import Producer as OtherProducer
from confluent_kafka import TopicPartition

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.producer_batches import RecordMetadata
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record

RECORDS: list[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]] = [
    (b"key", b"value", ()),
    (None, b"without a key", ()),
    (b"without a value", None, ()),
    (b"", b"", ()),
    (b"headers", b"v", [("a", b"1"), ("a", b"2"), ("none", None), ("", b"")]),
    ("schlüssel".encode(), bytes(range(256)), [("größe", "groß".encode())]),
    (b"large", b"x" * 200_000, ()),
]


async def read_all(cluster: Cluster, topic: str, *, sessions: bool = False) -> list[tuple[int, Record]]:
    consumer = Consumer(cluster, sessions=sessions)
    await consumer.assign(topic)
    return [(chunk.partition, record) async for chunk in consumer.chunks() for record in chunk.records]


@pytest.mark.parametrize("compression", list(Compression))
def test_records_come_back_as_they_were_sent(address: str, topic: str, compression: Compression) -> None:
    async def main() -> tuple[list[RecordMetadata], list[tuple[int, Record]]]:
        async with Cluster(address) as cluster:
            # The timestamps are old: without this setting, retention would delete the records.
            await Admin(cluster).create_topic(topic, partitions=3, settings={"retention.ms": "-1"})
            async with Producer(cluster, compression=compression) as producer:
                sent = [
                    await producer.send(topic, value, key=key, headers=headers, timestamp_ms=1_000_000 + at)
                    for at, (key, value, headers) in enumerate(RECORDS)
                ]
                delivered = [await delivery for delivery in sent]
            assert producer.records_sent == len(RECORDS)
            return delivered, await read_all(cluster, topic, sessions=bool(compression))

    delivered, consumed = asyncio.run(main())
    by_place = {(partition, record.offset): record for partition, record in consumed}
    assert len(by_place) == len(consumed) == len(RECORDS)
    for at, (where, (key, value, headers)) in enumerate(zip(delivered, RECORDS, strict=True)):
        record = by_place[where.partition, where.offset]
        assert (record.key, record.value, tuple(record.headers)) == (key, value, tuple(headers))
        assert record.timestamp == where.timestamp == 1_000_000 + at


def test_another_client_reads_the_records_and_agrees_on_partitions(address: str, topic: str) -> None:
    keys = [f"key-{number}".encode() for number in range(50)]

    async def main() -> dict[bytes, int]:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(topic, partitions=5)
            async with Producer(cluster, compression=Compression.SNAPPY) as producer:
                sent = {key: await producer.send(topic, b"ours", key=key) for key in keys}
                return {key: (await delivery).partition for key, delivery in sent.items()}

    ours = asyncio.run(main())
    theirs: dict[bytes, int | None] = {}
    other = OtherProducer({"bootstrap.servers": address, "partitioner": "murmur2_random", "log_level": 0})
    for key in keys:
        other.produce(
            topic, b"theirs", key=key, on_delivery=lambda _, sent: theirs.update({sent.key() or b"": sent.partition()})
        )
    assert other.flush(30) == 0
    assert theirs == ours
    reader = OtherConsumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, "log_level": 0})
    reader.assign([TopicPartition(topic, number, 0) for number in range(5)])
    messages = [message for message in reader.consume(100, timeout=30) if message.error() is None]
    reader.close()
    assert sorted(message.key() or b"" for message in messages if message.value() == b"ours") == sorted(keys)


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_records_of_a_partition_stay_in_order(address: str, topic: str, acks: int) -> None:
    count = 5000

    async def main() -> tuple[list[RecordMetadata], list[tuple[int, Record]]]:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(topic)
            async with Producer(cluster, acks=acks, batch_bytes=10_000, linger_s=0) as producer:
                sent = [await producer.send(topic, b"%d" % number) for number in range(count)]
                delivered = [await delivery for delivery in sent]
            return delivered, await read_all(cluster, topic)

    delivered, consumed = asyncio.run(main())
    # Unacknowledged records may still be in flight when the reader looks up the end.
    assert [int(record.value or b"") for _, record in consumed] == list(range(count if acks else len(consumed)))
    assert [metadata.offset for metadata in delivered] == (list(range(count)) if acks else [-1] * count)
