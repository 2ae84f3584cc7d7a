"""librdkafka clients for tests: write in transactions, read committed records, copy from topic to topic."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

TIMEOUT_S = 60.0


class Served(Protocol):
    """A cluster that clients connect to."""

    @property
    def address(self) -> str: ...


class Address(NamedTuple):
    """Several nodes."""

    address: str


def producer(node: Served, transactional_id: str = "writer") -> Producer:
    """Return a producer that has initialized a transactional id."""
    made = Producer({"bootstrap.servers": node.address, "transactional.id": transactional_id, "linger.ms": 0})
    made.init_transactions(TIMEOUT_S)
    return made


def read(
    node: Served, topic: str, partitions: Iterable[int] = (0, 1), *, isolation: str = "read_committed"
) -> list[str]:
    """Return all values up to the end that the reader can see, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        values = []
        for number in partitions:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, "no answer in time"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                value = message.value()
                assert value is not None
                values.append(value.decode())
        return values
    finally:
        consumer.close()


def copy_all(node: Served, source: str, target: str, count: int, *, at_once: int = 6) -> int:
    """Copy records in small transactions with their offsets, each with a new producer and consumer; some abort."""
    taken = 0
    for number in range(3 * count // at_once + 5):
        consumer = Consumer(
            {
                "bootstrap.servers": node.address,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([source])
        writer = producer(node, "copier")
        found = consumer.consume(min(at_once, count - taken), TIMEOUT_S)
        writer.begin_transaction()
        for message in found:
            assert message.error() is None, message.error()
            writer.produce(target, message.value(), partition=message.partition() or 0)
        writer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if number % 3 == 1:
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)
            taken += len(found)
        consumer.close()
        if taken >= count:
            break
    return taken
