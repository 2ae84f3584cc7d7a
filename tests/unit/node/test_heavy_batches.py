"""Batches that take long to validate: only their producers wait, and the order of records is kept."""

import gzip
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.errors import InvalidTxnState
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.batch import HEADER_BYTES, assign_crc, read_header
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch, replace_payload
from ottla.protocol.wire.varint import write_varint
from tests.conformance.differential.harness import frame_of as unframed
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS

T = TypeVar("T")
TIMEOUT_S = 60
BOMBS = 12


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    transactions = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }
    made = OttlaNode(tmp_path_factory.mktemp("heavy"), {**SETTINGS, **transactions, "message.max.bytes": "4000000"})
    made.format()
    with made.running():
        yield made
    assert not made.logged_errors()


def connect(node: OttlaNode) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", node.ports["PLAINTEXT"]))
    sock.settimeout(TIMEOUT_S)
    return sock


def receive(sock: socket.socket) -> bytes:
    """Return the next answer without its correlation id."""
    with sock.makefile("rb", buffering=0) as stream:

        def exactly(size: int) -> bytes:
            data = b""
            while len(data) < size:
                got = stream.read(size - len(data))
                assert got, "the connection was closed"
                data += got
            return data

        (size,) = struct.unpack(">i", exactly(4))
        return exactly(size)[4:]


def frame_of(request: object, version: int) -> bytes:
    frame = unframed(request, version, 1, "test")
    return struct.pack(">i", len(frame)) + frame


def create(node: OttlaNode, topic: str, **configs: str) -> None:
    given = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=given)
    with connect(node) as sock:
        sock.sendall(frame_of(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 4))
        receive(sock)


def produce(topic: str, *batches: bytes | bytearray, transactional_id: str | None = None) -> bytes:
    parts = [PartitionProduceData(index=0, records=each) for each in batches]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )
    return frame_of(request, 9)


def answers(sock: socket.socket) -> list[tuple[int, int]]:
    """Return the error and offset of each partition."""
    response = decode(ProduceResponse, 9, receive(sock)[1:])
    return [(part.error_code, part.base_offset) for topic in response.responses for part in topic.partition_responses]


def bomb(size: int = 400 << 20) -> bytearray:
    """A batch of a few hundred KiB that decompresses to far more than the limit. Its one record is valid."""
    data = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])
    body = b"\0\0\0\2k" + write_varint(size) + bytes(size) + b"\0"
    data[HEADER_BYTES:] = gzip.compress(write_varint(len(body)) + body, 9)
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[21:23] = Compression.GZIP.to_bytes(2)
    assign_crc(data, 0, len(data))
    return data


def test_decompression_bombs_do_not_block_other_requests(node: OttlaNode) -> None:
    create(node, "bombs")
    frame = produce("bombs", bomb())
    with connect(node) as hostile, connect(node) as other:
        for _ in range(BOMBS):
            hostile.sendall(frame)
        served = answered = 0
        while answered < BOMBS:
            if select.select([hostile], [], [], 0)[0]:
                assert answers(hostile) == [(87, -1)]
                answered += 1
                continue
            other.sendall(frame_of(MetadataRequest(topics=[]), 9))
            receive(other)
            served += 1
        # Were bombs opened between the others' requests, each of these would have to wait for one of those.
        assert served > 10 * BOMBS


def test_large_batches_are_recompressed_in_threads_and_stay_in_order(node: OttlaNode) -> None:
    create(node, "squeezed", compression_type="zstd")
    producer = Producer({"bootstrap.servers": node.address, "linger.ms": 50, "batch.size": 500_000})
    count = 3000
    for number in range(count):
        producer.produce("squeezed", b"%06d" % number * 200, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("squeezed", 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), timeout=TIMEOUT_S):
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.append(value[:6])
    consumer.close()
    assert found == [b"%06d" % number for number in range(count)]


def test_large_and_small_batches_of_one_request_are_appended_in_order(node: OttlaNode) -> None:
    create(node, "mixed")

    def heavy(number: int) -> bytearray:
        plain = build_batch([Record(0, 1_700_000_000_000, b"%d" % number, bytes(2 << 20))])
        header = read_header(plain)
        return replace_payload(plain, header, bytes(plain[HEADER_BYTES:]), Compression.GZIP)

    light = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])
    with connect(node) as sock:
        sock.sendall(produce("mixed", light, heavy(1), light, bomb(), heavy(2), light))
        assert answers(sock) == [(0, 0), (0, 1), (0, 2), (87, -1), (0, 3), (0, 4)]


def test_a_batch_is_refused_if_its_transaction_ends_during_validation(node: OttlaNode) -> None:
    """With an older producer the epoch does not change, so a late batch would open a new transaction."""
    create(node, "late")

    with connect(node) as data, connect(node) as control:

        def ask(request: object, version: int, response: type[T]) -> T:
            control.sendall(frame_of(request, version))
            return decode(response, version, receive(control)[1:])

        begin = InitProducerIdRequest(transactional_id="late", transaction_timeout_ms=60_000)
        began = ask(begin, 4, InitProducerIdResponse)
        deadline = time.monotonic() + TIMEOUT_S
        while began.error_code in (14, 15, 16) and time.monotonic() < deadline:  # the coordinator is not ready yet
            ask(FindCoordinatorRequest(key="late", key_type=1), 3, FindCoordinatorResponse)
            time.sleep(0.05)
            began = ask(begin, 4, InitProducerIdResponse)
        assert began.error_code == 0
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="late",
            v3_and_below_producer_id=began.producer_id,
            v3_and_below_producer_epoch=began.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="late", partitions=[0])],
        )
        ask(added, 3, AddPartitionsToTxnResponse)

        def write(sequence: int, size: int, compression: Compression = Compression.NONE) -> bytes:
            batch = build_batch(
                [Record(0, 1_700_000_000_000, b"k", bytes(size))],
                compression=compression,
                transactional=True,
                producer_id=began.producer_id,
                producer_epoch=began.producer_epoch,
                base_sequence=sequence,
            )
            return produce("late", batch, transactional_id="late")

        data.sendall(write(0, 10))
        assert answers(data) == [(0, 0)]
        data.sendall(write(1, 100 << 20, Compression.GZIP))
        ended = EndTxnRequest(
            transactional_id="late",
            producer_id=began.producer_id,
            producer_epoch=began.producer_epoch,
            committed=False,
        )
        assert ask(ended, 3, EndTxnResponse).error_code == 0
        assert answers(data) == [(InvalidTxnState.code, -1)]


def test_a_bomb_without_acks_ends_its_connection(node: OttlaNode) -> None:
    create(node, "unanswered")
    request = ProduceRequest(
        acks=0,
        topic_data=[
            TopicProduceData(name="unanswered", partition_data=[PartitionProduceData(index=0, records=bomb())])
        ],
    )
    with connect(node) as sock:
        sock.sendall(frame_of(request, 9))
        assert sock.recv(1) == b""


def test_a_node_stops_cleanly_during_validation_of_batches(tmp_path: Path) -> None:
    made = OttlaNode(tmp_path, SETTINGS)
    made.format()
    with made.running():
        create(made, "t")
        with connect(made) as sock:
            for _ in range(3):
                sock.sendall(produce("t", bomb()))
            made.stop()
    assert not made.logged_errors()
