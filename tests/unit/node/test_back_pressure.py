"""Request workers, their queue, and back pressure on sockets when the queue is full, on real nodes."""

import fcntl
import random
import select
import socket
import struct
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.harness.ports import free_ports

from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch
from tests.conformance.differential.harness import frame_of as unframed
from tests.support.exposition import Exposition
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS
from tests.unit.node.test_running_node import set_on, wait_until

TIMEOUT_S = 60
TOPIC, SLOW = "t", "slow"
BROKER = "brokerrequesthandleravgidlepercent"
POOL = 'ottla_request_workers_busy{pool="broker"}'
_RANDOM = random.Random(5)
HEAVY = bytes(_RANDOM.choices(b"ACGT", k=1 << 16)) * 6
"""Repeats itself too far apart for gzip, which takes a fifth of a second for it; zstd makes 17 KB of it."""


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[OttlaNode]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    (port,) = free_ports(1)
    more = {"ottla.metrics.listener": f"127.0.0.1:{port}", "message.max.bytes": "10000000"}
    node = OttlaNode(folder, {**SETTINGS, **more, **given})
    node.ports["METRICS"] = port
    node.format()
    with node.running():
        create(node, TOPIC)
        create(node, SLOW, **{"compression.type": "gzip", "compression.gzip.level": "9"})
        yield node
    assert not node.logged_errors()


class Client:
    """A connection on which requests can be pipelined."""

    def __init__(self, node: OttlaNode) -> None:
        self.sock = socket.create_connection(("127.0.0.1", node.ports["PLAINTEXT"]))
        self.sock.settimeout(TIMEOUT_S)

    def send(self, *requests: tuple[Any, int]) -> None:
        self.sock.sendall(b"".join(frame_of(request, version) for request, version in requests))

    def receive(self, response: type, version: int) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        flexible_header = response is not ApiVersionsResponse and (response, version) != (FetchResponse, 11)
        return decode(response, version, self._exactly(size)[5 if flexible_header else 4 :])

    def is_silent(self, seconds: float = 0.0) -> bool:
        return not select.select([self.sock], [], [], seconds)[0]

    @property
    def unsent(self) -> int:
        """The bytes in this end's send buffer that the node has not read."""
        return int(struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0" * 4))[0])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self.sock.recv(size - len(data))
            assert got, "the connection was closed"
            data += got
        return data


def frame_of(request: Any, version: int) -> bytes:
    frame = unframed(request, version, 1, "test")
    return struct.pack(">i", len(frame)) + frame


@contextmanager
def clients(node: OttlaNode, count: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        made = [Client(node) for _ in range(count)]
        for client in made:
            stack.enter_context(client.sock)
        yield made


def create(node: OttlaNode, topic: str, **configs: str) -> None:
    given = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=given)
    with clients(node, 1) as (client,):
        client.send((CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5))
        client._exactly(4)


def produce(topic: str, *values: bytes, acks: int = -1) -> tuple[ProduceRequest, int]:
    """Return a produce request. The node recompresses batches for the slow topic, in a thread."""
    records = [Record(number, 1_700_000_000_000, None, value) for number, value in enumerate(values)]
    batch = build_batch(records, compression=Compression.ZSTD if topic == SLOW else Compression.NONE)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), 9


def produced(client: Client) -> tuple[int, int]:
    """Return the error and offset of a produce."""
    response = client.receive(ProduceResponse, 9)
    part = response.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def waiting_fetch(offset: int, wait_ms: int = 30_000) -> tuple[FetchRequest, int]:
    parts = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic=TOPIC, partitions=parts)]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics), 11


VERSIONS = (ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)


def metrics(node: OttlaNode, *, wait_s: float = 1.05) -> Exposition:
    time.sleep(wait_s)  # they are gathered once a second
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['METRICS']}/metrics", timeout=TIMEOUT_S) as answer:
        return Exposition(answer.read().decode())


def test_a_node_with_one_worker_answers_what_arrives_inside_another_request(tmp_path: Path) -> None:
    """A produce completes a waiting fetch, and the next request of the fetch's connection is handled within."""
    with running(tmp_path, num_io_threads="1") as node, clients(node, 3) as (fetching, producing, other):
        fetching.send(waiting_fetch(0), VERSIONS)
        time.sleep(0.2)
        producing.send(produce(TOPIC, b"v", acks=1))
        assert produced(producing) == (0, 0)
        assert fetching.receive(FetchResponse, 11).responses[0].partitions[0].high_watermark == 1
        for client in (fetching, producing, other):
            if client is not fetching:
                client.send(VERSIONS)
            assert client.receive(ApiVersionsResponse, 3).error_code == 0
        with clients(node, 1) as (new,):
            new.send(VERSIONS)
            assert new.receive(ApiVersionsResponse, 3).error_code == 0


@pytest.mark.parametrize("workers", ["1", "8", "1000"])
def test_one_produce_that_wakes_hundreds_of_pipelines_answers_them_all(tmp_path: Path, workers: str) -> None:
    """Each answer starts a produce that completes other fetches: handlers nest, but only to a limit."""
    count = 200
    with running(tmp_path, num_io_threads=workers) as node, clients(node, count + 1) as (first, *others):
        for client in others:
            client.send(waiting_fetch(0), produce(TOPIC, b"v"), VERSIONS)
        time.sleep(0.5)
        first.send(produce(TOPIC, b"v"))
        assert produced(first) == (0, 0)
        offsets = []
        for client in others:
            assert client.receive(FetchResponse, 11).responses[0].partitions[0].error_code == 0
            error, offset = produced(client)
            assert error == 0
            offsets.append(offset)
            assert client.receive(ApiVersionsResponse, 3).error_code == 0
        assert sorted(offsets) == list(range(1, count + 1))


def test_a_full_queue_stops_the_sockets_and_drains_in_order(tmp_path: Path) -> None:
    """With one worker and a queue of one, requests stay in the clients' send buffers and keep their order."""
    with running(tmp_path, num_io_threads="1", queued_max_requests="1") as node:
        heavies, rounds = 7, 2
        with clients(node, heavies + 2) as (*slow, other, large):
            for number, client in enumerate(slow):
                client.send(*[produce(SLOW, b"%d" % number, HEAVY)] * rounds)
                time.sleep(0.02)  # so that they come in this order
            other.send(VERSIONS)
            large.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            large.sock.setblocking(False)
            frame, sent = frame_of(*produce(TOPIC, bytes(8_000_000))), 0
            began = time.monotonic()
            while sent < len(frame) and select.select([], [large.sock], [], 0.1)[1]:
                sent += large.sock.send(frame[sent:])
            assert sent < len(frame) / 2, "the node reads on though its queue is full"
            assert large.unsent > 0
            found = metrics(node, wait_s=0)
            assert found["kafka_network_requestchannel_requestqueuesize"] == 1
            assert found[POOL] == 1
            assert found['ottla_request_connections_blocked{pool="broker"}'] >= heavies - 2
            assert found['ottla_request_threads{pool="broker"}'] == 1
            assert other.is_silent(), "it has overtaken requests that came before its own"

            # Everyone is answered: the others' first requests before anybody's second.
            firsts = [produced(client) for client in slow]
            assert other.receive(ApiVersionsResponse, 3).error_code == 0
            waited = time.monotonic() - began
            assert waited > 0.5
            assert firsts == [(0, 2 * number) for number in range(heavies)]
            large.sock.setblocking(True)
            large.sock.settimeout(TIMEOUT_S)
            large.sock.sendall(frame[sent:])
            offsets = [produced(client) for _ in range(rounds - 1) for client in slow]
            assert produced(large) == (0, 0)
            assert offsets == [(0, 2 * number) for number in range(heavies, heavies * rounds)]
        idle = metrics(node)
        assert idle["kafka_network_requestchannel_requestqueuesize"] == 0
        assert idle[POOL] == 0
        assert idle['kafka_network_requestmetrics_requestqueuetimems_sum{request="Produce"}'] > 300


def test_waiting_requests_occupy_no_worker(tmp_path: Path) -> None:
    """Waiting fetches and a produce that waits for replicas do not occupy the only worker."""
    with running(tmp_path, num_io_threads="1", queued_max_requests="1") as node, clients(node, 30) as (*waiting, other):
        for client in waiting:
            client.send(waiting_fetch(0))
        for _ in range(20):
            other.send(VERSIONS)
            assert other.receive(ApiVersionsResponse, 3).error_code == 0
        assert all(client.is_silent() for client in waiting)
        assert metrics(node)[POOL] == 0


def test_the_controllers_requests_do_not_wait_for_the_brokers_workers(tmp_path: Path) -> None:
    """As in Kafka, each role has its own queue, workers and gauges, besides the gauge for both."""
    with running(tmp_path, num_io_threads="1", queued_max_requests="1") as node:
        with clients(node, 6) as slow, ExitStack() as stack:
            for client in slow:
                client.send(produce(SLOW, HEAVY), produce(SLOW, HEAVY))
            time.sleep(0.2)
            controller = Client.__new__(Client)
            controller.sock = stack.enter_context(socket.create_connection(("127.0.0.1", node.ports["CONTROLLER"])))
            controller.sock.settimeout(TIMEOUT_S)
            began = time.monotonic()
            controller.send(VERSIONS)
            assert controller.receive(ApiVersionsResponse, 3).error_code == 0
            assert time.monotonic() - began < 0.5
            assert slow[-1].is_silent()
            for client in slow:
                assert [produced(client)[0], produced(client)[0]] == [0, 0]
        found = metrics(node)
        prefix = "kafka_server_kafkarequesthandlerpool_"
        names = (BROKER, "controllerrequesthandleravgidlepercent", "requesthandleravgidlepercent")
        broker, of_controller, both = (found[f'{prefix}{name}{{window="1m"}}'] for name in names)
        assert 0 <= broker < both < of_controller <= 1
        assert found["ottla_request_handler_busy_seconds_total"] > 1


def test_num_io_threads_can_change_while_a_node_runs(tmp_path: Path) -> None:
    with running(tmp_path, num_io_threads="1") as node:

        def busy_with(count: int) -> Exposition:
            with clients(node, count) as slow:
                time.sleep(1)
                for client in slow:
                    client.send(produce(SLOW, HEAVY))
                found = metrics(node, wait_s=0.1)
                assert [produced(client)[0] for client in slow] == [0] * count
            return found

        found = busy_with(6)
        assert (found[POOL], found['ottla_request_threads{pool="broker"}']) == (1, 1)
        assert found["kafka_network_requestchannel_requestqueuesize"] == 5
        for size in ("2", "4"):
            set_on(node, ResourceType.BROKER, "", "num.io.threads", size)
        wait_until(lambda: metrics(node)['ottla_request_workers{pool="broker"}'] == 4)
        found = busy_with(6)
        assert (found[POOL], found['ottla_request_threads{pool="broker"}']) == (4, 4)
        set_on(node, ResourceType.BROKER, "", "num.io.threads", "2")
        wait_until(lambda: metrics(node)['ottla_request_threads{pool="broker"}'] == 2)
        found = busy_with(6)
        assert (found[POOL], found['ottla_request_threads{pool="broker"}']) == (2, 2)


def test_a_node_stops_cleanly_with_a_full_queue(tmp_path: Path) -> None:
    with running(tmp_path, num_io_threads="1", queued_max_requests="1") as node, clients(node, 8) as slow:
        for client in slow:
            client.send(*[produce(SLOW, HEAVY)] * 2)
        time.sleep(0.2)
        node.stop()


def test_pipelined_requests_do_not_block_other_connections(tmp_path: Path) -> None:
    """Thousands of pipelined requests wait for the only worker; another client is still served in turn."""
    with running(tmp_path, num_io_threads="1") as node, clients(node, 2) as (greedy, other):
        greedy.send(produce(SLOW, HEAVY), *[(MetadataRequest(topics=[]), 9)] * 5000)
        time.sleep(0.05)
        other.send(VERSIONS)
        assert produced(greedy)[0] == 0
        assert other.receive(ApiVersionsResponse, 3).error_code == 0
        received = 0
        while not greedy.is_silent(0.5):
            received += len(greedy.sock.recv(1 << 20))
        assert received > 5000 * 20
