"""One Apache Kafka node and one Ottla node with equal settings: the same request to both, and their answers compared.

    def test_a_topic_that_is_not_there(both: Both) -> None:
        both.same(MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")]), version=12)

`ask` sends a request to both and gives back both answers, decoded, or `closed` where the node ended the connection
instead, or `silent` where no answer came in time. `same` does that and fails with the differences. Requests that name
what differs between the two (a topic's id, a session) are made for each side by a function:

    both.same(lambda side: FetchRequest(topics=[FetchTopic(topic_id=side.id_of("t"), ...)]), version=13)

`send` writes raw bytes as a frame. Each side keeps one connection for each listener, and opens a new one when asked to
(`reconnect`) or when the last was closed. Answers are compared as `normal.py` says.
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
from tests.conformance.differential.normal import CLOSED, SILENT, Known, Messages, compare, normal
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

ANSWER_TIMEOUT_S = 15.0
NEVER_ANSWERED = 0x7FFF_0000
ASKED_ALONE = 0x7FFE_0000
# Retention runs when it likes, and tests write old records.
EQUAL_SETTINGS = {"log.retention.ms": "-1"}
_length = struct.Struct(">i")


class Side:
    """One of the two nodes, as a client sees it."""

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
        """The file that its log is written to."""
        self.known: Known = like.known if like else Known(ports)
        self.memory: dict[str, Any] = {}
        """For a test's own use: session ids and the like."""
        self._ids: dict[str, bytes] = like._ids if like else {}
        self._sockets: dict[str, socket.socket] = {}

    def __repr__(self) -> str:
        return f"Side({self.name})"

    def id_of(self, topic: str) -> bytes:
        """The id that a topic has here."""
        return self._ids[topic]

    def learn(self, topic: str, topic_id: bytes) -> None:
        """Remember the id of a topic; ids of topics that are gone stay known."""
        self._ids[topic] = topic_id
        self.known.topics[topic_id] = topic

    def send(self, frame: bytes, listener: str) -> None:
        """Send a frame; what was closed meanwhile is noticed when the answer is read."""
        self.send_raw(_length.pack(len(frame)) + frame, listener)

    def send_raw(self, data: bytes, listener: str = "PLAINTEXT") -> None:
        """Send bytes as they are."""
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
        """The next frame, `closed` or `silent`; after those two the connection is gone."""
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
        """The answer of this node alone."""
        self.send(frame_of(request, version, ASKED_ALONE, "differential"), listener)
        got = self.must_answer(self.receive(listener, ANSWER_TIMEOUT_S))
        return _decoded(self, schema_of(type(request)).key, version, ASKED_ALONE, got)

    def must_answer(self, answer: Any) -> Any:
        """The answer; a test fails with the node's last words where there is none."""
        assert not isinstance(answer, str), f"{self.name} is {answer}; its last words: {self.log_tail()[-3000:]}"
        return answer

    def close(self, listener: str) -> None:
        """End the connection to a listener, if there is one."""
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
        got = sock.recv(size - len(data))
        if not got:
            raise EOFError
        data += got
    return bytes(data)


class Answers(NamedTuple):
    """What the two said: decoded responses, or `closed`, or `silent`."""

    kafka: Any
    ottla: Any


Asked: TypeAlias = Any | Callable[[Side], Any]
"""A request, or what makes one for each side."""


class Both:
    """The two nodes side by side."""

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
        request: Asked,
        version: int,
        *,
        client_id: str | None = "differential",
        listener: str = "PLAINTEXT",
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Answers:
        """Both answers to a request, which goes out to both before either answer is read."""
        made = [request(side) if callable(request) else request for side in self.sides]
        key = schema_of(type(made[0])).key
        correlation_id = next(self._correlation_ids)
        for side, each in zip(self.sides, made, strict=True):
            side.send(frame_of(each, version, correlation_id, client_id), listener)
        answers = []
        for side in self.sides:
            got = side.receive(listener, timeout_s)
            answers.append(got if isinstance(got, str) else _decoded(side, key, version, correlation_id, got))
        return Answers(*answers)

    def same(
        self,
        request: Asked,
        version: int,
        *,
        ignoring: Iterable[str] = (),
        messages: Messages = Messages.IGNORED,
        ordered: Iterable[str] = (),
        **how: Any,
    ) -> Answers:
        """Ask, and fail unless both say the same; returns what they said."""
        answers = self.ask(request, version, **how)
        found = self.differences(answers, version, ignoring=ignoring, messages=messages, ordered=ordered)
        if found:
            shown = _shown(request(self.ottla) if callable(request) else request)
            raise AssertionError(f"{shown} v{version}:\n  " + "\n  ".join(found))
        return answers

    def soon_same(self, request: Asked, version: int, *, within_s: float = 5, **how: Any) -> Answers:
        """As `same`, for what takes a moment: brokers learn of the controller's decisions after its clients do."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return self.same(request, version, **how)
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
        """What the two answers do not have in common."""
        kept = tuple(ordered)
        kafka, ottla = (
            normal(answer, version, side.known, messages=messages, ordered=kept)
            for side, answer in zip(self.sides, answers, strict=True)
        )
        return compare(kafka, ottla, ignoring=ignoring)

    def tell(self, request: Asked, version: int, *, listener: str = "PLAINTEXT") -> tuple[str, str]:
        """Send what wants no answer; says of each node whether the connection is `open` or `closed` then."""
        for side in self.sides:
            made = request(side) if callable(request) else request
            side.send(frame_of(made, version, NEVER_ANSWERED, "differential"), listener)
            side.send(frame_of(ApiVersionsRequest(), 0, NEVER_ANSWERED + 1, "differential"), listener)
        outcomes = []
        for side in self.sides:
            got = side.receive(listener, ANSWER_TIMEOUT_S)
            if not isinstance(got, str):
                assert _length.unpack_from(got)[0] == NEVER_ANSWERED + 1, f"{side.name} answered what wants no answer"
            outcomes.append(got if isinstance(got, str) else "open")
        return outcomes[0], outcomes[1]

    def send(
        self, frame: bytes, *, listener: str = "PLAINTEXT", timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[bytes | str, bytes | str]:
        """Both answers to raw bytes, undecoded."""
        for side in self.sides:
            side.send(frame, listener)
        return self.kafka.receive(listener, timeout_s), self.ottla.receive(listener, timeout_s)

    def reconnect(self) -> None:
        """Let the next requests come from new connections."""
        for side in self.sides:
            side.close_all()

    @contextmanager
    def elsewhere(self) -> Iterator["Both"]:
        """The same nodes over other connections, for what happens while a request waits."""
        kafka, ottla = (Side(side.name, side.ports, side.log_tail, like=side) for side in self.sides)
        other = Both(kafka, ottla)
        try:
            yield other
        finally:
            other.reconnect()

    # -- topics and records --

    def new_topic(self, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A topic with a name of its own, made on both."""
        name = f"topic-{next(self._topics)}"
        self.create_topic(name, partitions=partitions, configs=configs)
        return name

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make the same topic on both, and wait until it can be used."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answers = self.ask(CreateTopicsRequest(topics=[topic]), 7)
        for side, answer in zip(self.sides, answers, strict=True):
            made = side.must_answer(answer).topics[0]
            assert not made.error_code, f"{side.name}: {made}"
            side.learn(name, made.topic_id)
        self._wait_for_leaders(name, partitions)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        # Kafka's metadata name a leader shortly before it leads; a fetch tells what a produce would meet.
        parts = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(partitions)]
        request = FetchRequest(max_bytes=1, topics=[FetchTopic(topic=name, partitions=parts)])
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            found = [answer.responses[0].partitions for answer in self.ask(request, 12)]
            if not any(part.error_code for each in found for part in each):
                return
            assert time.monotonic() < deadline, f"{name} has no leaders: {found}"
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        """Delete a topic on both, and wait until their brokers know."""
        self.same(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not all(answer.topics[0].error_code for answer in self.ask(request, 9)):
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.01)

    def produce(
        self, topic: str, *data: bytes | bytearray, partition: int = 0, version: int = 12, acks: int = -1
    ) -> None:
        """Append the same batches to both, one after the other; each must be taken, at the same offset."""
        for each in data:
            answers = self.same(produce_request(topic, each, partition=partition, acks=acks), version)
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
    """A request for one partition. Up to v12 the topic goes by its name, from v13 on by its id."""
    part = PartitionProduceData(index=partition, records=data)
    named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[named])


def header_of(key: int, version: int, correlation_id: int, client_id: str | None = "differential") -> bytes:
    """The head of a request, for bodies that no message would make; in the format of its version, if that exists."""
    api = BY_KEY.get(key)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode(header, 2 if api is not None and is_flexible(api.request, version) else 1)


def frame_of(request: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request as it goes over the wire, without the length in front."""
    return header_of(schema_of(type(request)).key, version, correlation_id, client_id) + encode(request, version)


def decode_response(key: int, version: int, data: bytes) -> tuple[int, Any]:
    """The correlation id and the response of a frame; it must be used up to its last byte."""
    cls = BY_KEY[key].response
    # ApiVersions is read before the client knows what the node speaks.
    flexible = is_flexible(cls, version) and key != ApiKey.API_VERSIONS
    header, pos = decode_from(ResponseHeader, 1 if flexible else 0, memoryview(data))
    return header.correlation_id, decode(cls, version, data[pos:])


def _decoded(side: Side, key: int, version: int, correlation_id: int, data: bytes) -> Any:
    try:
        got, response = decode_response(key, version, data)
    except ProtocolError as error:
        raise AssertionError(
            f"{side.name}'s answer to {BY_KEY[key].name} v{version} cannot be read: {error}"
        ) from error
    assert got == correlation_id, f"{side.name} answered {got} instead of {correlation_id}"
    return response


def _shown(request: Any) -> str:
    text = repr(request)
    return text if len(text) <= 1500 else f"{text[:1500]}…"


@contextmanager
def both_running(
    folder: Path, settings: Mapping[str, str] | None = None, *, jvm_options: Sequence[str] = ()
) -> Iterator[tuple[Both, OttlaNode]]:
    """One node of each, with the same settings; both are gone afterwards."""
    own = {**EQUAL_SETTINGS, **(settings or {})}
    kafka_folder, ottla_folder = folder / "kafka", folder / "ottla"
    kafka_folder.mkdir()
    ottla_folder.mkdir()
    kafka = KafkaNode(kafka_folder, jvm_options=jvm_options)
    kafka.port, controller_port = free_ports(2)
    ports = {"PLAINTEXT": kafka.port, "CONTROLLER": controller_port}
    _override(kafka_folder / "server.properties", own, ports)
    ottla = OttlaNode(ottla_folder, {**SETTINGS, **own})
    kafka.format()
    ottla.format()
    with ottla.running(), kafka.running(end=signal.SIGKILL):
        both = Both(
            Side("Kafka", ports, kafka.log_tail, log_path=kafka.log_path),
            Side("Ottla", ottla.ports, ottla.log_tail, log_path=ottla.log_path),
        )
        try:
            yield both, ottla
        finally:
            both.reconnect()


def _override(properties: Path, settings: Mapping[str, str], ports: Mapping[str, int]) -> None:
    """Let Kafka have other settings and ports than its file says; what comes last counts."""
    values = {
        **settings,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
    }
    properties.write_text(properties.read_text() + "".join(f"{name}={value}\n" for name, value in values.items()))


def ask_alone(node: OttlaNode, request: Any, version: int) -> Any:
    """The answer of one node, on a connection of its own."""
    side = Side("Ottla", node.ports, node.log_tail)
    try:
        return side.ask(request, version)
    finally:
        side.close_all()
