"""Harmful clients, by accident or on purpose: the node stays responsive and small."""

import gzip
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.batch import HEADER_BYTES, assign_crc
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.records import Record, build_batch
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS

MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path_factory.mktemp("hostile"), SETTINGS)
    made.format()
    with made.running():
        create(made, "t", {})
        yield made
    assert not made.logged_errors()


def connect(node: OttlaNode) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", node.ports["PLAINTEXT"]))
    sock.settimeout(20)
    return sock


def framed(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\x00" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def answer(sock: socket.socket) -> bytes:
    """Return the body of an answer, or nothing if the connection was closed."""
    try:
        (size,) = struct.unpack(">i", _exactly(sock, 4))
        return _exactly(sock, size)[4:]
    except (EOFError, ConnectionResetError):
        return b""


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = sock.recv(min(size - len(data), MIB))
        if not got:
            raise EOFError
        data += got
    return bytes(data)


def create(node: OttlaNode, topic: str, configs: dict[str, str]) -> None:
    settings = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)], timeout_ms=10_000
    )
    with connect(node) as sock:
        sock.sendall(framed(ApiKey.CREATE_TOPICS, 4, encode(request, 4)))
        assert answer(sock)


def memory_bytes(node: OttlaNode) -> int:
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def slowest_ms(node: OttlaNode, seconds: float = 0.5) -> float:
    """Return the time of the slowest of several ordinary requests."""
    slowest = 0.0
    with connect(node) as sock:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            sock.sendall(framed(ApiKey.METADATA, 1, encode(MetadataRequest(topics=[]), 1)))
            assert decode(MetadataResponse, 1, answer(sock)).brokers
            slowest = max(slowest, time.monotonic() - start)
    return slowest * 1000


@contextmanager
def unharmed(node: OttlaNode, *, memory: int = 50 * MIB) -> Iterator[None]:
    """Check that the block costs the node less memory than this, and that others are still served."""
    before = memory_bytes(node)
    yield
    assert slowest_ms(node) < 1000
    assert memory_bytes(node) - before < memory


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 104_857_601])
def test_impossible_lengths_end_the_connection_at_once(node: OttlaNode, size: int) -> None:
    with unharmed(node), connect(node) as sock:
        sock.sendall(struct.pack(">i", size) + b"x" * 100)
        assert answer(sock) == b""


@pytest.mark.parametrize(
    "bad", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\x01" * 200, b"\xff" * 500]
)
def test_other_protocols_and_garbage_end_the_connection(node: OttlaNode, bad: bytes) -> None:
    with unharmed(node), connect(node) as sock:
        sock.sendall(bad)
        sock.shutdown(socket.SHUT_WR)
        assert answer(sock) == b""


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99), (4, 0), (52, 0), (62, 0), (-1, 0)])
def test_an_api_that_is_not_served_ends_the_connection(node: OttlaNode, key: int, version: int) -> None:
    with unharmed(node), connect(node) as sock:
        sock.sendall(framed(key, version, b"\x00" * 50))
        assert answer(sock) == b""


def test_a_length_of_100_mib_reserves_nothing(node: OttlaNode) -> None:
    with unharmed(node, memory=10 * MIB), ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(node)).sendall(struct.pack(">i", 100 * MIB) + b"\x00\x03" + b"x" * 100)
        time.sleep(0.2)
        assert slowest_ms(node) < 1000


def test_four_million_topics_are_refused(node: OttlaNode) -> None:
    with unharmed(node), connect(node) as sock:
        sock.sendall(framed(ApiKey.METADATA, 1, struct.pack(">i", 4_000_000) + b"\x00\x00" * 4_000_000))
        assert answer(sock) == b""


def test_twenty_million_tagged_fields_in_a_header_are_refused(node: OttlaNode) -> None:
    tags = b"\x80\xda\xc4\x09" + b"\x00\x00" * 20_000_000
    head = struct.pack(">hhih", 3, 12, 1, -1) + tags
    # The request itself is 40 MB, which is allowed; as fields it would be gigabytes.
    with unharmed(node, memory=150 * MIB), connect(node) as sock:
        sock.sendall(struct.pack(">i", len(head)) + head)
        assert answer(sock) == b""


@pytest.mark.parametrize("body", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xf0", b"\x80" * 40])
def test_impossible_counts_end_the_connection(node: OttlaNode, body: bytes) -> None:
    with unharmed(node), connect(node) as sock:
        sock.sendall(framed(ApiKey.METADATA, 1, body))
        assert answer(sock) == b""


def test_a_decompression_bomb_is_refused(node: OttlaNode) -> None:
    create(node, "repacked", {"compression.type": "lz4"})
    batch = build_batch([Record(0, 1, b"k", b"v")])
    bomb = batch[:HEADER_BYTES] + gzip.compress(b"\x00" * (400 * MIB), 9)
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    struct.pack_into(">h", bomb, 21, 1)
    assign_crc(bomb, 0, len(bomb))
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="repacked", partition_data=[PartitionProduceData(index=0, records=bytes(bomb))])
        ],
    )
    with unharmed(node, memory=200 * MIB), connect(node) as sock:
        sock.sendall(framed(ApiKey.PRODUCE, 8, encode(request, 8)))
        response = decode(ProduceResponse, 8, answer(sock))
        assert response.responses[0].partition_responses[0].error_code in (2, 87)


def test_idle_connections_and_half_requests_cost_little(node: OttlaNode) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        with unharmed(node, memory=30 * MIB), ExitStack() as stack:
            for number in range(min(hard, 8192) // 2 - 500):
                sock = stack.enter_context(connect(node))
                if number % 2:
                    sock.sendall(b"\x00\x00\x00\x50\x00\x03")
            assert slowest_ms(node) < 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reader_that_never_reads_holds_no_memory(node: OttlaNode) -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(build_batch([Record(0, 1, None, b"x" * 1_000_000)])))
                ],
            )
        ],
    )
    with connect(node) as sock:
        for _ in range(20):
            sock.sendall(framed(ApiKey.PRODUCE, 8, encode(request, 8)))
            assert answer(sock)
    fetch = FetchRequest(
        max_wait_ms=0,
        max_bytes=50 * MIB,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=50 * MIB)])],
    )
    with unharmed(node, memory=20 * MIB), ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(connect(node))
            sock.sendall(framed(ApiKey.FETCH, 4, encode(fetch, 4)) * 10)
        time.sleep(0.3)
        assert slowest_ms(node) < 1000
