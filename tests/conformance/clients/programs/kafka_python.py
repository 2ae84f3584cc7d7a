"""The tests' client program for kafka-python."""

import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from tests.conformance.clients.programs.lines import LARGEST_BYTES, TIMEOUT_S, Client, Record, Request, serve

# kafka-python 3.0 loses an assignment that arrives between two polls, so a joining member must get it within one.
JOIN_TIMEOUT_MS = 1500


class KafkaPython(Client):
    """A client with at most one group member."""

    def __init__(self) -> None:
        self._member: Any = None

    def write(self, request: Request) -> None:
        producer = KafkaProducer(
            bootstrap_servers=request.address,
            compression_type=None if request.codec == "none" else request.codec,
            max_request_size=LARGEST_BYTES,
            linger_ms=5,
            acks="all",
            transactional_id=request.transactional_id or None,
        )
        if request.transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        sent = [
            producer.send(request.topic, record.value, record.key, list(record.headers), record.partition)
            for record in request.records
        ]
        for future in sent:
            future.get(timeout=TIMEOUT_S)
        if request.offsets_of:
            offsets = {TopicPartition(request.topic, 0): OffsetAndMetadata(len(sent), "", -1)}
            producer.send_offsets_to_transaction(offsets, request.offsets_of)
        if request.transactional_id and request.abort:
            producer.abort_transaction()
        elif request.transactional_id:
            producer.commit_transaction()
        producer.close(timeout=TIMEOUT_S)

    def read(self, request: Request) -> list[Record]:
        isolation = "read_committed" if request.committed else "read_uncommitted"
        consumer = _consumer(request, None, isolation_level=isolation)
        consumer.assign([TopicPartition(request.topic, part) for part in range(request.partitions)])
        consumer.seek_to_beginning()
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < request.count:
            assert time.monotonic() < deadline, f"{len(records)} records within the time limit"
            records += _poll_records(consumer, 200)
        consumer.close()
        return records

    def join(self, request: Request) -> None:
        self._member = _consumer(request, request.group, heartbeat_interval_ms=300)
        self._member.subscribe([request.topic])

    def poll(self, request: Request) -> tuple[list[Record], list[int]]:
        records = _poll_records(self._member, max(request.timeout_ms, JOIN_TIMEOUT_MS))
        return records, [part.partition for part in self._member.assignment()]

    def commit(self) -> None:
        self._member.commit()

    def leave(self) -> None:
        self._member.close()

    def administer(self, request: Request) -> list[str]:
        admin, topic = KafkaAdminClient(bootstrap_servers=request.address), request.topic
        admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "1234000"})])

        def retention() -> str:
            described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            return str(described["topic"][topic]["retention.ms"]["value"])

        seen = [retention()]
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "999000"})])
        seen.append(retention())
        admin.create_partitions({topic: NewPartitions(4)})
        (described,) = admin.describe_topics([topic])
        seen.append(str(len(described["partitions"])))
        admin.delete_topics([topic])
        admin.close()
        return seen


def _consumer(request: Request, group: str | None, **settings: Any) -> Any:
    return KafkaConsumer(
        bootstrap_servers=request.address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        max_poll_records=10_000,
        **settings,
    )


def _poll_records(consumer: Any, timeout_ms: int) -> list[Record]:
    polled = consumer.poll(timeout_ms=timeout_ms)
    return [
        Record(record.partition, record.key, record.value, tuple(record.headers))
        for records in polled.values()
        for record in records
    ]


if __name__ == "__main__":
    serve(KafkaPython())
