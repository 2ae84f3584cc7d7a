"""A cluster of Ottla or Apache Kafka for tests, with operations by librdkafka."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.micro_batch_reader import plan_batch, read_range
from ottla.spark.connector.read_options import parse_read_options
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

ALL_COLUMNS = pa.schema(list(TYPES.items()))
Rows = list[dict[str, Any]]


class Cluster:
    """One node, with an admin client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def new_topic(self, partitions: int = 3, **settings: str) -> str:
        """Create a topic with a unique name; return the name."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        self.create(name, partitions, **settings)
        return name

    def create(self, name: str, partitions: int, **settings: str) -> None:
        # The tests' records have old timestamps, so retention would soon delete them.
        config = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in settings.items()}}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result()

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.address, "log_level": 0, **settings})

    def fill(self, topic: str, count: int, *, partitions: int = 3, settings: Mapping[str, Any] | None = None) -> None:
        """Produce records with all kinds of keys, values, headers and timestamps, evenly to all partitions."""
        producer = self.producer(**(settings or {}))
        for number in range(count):
            producer.produce(
                topic,
                None if number % 11 == 0 else b"value %d" % number,
                None if number % 7 == 0 else b"key %d" % number,
                partition=number % partitions,
                timestamp=1_700_000_000_000 + number * 1000,
                headers=[("a", b"1"), ("ü", None)] if number % 3 == 0 else None,
            )
        assert producer.flush(30) == 0

    def read(self, schema: pa.Schema = ALL_COLUMNS, **options: str) -> Rows:
        """Return the rows of a batch query, in the order of its ranges."""
        parsed = parse_read_options(self.options(**options), streaming=False)
        batches = [batch for wanted in plan_batch(parsed) for batch in read_range(parsed, wanted, schema)]
        for batch in batches:
            batch.validate(full=True)
        rows: Rows = pa.Table.from_batches(batches, schema).to_pylist()
        return rows

    def options(self, **options: str) -> dict[str, str]:
        """Return options, with `__` in their names replaced by a dot."""
        return {
            "kafka.bootstrap.servers": self.address,
            **{name.replace("__", "."): value for name, value in options.items()},
        }

    def consume(self, topic: str, *, committed: bool = True) -> Rows:
        """Return the rows that librdkafka reads, with the same columns, by partition and offset."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "isolation.level": level,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        partitions = self.admin.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        rows: Rows = []
        ended = 0
        try:
            while ended < len(partitions):
                message = consumer.poll(20)
                assert message is not None, f"{topic} does not end"
                if message.error():
                    ended += 1
                    continue
                rows.append(_row(message))
        finally:
            consumer.close()
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))

    def transact(self, topic: str, batches: Sequence[tuple[bool, Sequence[bytes]]], partition: int = 0) -> None:
        """Write transactions one after the other; each has a flag (commit or abort) and its values."""
        producer = self.producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        for commit, values in batches:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value, partition=partition)
            producer.flush(30)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)


def _row(message: Any) -> dict[str, Any]:
    kind, time_ms = message.timestamp()
    headers = message.headers()
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": -1 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms,
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
    }


def comparable(rows: Rows) -> Rows:
    """Return rows in the form of `consume`."""
    return [
        {
            **{name: row[name] for name in ("key", "value", "topic", "partition", "offset", "headers")},
            "timestamp": round(row["timestamp"].timestamp() * 1000),
        }
        for row in rows
    ]


@contextlib.contextmanager
def running(kind: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run a node of Ottla or of Apache Kafka."""
    node: OttlaNode | KafkaNode = (
        OttlaNode(folder, {**SETTINGS, **(settings or {})}) if kind == "ottla" else KafkaNode(folder)
    )
    node.format()
    with node.running():
        yield Cluster(node.address)
