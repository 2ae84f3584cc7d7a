"""Clients under two quotas on a real node: the longer throttle time applies."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.rpc.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.codec import decode
from tests.conformance.differential.harness import ask_alone, frame_of
from tests.support.logs_in_memory import batch
from tests.support.ottla_node import OttlaNode
from tests.unit.node.test_node_process import SETTINGS

TINY_PERCENTAGE = 0.0001
WINDOW_MS = 1000
BYTES = 50_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path_factory.mktemp("quotas"), SETTINGS)
    made.format()
    with made.running():
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert not ask_alone(made, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code
        yield made
    assert not made.logged_errors()


def limit(node: OttlaNode, client_id: str, **quotas: float) -> None:
    """Set quotas of a client id, and wait until they are enforced."""
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    ops = [OpData(key=key, value=value) for key, value in quotas.items()]
    ask_alone(node, AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
    deadline = time.monotonic() + 10
    while client_id not in str(ask_alone(node, DescribeClientQuotasRequest(), 1)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Client:
    """A connection with a client id."""

    def __init__(self, node: OttlaNode, client_id: str) -> None:
        self.client_id = client_id
        self._sock = socket.create_connection(("127.0.0.1", node.ports["PLAINTEXT"]), timeout=20)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def produce(self, *, acks: int) -> int:
        """Send a batch, and return the throttle time of the answer; 0 without an answer."""
        part = PartitionProduceData(index=0, records=bytes(batch(bytes(BYTES))))
        request = ProduceRequest(
            acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[part])]
        )
        self._send(request, 9)
        return decode(ProduceResponse, 9, self._receive()).throttle_time_ms if acks else 0

    def create_topics(self, partitions: int) -> int:
        """Create a topic with a quota that throttles instead of refusing; return the throttle time."""
        topic = CreatableTopic(name=f"{self.client_id}-{partitions}", num_partitions=partitions, replication_factor=1)
        self._send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        answer = decode(CreateTopicsResponse, 5, self._receive())
        assert not answer.topics[0].error_code, answer
        return answer.throttle_time_ms

    def ask_metadata(self) -> None:
        self._send(MetadataRequest(topics=[]), 9)
        decode(MetadataResponse, 9, self._receive())

    def _send(self, request: object, version: int) -> None:
        frame = frame_of(request, version, 1, self.client_id)
        self._sock.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self) -> bytes:
        """Return the body of the next answer, without its flexible header."""
        with self._sock.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)[5:]


@pytest.mark.parametrize(
    ("client_id", "bytes_per_s", "expected"),
    [("bandwidth-is-longer", 1000.0, range(WINDOW_MS + 1, 60_000)), ("requests-are-longer", 1e9, [WINDOW_MS])],
)
def test_the_longer_of_two_throttle_times_applies(
    node: OttlaNode, client_id: str, bytes_per_s: float, expected: range | list[int]
) -> None:
    limit(node, client_id, producer_byte_rate=bytes_per_s, request_percentage=TINY_PERCENTAGE)
    with Client(node, client_id) as client:
        assert client.produce(acks=1) in expected


@pytest.mark.parametrize(
    ("client_id", "partitions_per_s", "expected"),
    [("changes-are-longer", 1.0, range(WINDOW_MS + 1, 60_000)), ("time-is-longer", 1e6, [WINDOW_MS])],
)
def test_the_longer_throttle_time_applies_to_forwarded_requests(
    node: OttlaNode, client_id: str, partitions_per_s: float, expected: range | list[int]
) -> None:
    limit(node, client_id, controller_mutation_rate=partitions_per_s, request_percentage=TINY_PERCENTAGE)
    with Client(node, client_id) as client:
        assert client.create_topics(30) in expected


def test_a_produce_without_acks_is_exempt_from_the_request_quota(node: OttlaNode) -> None:
    limit(node, "no-acks", request_percentage=TINY_PERCENTAGE)
    with Client(node, "no-acks") as client:
        begun = time.monotonic()
        for _ in range(5):
            client.produce(acks=0)
        client.ask_metadata()
        assert time.monotonic() - begun < 3 * WINDOW_MS / 1000, "or each would have muted the connection for a window"
        client.ask_metadata()
        assert time.monotonic() - begun > WINDOW_MS / 2000, "the request before it had an answer, and did"


def test_a_produce_without_acks_is_subject_to_the_byte_quota(node: OttlaNode) -> None:
    limit(node, "bytes-without-acks", producer_byte_rate=4000.0)
    with Client(node, "bytes-without-acks") as client:
        begun = time.monotonic()
        client.produce(acks=0)
        client.ask_metadata()
        assert time.monotonic() - begun > 0.5, "the connection is muted though there is no answer to say so"
