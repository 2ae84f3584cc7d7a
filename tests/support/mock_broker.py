"""librdkafka's mock broker, with a raw connection beside librdkafka's producer and consumer.

The mock broker stores batches unchanged except for their base offset. The raw connection writes and reads the bytes of
batches by Produce v7 and Fetch v11, which this module encodes by hand.
"""

import random
import socket
import struct
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record

WAIT_S = 15
NOW = 1_700_000_000_000


class MockBroker:
    """A broker inside a librdkafka producer, and a connection to it."""

    def __init__(self) -> None:
        self.host = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 3})
        (broker,) = self.host.list_topics(timeout=WAIT_S).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self.socket = socket.create_connection((broker.host, broker.port), timeout=WAIT_S)

    def close(self) -> None:
        self.socket.close()
        self.host.flush(1)
        del self.host

    def create(self, topic: str) -> None:
        assert topic in self.host.list_topics(topic, timeout=WAIT_S).topics

    def produce(self, topic: str, batch: bytes | bytearray) -> None:
        body = (
            struct.pack(">hhii", -1, 1, 1000, 1) + encode_string(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
        )
        answer = self.call(0, 7, body)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
        assert error == 0

    def fetch(self, topic: str, offset: int) -> bytes:
        body = struct.pack(">iiiibii", -1, 10, 1, 1 << 30, 0, 0, -1)
        body += struct.pack(">i", 1) + encode_string(topic) + struct.pack(">iiiqqi", 1, 0, -1, offset, -1, 1 << 30)
        answer = self.call(1, 11, body + struct.pack(">i", 0) + encode_string(""))
        pos = 4 + 2 + 4 + 4 + 2 + len(topic) + 4
        _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, pos)
        assert error == 0
        pos += 34 + max(aborted, 0) * 16 + 4
        (size,) = struct.unpack_from(">i", answer, pos)
        return answer[pos + 4 : pos + 4 + size] if size > 0 else b""

    def fetch_all(self, topic: str) -> list[bytes]:
        """Return the stored batches; the mock broker returns one per fetch."""
        batches: list[bytes] = []
        offset = 0
        while fetched := self.fetch(topic, offset):
            for pos, header in read_batches(fetched):
                batches.append(fetched[pos : pos + header.size_bytes])
                offset = header.next_offset
        return batches

    def call(self, api: int, version: int, body: bytes) -> bytes:
        head = struct.pack(">hhi", api, version, 1) + encode_string("ottla")
        self.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)[4:]

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the mock broker closed the connection"
            data += part
        return data


def encode_string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def consume(broker: MockBroker, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "ottla",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "log_level": 3,
        }
    )
    messages: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(messages) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(messages), timeout=0.2):
                assert message.error() is None, message.error()
                messages.append(message)
    finally:
        consumer.close()
    return messages


def as_record(message: Any) -> Record:
    headers = tuple(message.headers() or ())
    return Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def various_records(count: int) -> list[Record]:
    """Return records of all kinds that compress, enough for more than one block of every codec."""
    rng = random.Random(count)
    return [
        Record(
            offset=i,
            timestamp=NOW + rng.randrange(100_000),
            key=None if i % 7 == 0 else b"key-%d" % i,
            value=None if i % 11 == 0 else b'{"id": %d, "x": %d}' % (i, rng.randrange(10**6)) * (i % 13),
            headers=(("trace", b"%d" % i), ("none", None), ("ümläut", b"")) if i % 5 == 0 else (),
        )
        for i in range(count)
    ]


def write_with_librdkafka(broker: MockBroker, topic: str, codec: Compression, written: list[Record]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": codec.name.lower(),
            "linger.ms": 50,
            "batch.num.messages": 700,
            "log_level": 3,
        }
    )
    for record in written:
        producer.produce(
            topic, record.value, record.key, partition=0, timestamp=record.timestamp, headers=list(record.headers)
        )
    assert producer.flush(WAIT_S) == 0
