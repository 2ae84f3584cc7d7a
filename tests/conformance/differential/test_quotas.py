"""Quotas throttle the same clients as Kafka's, for about the same time, from the moment they are set."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.rpc.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from tests.conformance.differential.harness import Answers, NodePair, running_node_pair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, batch, fetch, produce
from tests.support.ottla_node import OttlaNode

Entity = dict[str, str | None]
USER = "ANONYMOUS"
ME: Entity = {"client-id": "me"}
WINDOWS_S = 11.0
"""The time for which the quota windows count a client's use."""


def entities(client: str) -> list[Entity]:
    """Return the entities whose quotas can apply to a client, from the most to the least specific."""
    return [
        {"user": USER, "client-id": client},
        {"user": USER, "client-id": None},
        {"user": USER},
        {"user": None, "client-id": client},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": client},
        {"client-id": None},
    ]


USER_ENTITIES = (2, 5)
"""The entities that all clients share, because all tests have the same user."""


@pytest.fixture
def fresh_windows() -> Iterator[None]:
    """Wait until the windows no longer count the requests of earlier tests."""
    time.sleep(max(0.0, _last.measured_s + WINDOWS_S - time.monotonic()))
    yield
    _last.measured_s = time.monotonic()


_last = SimpleNamespace(measured_s=0.0)


@pytest.fixture(scope="module")
def slow_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with running_node_pair(tmp_path_factory.mktemp("quotas")) as nodes:
        yield nodes


@pytest.fixture
def slow(slow_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, node = slow_nodes
    log_start = node.log_path.stat().st_size
    yield both
    both.reconnect()
    errors = node.logged_errors(log_start)
    assert not errors, errors


def set_quotas(both: NodePair, *quotas: tuple[Entity, str, float | None]) -> None:
    """Set quotas on both nodes, and wait until both describe them."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
            )
            for entity, key, value in quotas
        ]
    )
    # With another client id, so that this request is not throttled.
    with both.other_connections() as other:
        other.expect_same(request, 1, client_id="admin")
        other.expect_same_soon(DescribeClientQuotasRequest(), 1, client_id="admin")
        time.sleep(0.2)  # Kafka applies quotas a moment after it describes them


def throttle_times(answers: Answers) -> list[int]:
    return [answer.throttle_time_ms for answer in answers]


def check_equal_throttling(answers: Answers) -> None:
    """Check that both nodes throttle for about the same time, or neither does."""
    kafka, ottla = throttle_times(answers)
    assert (kafka > 0) == (ottla > 0), (kafka, ottla)
    assert abs(kafka - ottla) < 0.2 * kafka + 300, (kafka, ottla)


def ask_on_new_connections(both: NodePair, request: object, version: int, client_id: str = "me") -> Answers:
    """Send a request on new connections, which are not muted, and return the answers."""
    with both.other_connections() as other:
        return other.ask(request, version, client_id=client_id)


def check_most_specific_quota(both: NodePair, number: int) -> None:
    """Set a small quota at one entity and larger ones at less specific entities."""
    client = f"closest-{number}"
    topic = both.new_topic()
    near, *farther = entities(client)[number:]
    set_quotas(both, (near, "producer_byte_rate", 1000.0), *((far, "producer_byte_rate", 1e9) for far in farther))
    try:
        answers = ask_on_new_connections(both, produce(9, (topic, 0, batch(value=bytes(50_000)))), 9, client)
        check_equal_throttling(answers)
        assert min(throttle_times(answers)) > 0
    finally:
        set_quotas(both, *((entity, "producer_byte_rate", None) for entity in (near, *farther)))
    answers = ask_on_new_connections(both, produce(9, (topic, 0, batch(value=bytes(50_000)))), 9, client)
    assert throttle_times(answers) == [0, 0]


@pytest.mark.parametrize("number", sorted({*range(len(entities("")))} - {*USER_ENTITIES}))
def test_the_most_specific_quota_of_a_producer_applies(slow: NodePair, number: int) -> None:
    check_most_specific_quota(slow, number)


@pytest.mark.parametrize("number", USER_ENTITIES)
@pytest.mark.usefixtures("fresh_windows")
def test_the_quota_of_a_user_applies(slow: NodePair, number: int) -> None:
    check_most_specific_quota(slow, number)


@pytest.mark.parametrize("number", [*USER_ENTITIES, 7])
@pytest.mark.usefixtures("fresh_windows")
def test_clients_share_the_quota_of_an_entity(slow: NodePair, number: int) -> None:
    topic = slow.new_topic()
    shared = entities("one")[number]
    set_quotas(slow, (shared, "producer_byte_rate", 5000.0))
    try:
        for client_id in ("one", "two", "one"):
            check_equal_throttling(
                ask_on_new_connections(slow, produce(9, (topic, 0, batch(value=bytes(40_000)))), 9, client_id)
            )
    finally:
        set_quotas(slow, (shared, "producer_byte_rate", None))


def test_a_consumer_gets_records_within_its_quota(slow: NodePair) -> None:
    """Each fetch uses almost half of the windows: the third exceeds the quota clearly, whatever the timing."""
    topic = slow.new_topic()
    slow.expect_same(produce(9, (topic, 0, batch(value=bytes(72_000)))), 9)
    set_quotas(slow, (ME, "consumer_byte_rate", 15_000.0))
    try:
        for slowed_down in (False, False, True, True):
            answers = ask_on_new_connections(slow, fetch(12, Part(topic)), 12)
            check_equal_throttling(answers)
            assert [ms > 0 for ms in throttle_times(answers)] == [slowed_down] * 2
            # A throttled client gets no records.
            assert [bool(answer.responses) for answer in answers] == [not slowed_down] * 2
        assert min(throttle_times(answers)) > 1000
    finally:
        set_quotas(slow, (ME, "consumer_byte_rate", None))


def test_a_fetch_returns_no_more_than_the_windows_allow(slow: NodePair) -> None:
    topic = slow.new_topic()
    for _ in range(4):
        slow.expect_same(produce(9, (topic, 0, batch(value=bytes(100_000)))), 9)
    quota: Entity = {"client-id": "hungry"}
    set_quotas(slow, (quota, "consumer_byte_rate", 15_000.0))
    try:
        sizes: dict[str, int] = {}
        while len(sizes) < 2:
            for side, answer in zip(
                slow.sides, ask_on_new_connections(slow, fetch(12, Part(topic)), 12, "hungry"), strict=True
            ):
                if side.name in sizes:
                    continue
                # Exactly at the limit; if the window has just begun, the client waits some milliseconds and asks again.
                assert answer.throttle_time_ms < 50
                if answer.responses:
                    sizes[side.name] = len(bytes(answer.responses[0].partitions[0].records))
        assert set(sizes.values()) == {150_000}
    finally:
        set_quotas(slow, (quota, "consumer_byte_rate", None))


def test_request_time_is_throttled(slow: NodePair) -> None:
    set_quotas(slow, (ME, "request_percentage", 0.0001))
    try:
        with slow.other_connections() as other:
            answers = other.ask(MetadataRequest(topics=[]), 9, client_id="me")
            # Far above the quota, but throttled no longer than a window.
            assert throttle_times(answers) == [1000, 1000]
            start = time.monotonic()
            other.ask(MetadataRequest(topics=[]), 9, client_id="me", timeout_s=30)
            assert time.monotonic() - start > 0.5  # the connection is muted meanwhile
            assert throttle_times(other.ask(MetadataRequest(topics=[]), 1, client_id="me", timeout_s=30)) == [0, 0]
    finally:
        set_quotas(slow, (ME, "request_percentage", None))


def test_controller_mutations_are_throttled(slow: NodePair) -> None:
    def topics(prefix: str, *counts: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(name=f"{prefix}-{number}", num_partitions=count, replication_factor=1)
                for number, count in enumerate(counts)
            ],
            timeout_ms=10_000,
        )

    set_quotas(slow, (ME, "controller_mutation_rate", 1.0))
    try:
        # The saved-up burst may be exceeded once; then clients get THROTTLING_QUOTA_EXCEEDED.
        answers = ask_on_new_connections(slow, topics("first", 5, 7, 3), 6)
        check_equal_throttling(answers)
        codes = [[topic.error_code for topic in sorted(answer.topics, key=lambda t: t.name)] for answer in answers]
        assert codes[0].count(89) == codes[1].count(89) == 1
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="first-0", count=9, assignments=None)], timeout_ms=10_000
        )
        with slow.other_connections() as other:
            answers = other.ask(more, 3, client_id="me")
            check_equal_throttling(answers)
            assert [answer.results[0].error_code for answer in answers] == [89, 89]
        # Older clients do not know the error: they are only throttled.
        answers = ask_on_new_connections(slow, topics("second", 2), 5)
        check_equal_throttling(answers)
        assert [answer.topics[0].error_code for answer in answers] == [0, 0]
        assert min(throttle_times(answers)) > 0
    finally:
        set_quotas(slow, (ME, "controller_mutation_rate", None))


def test_quotas_are_described_as_set(slow: NodePair) -> None:
    quotas = [(entity, "request_percentage", 10.5 + number) for number, entity in enumerate(entities("me"))]
    set_quotas(slow, *quotas, ({"ip": "192.0.2.1"}, "connection_creation_rate", 5.0))
    try:
        slow.expect_same(DescribeClientQuotasRequest(), 1, messages=Messages.LOOSELY)
    finally:
        set_quotas(
            slow,
            *((entity, key, None) for entity, key, _ in quotas),
            ({"ip": "192.0.2.1"}, "connection_creation_rate", None),
        )


def test_an_address_over_its_connection_rate_waits(tmp_path: Path) -> None:
    """The quota has the address's host name. Runs on its own nodes, because all tests share an address."""
    frame = struct.pack(">hhih", 18, 0, 1, -1)
    versions_request = struct.pack(">i", len(frame)) + frame
    with running_node_pair(tmp_path) as (both, _):
        set_quotas(both, ({"ip": "localhost"}, "connection_creation_rate", 1.0))
        for side in both.sides:
            outcomes: list[bool] = []
            while outcomes.count(False) < 2 and len(outcomes) < 25:
                with socket.create_connection(("127.0.0.1", side.ports["PLAINTEXT"])) as sock:
                    sock.settimeout(30)
                    try:
                        sock.sendall(versions_request)
                        outcomes.append(bool(sock.recv(4)))
                    except ConnectionResetError:
                        outcomes.append(False)
            # The first connections are accepted; later ones wait, and are closed.
            assert outcomes[0], side
            assert outcomes.count(False) == 2, (side, outcomes)
