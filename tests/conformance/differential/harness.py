"""An Apache Kafka node and an Ottla node with equal settings get the same requests, and their answers are compared.

    def test_a_topic_that_is_not_there(both: NodePair) -> None:
        both.expect_same(MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")]), version=12)

`ask` sends a request to both and returns both answers: decoded, or `closed` if the node closed the connection, or
`silent` if it did not answer in time. `expect_same` also fails with the differences. A function makes a request for
each side if the request has values that differ between the nodes, such as a topic's id or a session:

    both.expect_same(lambda side: FetchRequest(topics=[FetchTopic(topic_id=side.id_of("t"), ...)]), version=13)

`send` writes raw bytes as a frame. Each side has one connection per listener, and opens a new one after `reconnect` or
when the old one was closed. `normalization.py` says how answers are compared.
"""

import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bench.harness.ports import free_ports

from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.codec import decode, decode_from, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.errors import ProtocolError
from tests.conformance.differential.normalization import CLOSED, SILENT, Messages, NodeNames, compare, normalize
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

ANSWER_TIMEOUT_S = 15.0
NEVER_ANSWERED = 0x7FFF_0000
ASKED_ALONE = 0x7FFE_0000
# Retention runs at any time, and tests write old records.
EQUAL_SETTINGS = {"log.retention.ms": "-1"}
_length = struct.Struct(">i")


class Side:
    """A client's view of one of the two nodes."""

    def __init__(
        self,
        name: str,
        ports: Mapping[str, int],
        log_tail: Callable[[], str],
        *,
        log_path: Path | None = None,
        like: "Side | None" = None,
    ) -> None:
        self.name = name
        self.ports = ports
        self.log_tail = log_tail
        self.log_path = log_path
        """The file that the node logs to."""
        self.names: NodeNames = like.names if like else NodeNames(ports)
        self.memory: dict[str, Any] = {}
        """Values that a test keeps for this side, such as session ids."""
        self._ids: dict[str, bytes] = like._ids if like else {}
        self._sockets: dict[str, socket.socket] = {}

    def __repr__(self) -> str:
        return f"Side({self.name})"

    def id_of(self, topic: str) -> bytes:
        """Return the id of a topic on this side."""
        return self._ids[topic]

    def learn(self, topic: str, topic_id: bytes) -> None:
        """Remember the id of a topic, also after its deletion."""
        self._ids[topic] = topic_id
        self.names.topics[topic_id] = topic

    def send(self, frame: bytes, listener: str) -> None:
        """Send a frame; a closed connection is noticed when the answer is read."""
        self.send_raw(_length.pack(len(frame)) + frame, listener)

    def send_raw(self, data: bytes, listener: str = "PLAINTEXT") -> None:
        """Send bytes without a length in front."""
        sock = self._sockets.get(listener)
        if sock is None:
            sock = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=ANSWER_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[listener] = sock
        try:
            sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self, listener: str, timeout_s: float) -> bytes | str:
        """Return the next frame, or `closed` or `silent`; after these two the connection is closed."""
        sock = self._sockets[listener]
        deadline = time.monotonic() + timeout_s
        try:
            (size,) = _length.unpack(_read(sock, 4, deadline))
            return _read(sock, size, deadline)
        except (ConnectionError, EOFError):
            self.close(listener)
            return CLOSED
        except TimeoutError:
            self.close(listener)
            return SILENT

    def ask(self, request: Any, version: int, *, listener: str = "PLAINTEXT") -> Any:
        """Return the answer of this node alone."""
        self.send(frame_of(request, version, ASKED_ALONE, "differential"), listener)
        frame = self.require_answer(self.receive(listener, ANSWER_TIMEOUT_S))
        return _decode(self, schema_of(type(request)).key, version, ASKED_ALONE, frame)

    def require_answer(self, answer: Any) -> Any:
        """Return the answer. If the node does not answer, fail with the end of its log."""
        assert not isinstance(answer, str), f"{self.name} is {answer}; end of its log: {self.log_tail()[-3000:]}"
        return answer

    def close(self, listener: str) -> None:
        """Close the connection to a listener, if there is one."""
        sock = self._sockets.pop(listener, None)
        if sock is not None:
            sock.close()

    def close_all(self) -> None:
        for listener in list(self._sockets):
            self.close(listener)


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class Answers(NamedTuple):
    """The answers of both nodes: decoded responses, `closed` or `silent`."""

    kafka: Any
    ottla: Any


RequestSource: TypeAlias = Any | Callable[[Side], Any]
"""A request, or a function that makes one for a side."""


class NodePair:
    """The two nodes."""

    def __init__(self, kafka: Side, ottla: Side) -> None:
        self.kafka = kafka
        self.ottla = ottla
        self._correlation_ids = count(1)
        self._topics = count(1)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ottla

    def ask(
        self,
        request: RequestSource,
        version: int,
        *,
        client_id: str | None = "differential",
        listener: str = "PLAINTEXT",
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Answers:
        """Send a request to both nodes before reading either answer, and return both answers."""
        requests = [request(side) if callable(request) else request for side in self.sides]
        key = schema_of(type(requests[0])).key
        correlation_id = next(self._correlation_ids)
        for side, side_request in zip(self.sides, requests, strict=True):
            side.send(frame_of(side_request, version, correlation_id, client_id), listener)
        answers = []
        for side in self.sides:
            frame = side.receive(listener, timeout_s)
            answers.append(frame if isinstance(frame, str) else _decode(side, key, version, correlation_id, frame))
        return Answers(*answers)

    def expect_same(
        self,
        request: RequestSource,
        version: int,
        *,
        ignoring: Iterable[str] = (),
        messages: Messages = Messages.IGNORED,
        ordered: Iterable[str] = (),
        **options: Any,
    ) -> Answers:
        """Fail unless both nodes give the same answer; return the answers."""
        answers = self.ask(request, version, **options)
        differences = self.differences(answers, version, ignoring=ignoring, messages=messages, ordered=ordered)
        if differences:
            text = _shorten(request(self.ottla) if callable(request) else request)
            raise AssertionError(f"{text} v{version}:\n  " + "\n  ".join(differences))
        return answers

    def expect_same_soon(self, request: RequestSource, version: int, *, within_s: float = 5, **options: Any) -> Answers:
        """Retry `expect_same` for a while: brokers learn of the controller's decisions after its clients do."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return self.expect_same(request, version, **options)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def differences(
        self,
        answers: Answers,
        version: int,
        *,
        ignoring: Iterable[str] = (),
        messages: Messages = Messages.IGNORED,
        ordered: Iterable[str] = (),
    ) -> list[str]:
        """Return the differences between the two answers."""
        ordered_lists = tuple(ordered)
        kafka, ottla = (
            normalize(answer, version, side.names, messages=messages, ordered=ordered_lists)
            for side, answer in zip(self.sides, answers, strict=True)
        )
        return compare(kafka, ottla, ignoring=ignoring)

    def send_unanswered(self, request: RequestSource, version: int, *, listener: str = "PLAINTEXT") -> tuple[str, str]:
        """Send a request that gets no answer, and return whether each connection is `open` or `closed` then."""
        for side in self.sides:
            side_request = request(side) if callable(request) else request
            side.send(frame_of(side_request, version, NEVER_ANSWERED, "differential"), listener)
            side.send(frame_of(ApiVersionsRequest(), 0, NEVER_ANSWERED + 1, "differential"), listener)
        outcomes = []
        for side in self.sides:
            frame = side.receive(listener, ANSWER_TIMEOUT_S)
            if not isinstance(frame, str):
                assert _length.unpack_from(frame)[0] == NEVER_ANSWERED + 1, f"{side.name} answered the request"
            outcomes.append(frame if isinstance(frame, str) else "open")
        return outcomes[0], outcomes[1]

    def send(
        self, frame: bytes, *, listener: str = "PLAINTEXT", timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[bytes | str, bytes | str]:
        """Send raw bytes to both nodes, and return their undecoded answers."""
        for side in self.sides:
            side.send(frame, listener)
        return self.kafka.receive(listener, timeout_s), self.ottla.receive(listener, timeout_s)

    def reconnect(self) -> None:
        """Use new connections for the next requests."""
        for side in self.sides:
            side.close_all()

    @contextmanager
    def other_connections(self) -> Iterator["NodePair"]:
        """Return the same nodes over other connections, for use while a request waits."""
        kafka, ottla = (Side(side.name, side.ports, side.log_tail, like=side) for side in self.sides)
        other = NodePair(kafka, ottla)
        try:
            yield other
        finally:
            other.reconnect()

    # -- topics and records --

    def new_topic(self, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic with a new name on both nodes."""
        name = f"topic-{next(self._topics)}"
        self.create_topic(name, partitions=partitions, configs=configs)
        return name

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create the same topic on both nodes, and wait until it has leaders."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answers = self.ask(CreateTopicsRequest(topics=[topic]), 7)
        for side, answer in zip(self.sides, answers, strict=True):
            result = side.require_answer(answer).topics[0]
            assert not result.error_code, f"{side.name}: {result}"
            side.learn(name, result.topic_id)
        self._wait_for_leaders(name, partitions)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        # Kafka's metadata name a leader shortly before it leads; a fetch shows what a produce would get.
        parts = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(partitions)]
        request = FetchRequest(max_bytes=1, topics=[FetchTopic(topic=name, partitions=parts)])
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            fetched = [answer.responses[0].partitions for answer in self.ask(request, 12)]
            if not any(part.error_code for partitions in fetched for part in partitions):
                return
            assert time.monotonic() < deadline, f"{name} has no leaders: {fetched}"
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        """Delete a topic on both nodes, and wait until the brokers know."""
        self.expect_same(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not all(answer.topics[0].error_code for answer in self.ask(request, 9)):
            assert time.monotonic() < deadline, f"{name} still exists"
            time.sleep(0.01)

    def produce(
        self, topic: str, *data: bytes | bytearray, partition: int = 0, version: int = 12, acks: int = -1
    ) -> None:
        """Append the same batches to both nodes, one by one; both must accept each at the same offset."""
        for batch in data:
            answers = self.expect_same(produce_request(topic, batch, partition=partition, acks=acks), version)
            (answer,) = answers.ottla.responses[0].partition_responses
            assert not answer.error_code, answer


def produce_request(
    topic: str,
    data: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    """Return a produce request for one partition; up to v12 it names the topic, from v13 on it has the topic id."""
    part = PartitionProduceData(index=partition, records=data)
    topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[topic_data])


def header_of(key: int, version: int, correlation_id: int, client_id: str | None = "differential") -> bytes:
    """Return a request header in the format of its version, if that exists, for bodies that are no valid message."""
    api = BY_KEY.get(key)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode(header, 2 if api is not None and is_flexible(api.request, version) else 1)


def frame_of(request: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the frame of a request, without the length in front."""
    return header_of(schema_of(type(request)).key, version, correlation_id, client_id) + encode(request, version)


def decode_response(key: int, version: int, data: bytes) -> tuple[int, Any]:
    """Return the correlation id and the response of a frame, which must have no trailing bytes."""
    cls = BY_KEY[key].response
    # A client reads ApiVersions before it knows which versions the node supports.
    flexible = is_flexible(cls, version) and key != ApiKey.API_VERSIONS
    header, pos = decode_from(ResponseHeader, 1 if flexible else 0, memoryview(data))
    return header.correlation_id, decode(cls, version, data[pos:])


def _decode(side: Side, key: int, version: int, correlation_id: int, data: bytes) -> Any:
    try:
        response_id, response = decode_response(key, version, data)
    except ProtocolError as error:
        raise AssertionError(
            f"{side.name}'s answer to {BY_KEY[key].name} v{version} cannot be read: {error}"
        ) from error
    assert response_id == correlation_id, f"{side.name} answered {response_id} instead of {correlation_id}"
    return response


def _shorten(request: Any) -> str:
    text = repr(request)
    return text if len(text) <= 1500 else f"{text[:1500]}…"


@contextmanager
def running_node_pair(
    folder: Path, settings: Mapping[str, str] | None = None, *, jvm_options: Sequence[str] = ()
) -> Iterator[tuple[NodePair, OttlaNode]]:
    """Run a node of each kind with the same settings; both stop at the end."""
    merged = {**EQUAL_SETTINGS, **(settings or {})}
    kafka_folder, ottla_folder = folder / "kafka", folder / "ottla"
    kafka_folder.mkdir()
    ottla_folder.mkdir()
    kafka = KafkaNode(kafka_folder, jvm_options=jvm_options)
    kafka.port, controller_port = free_ports(2)
    ports = {"PLAINTEXT": kafka.port, "CONTROLLER": controller_port}
    _override(kafka_folder / "server.properties", merged, ports)
    ottla = OttlaNode(ottla_folder, {**SETTINGS, **merged})
    kafka.format()
    ottla.format()
    with ottla.running(), kafka.running(end=signal.SIGKILL):
        both = NodePair(
            Side("Kafka", ports, kafka.log_tail, log_path=kafka.log_path),
            Side("Ottla", ottla.ports, ottla.log_tail, log_path=ottla.log_path),
        )
        try:
            yield both, ottla
        finally:
            both.reconnect()


def _override(properties: Path, settings: Mapping[str, str], ports: Mapping[str, int]) -> None:
    """Override settings and ports in Kafka's properties file, where the last value counts."""
    values = {
        **settings,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
    }
    properties.write_text(properties.read_text() + "".join(f"{name}={value}\n" for name, value in values.items()))


def ask_alone(node: OttlaNode, request: Any, version: int) -> Any:
    """Return the answer of one node over a new connection."""
    side = Side("Ottla", node.ports, node.log_tail)
    try:
        return side.ask(request, version)
    finally:
        side.close_all()
