"""The tests' client program for librdkafka, through confluent-kafka."""

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.conformance.clients.programs.lines import LARGEST_BYTES, TIMEOUT_S, Client, Record, Request, serve


class Librdkafka(Client):
    """A client with at most one group member."""

    def __init__(self) -> None:
        self._member: Consumer | None = None

    def write(self, request: Request) -> None:
        transaction = {"transactional.id": request.transactional_id} if request.transactional_id else {}
        failures: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": request.address,
                "compression.type": request.codec,
                "message.max.bytes": LARGEST_BYTES,
                "linger.ms": 5,
                **transaction,
            }
        )
        if transaction:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for record in request.records:
            producer.produce(
                request.topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        left = producer.flush(TIMEOUT_S)
        assert not left, f"{left} records were not acknowledged"
        assert not failures, failures[0]
        if transaction and request.abort:
            producer.abort_transaction(TIMEOUT_S)
        elif transaction:
            producer.commit_transaction(TIMEOUT_S)

    def read(self, request: Request) -> list[Record]:
        isolation = "read_committed" if request.committed else "read_uncommitted"
        consumer = _consumer(request, group="reader", **{"isolation.level": isolation})
        consumer.assign([TopicPartition(request.topic, part, OFFSET_BEGINNING) for part in range(request.partitions)])
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < request.count:
            assert time.monotonic() < deadline, f"{len(records)} records within the time limit"
            records += [_record(message) for message in consumer.consume(1000, 0.2)]
        consumer.close()
        return records

    def join(self, request: Request) -> None:
        settings = {"group.protocol": "consumer"} if request.protocol == "consumer" else {"heartbeat.interval.ms": 300}
        self._member = _consumer(request, group=request.group, **settings)
        self._member.subscribe([request.topic])

    def poll(self, request: Request) -> tuple[list[Record], list[int]]:
        assert self._member is not None
        messages = self._member.consume(1000, request.timeout_ms / 1000)
        return [_record(message) for message in messages], [part.partition for part in self._member.assignment()]

    def commit(self) -> None:
        assert self._member is not None
        try:
            self._member.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing was polled since the assignment
                raise

    def leave(self) -> None:
        assert self._member is not None
        self._member.close()

    def administer(self, request: Request) -> list[str]:
        admin, topic = AdminClient({"bootstrap.servers": request.address}), request.topic
        _wait(admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "1234000"})]))
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

        def retention() -> str:
            return str(_wait(admin.describe_configs([resource]))["retention.ms"].value)

        seen = [retention()]
        entry = ConfigEntry("retention.ms", "999000", incremental_operation=AlterConfigOpType.SET)
        _wait(
            admin.incremental_alter_configs(
                [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]
            )
        )
        seen.append(retention())
        _wait(admin.create_partitions([NewPartitions(topic, 4)]))
        seen.append(str(len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)))
        _wait(admin.delete_topics([topic]))
        return seen


def _wait(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def _consumer(request: Request, *, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": request.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )


def _record(message: Message) -> Record:
    assert message.error() is None, message.error()
    headers: Any = message.headers() or ()
    return Record(message.partition() or 0, message.key(), message.value(), tuple(headers))


if __name__ == "__main__":
    serve(Librdkafka())
