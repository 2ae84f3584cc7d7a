"""The tests' client program for aiokafka."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from tests.conformance.clients.programs.lines import LARGEST_BYTES, TIMEOUT_S, Client, Record, Request, serve

T = TypeVar("T")


class Aiokafka(Client):
    """A client with at most one group member, which sends heartbeats in the background."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._member: Any = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def write(self, request: Request) -> None:
        self._run(_write(request))

    def read(self, request: Request) -> list[Record]:
        return self._run(_read(request))

    def join(self, request: Request) -> None:
        self._member = self._run(_join(request))

    def poll(self, request: Request) -> tuple[list[Record], list[int]]:
        records = self._run(_poll_records(self._member, request.timeout_ms))
        return records, [part.partition for part in self._member.assignment()]

    def commit(self) -> None:
        self._run(self._member.commit())

    def leave(self) -> None:
        self._run(self._member.stop())

    def administer(self, request: Request) -> list[str]:
        return self._run(_administer(request))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * TIMEOUT_S)


async def _write(request: Request) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=request.address,
        compression_type=None if request.codec == "none" else request.codec,
        max_request_size=LARGEST_BYTES,
        linger_ms=5,
        acks="all",
        transactional_id=request.transactional_id or None,
    )
    await producer.start()
    try:
        if request.transactional_id:
            await producer.begin_transaction()
        sent = [
            await producer.send(request.topic, record.value, record.key, record.partition, headers=list(record.headers))
            for record in request.records
        ]
        await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)
        if request.offsets_of:
            offsets = {TopicPartition(request.topic, 0): len(sent)}
            await producer.send_offsets_to_transaction(offsets, request.offsets_of)
        if request.transactional_id and request.abort:
            await producer.abort_transaction()
        elif request.transactional_id:
            await producer.commit_transaction()
    finally:
        await producer.stop()


async def _read(request: Request) -> list[Record]:
    isolation = "read_committed" if request.committed else "read_uncommitted"
    consumer = _consumer(request, None, isolation_level=isolation)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(request.topic, part) for part in range(request.partitions)])
        await consumer.seek_to_beginning()
        records: list[Record] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(records) < request.count:
                records += await _poll_records(consumer, 200)
        return records
    finally:
        await consumer.stop()


async def _join(request: Request) -> Any:
    assignors = (RangePartitionAssignor,)  # the one that all clients know
    consumer = _consumer(request, request.group, heartbeat_interval_ms=300, partition_assignment_strategy=assignors)
    consumer.subscribe([request.topic])
    await consumer.start()
    return consumer


def _consumer(request: Request, group: str | None, **settings: Any) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=request.address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        **settings,
    )


async def _poll_records(consumer: Any, timeout_ms: int) -> list[Record]:
    polled = await consumer.getmany(timeout_ms=timeout_ms, max_records=10_000)
    return [
        Record(record.partition, record.key, record.value, tuple(record.headers))
        for records in polled.values()
        for record in records
    ]


async def _administer(request: Request) -> list[str]:
    admin, topic = AIOKafkaAdminClient(bootstrap_servers=request.address), request.topic
    await admin.start()

    async def retention() -> str:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        (answer,) = await admin.describe_configs([asked])
        (resource,) = answer.resources
        (entry,) = resource[4]
        return str(entry[1])

    await admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "1234000"})])
    seen = [await retention()]
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "999000"})])
    seen.append(await retention())
    await admin.create_partitions({topic: NewPartitions(4)})
    (described,) = await admin.describe_topics([topic])
    seen.append(str(len(described["partitions"])))
    await admin.delete_topics([topic])
    await admin.close()
    return seen


if __name__ == "__main__":
    serve(Aiokafka())
