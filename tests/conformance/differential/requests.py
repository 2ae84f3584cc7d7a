"""Requests and batches for several tests."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.batch import HEADER, assign_crc, read_header
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch
from tests.conformance.differential.harness import Side

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
FIRST_PRODUCE_BY_ID = FIRST_FETCH_BY_ID = 13
NO_TOPIC_ID = bytes(16)
UNKNOWN_ID = bytes(range(16))
TIMESTAMP = 1_700_000_000_000


def batch(count: int = 1, *, value: bytes = b"value", key: bytes | None = b"key", **fields: Any) -> bytearray:
    """Return a batch as a producer sends it."""
    return build_batch(
        [Record(number, fields.pop("timestamp", TIMESTAMP) + number, key, value) for number in range(count)], **fields
    )


def alter_header(data: bytes | bytearray, *, checksum: bool = True, **fields: Any) -> bytearray:
    """Return a copy of a batch with other values in its header, and with a correct checksum if wanted."""
    copy = bytearray(data)
    HEADER.pack_into(copy, 0, *read_header(data)._replace(**fields))
    if checksum:
        assign_crc(copy, 0, len(data))
    return copy


def compressed_batch(kind: Compression, count: int = 3) -> bytearray:
    return batch(count, value=b"squeeze me " * 20, compression=kind)


def topic_id_of(side: Side, topic: str) -> bytes:
    """Return a topic's id on a side, or an unused id if the topic was never created."""
    try:
        return side.id_of(topic)
    except KeyError:
        return UNKNOWN_ID


def produce(
    version: int,
    *parts: tuple[str, int, bytes | bytearray | None],
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> Callable[[Side], ProduceRequest]:
    """Return a request for (topic, partition, batches), with one topic entry for each."""

    def make(side: Side) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id_of(side, topic) if version >= FIRST_PRODUCE_BY_ID else NO_TOPIC_ID,
                    partition_data=[PartitionProduceData(index=index, records=data)],
                )
                for topic, index, data in parts
            ],
        )

    return make


class Part(NamedTuple):
    """A partition to fetch."""

    topic: str
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1_048_576
    epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


def fetch(
    version: int,
    *parts: Part,
    forgotten: Iterable[tuple[str, int]] = (),
    session: str | int = 0,
    session_epoch: int = -1,
    **fields: Any,
) -> Callable[[Side], FetchRequest]:
    """Return a request with one topic entry per partition; the name of a session refers to the side's memory."""

    def topic_of(side: Side, topic: str) -> dict[str, Any]:
        return {"topic_id": topic_id_of(side, topic)} if version >= FIRST_FETCH_BY_ID else {"topic": topic}

    def make(side: Side) -> FetchRequest:
        return FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, **fields},
            session_id=side.memory[session] if isinstance(session, str) else session,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(
                    **topic_of(side, part.topic),
                    partitions=[
                        FetchPartition(
                            partition=part.partition,
                            current_leader_epoch=part.epoch,
                            fetch_offset=part.offset,
                            last_fetched_epoch=part.last_fetched_epoch,
                            log_start_offset=part.log_start_offset,
                            partition_max_bytes=part.max_bytes,
                        )
                    ],
                )
                for part in parts
            ],
            forgotten_topics_data=[
                ForgottenTopic(**topic_of(side, topic), partitions=[index]) for topic, index in forgotten
            ],
        )

    return make
