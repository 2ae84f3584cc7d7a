"""Quotas slow clients down as Kafka's do: the same clients, by about as much, from the moment they are set."""

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
from tests.conformance.differential.harness import Answers, NodePair, both_running
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, batch, fetch, produce
from tests.support.ottla_node import OttlaNode

Entity = dict[str, str | None]
USER = "ANONYMOUS"
ME: Entity = {"client-id": "me"}
WINDOWS_S = 11.0
"""So long is remembered what a client did."""


def entities(client: str) -> list[Entity]:
    """What quotas may be set for that count for a client, from the closest to the farthest."""
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


OF_THE_USER = (2, 5)
"""Those that all clients share; all tests are the same user."""


@pytest.fixture
def unmeasured() -> Iterator[None]:
    """Whatever tests before this one sent is forgotten: sooner, each side counts as much of it as its windows hold."""
    time.sleep(max(0.0, _last.measured_s + WINDOWS_S - time.monotonic()))
    yield
    _last.measured_s = time.monotonic()


_last = SimpleNamespace(measured_s=0.0)


@pytest.fixture(scope="module")
def slow_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with both_running(tmp_path_factory.mktemp("quotas")) as nodes:
        yield nodes


@pytest.fixture
def slow(slow_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, node = slow_nodes
    before = node.log_path.stat().st_size
    yield both
    both.reconnect()
    complaints = node.logged_errors(before)
    assert not complaints, complaints


def set_quotas(both: NodePair, *given: tuple[Entity, str, float | None]) -> None:
    """Set quotas on both, and wait until both tell so."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
            )
            for entity, key, value in given
        ]
    )
    # From a client of its own, lest it be slowed down itself.
    with both.other_connections() as other:
        other.expect_same(request, 1, client_id="admin")
        other.expect_same_soon(DescribeClientQuotasRequest(), 1, client_id="admin")
        time.sleep(0.2)  # Kafka's quotas follow its metadata, a moment after they are told


def throttled(answers: Answers) -> list[int]:
    return [answer.throttle_time_ms for answer in answers]


def check_alike(answers: Answers) -> None:
    """Both are slowed down or neither, and for a like time."""
    kafka, ottla = throttled(answers)
    assert (kafka > 0) == (ottla > 0), (kafka, ottla)
    assert abs(kafka - ottla) < 0.2 * kafka + 300, (kafka, ottla)


def asked(both: NodePair, request: object, version: int, client_id: str = "me") -> Answers:
    """The answers to a client that has not been slowed down yet: on connections of its own."""
    with both.other_connections() as other:
        return other.ask(request, version, client_id=client_id)


def check_the_closest_counts(both: NodePair, number: int) -> None:
    """A small one here, and larger ones farther off."""
    client = f"closest-{number}"
    topic = both.new_topic()
    near, *farther = entities(client)[number:]
    set_quotas(both, (near, "producer_byte_rate", 1000.0), *((far, "producer_byte_rate", 1e9) for far in farther))
    try:
        answers = asked(both, produce(9, (topic, 0, batch(value=bytes(50_000)))), 9, client)
        check_alike(answers)
        assert min(throttled(answers)) > 0
    finally:
        set_quotas(both, *((entity, "producer_byte_rate", None) for entity in (near, *farther)))
    answers = asked(both, produce(9, (topic, 0, batch(value=bytes(50_000)))), 9, client)
    assert throttled(answers) == [0, 0]


@pytest.mark.parametrize("number", sorted({*range(len(entities("")))} - {*OF_THE_USER}))
def test_the_closest_quota_of_a_producer_counts(slow: NodePair, number: int) -> None:
    check_the_closest_counts(slow, number)


@pytest.mark.parametrize("number", OF_THE_USER)
@pytest.mark.usefixtures("unmeasured")
def test_the_quota_of_a_user_counts(slow: NodePair, number: int) -> None:
    check_the_closest_counts(slow, number)


@pytest.mark.parametrize("number", [*OF_THE_USER, 7])
@pytest.mark.usefixtures("unmeasured")
def test_who_shares_a_quota(slow: NodePair, number: int) -> None:
    topic = slow.new_topic()
    shared = entities("one")[number]
    set_quotas(slow, (shared, "producer_byte_rate", 5000.0))
    try:
        for client_id in ("one", "two", "one"):
            check_alike(asked(slow, produce(9, (topic, 0, batch(value=bytes(40_000)))), 9, client_id))
    finally:
        set_quotas(slow, (shared, "producer_byte_rate", None))


def test_a_consumer_gets_records_when_there_is_room(slow: NodePair) -> None:
    """Not quite half of what the windows hold: the third is too much, and none so near that the moment decides."""
    topic = slow.new_topic()
    slow.expect_same(produce(9, (topic, 0, batch(value=bytes(72_000)))), 9)
    set_quotas(slow, (ME, "consumer_byte_rate", 15_000.0))
    try:
        for slowed_down in (False, False, True, True):
            answers = asked(slow, fetch(12, Part(topic)), 12)
            check_alike(answers)
            assert [ms > 0 for ms in throttled(answers)] == [slowed_down] * 2
            # Nothing to one who has to wait.
            assert [bool(each.responses) for each in answers] == [not slowed_down] * 2
        assert min(throttled(answers)) > 1000
    finally:
        set_quotas(slow, (ME, "consumer_byte_rate", None))


def test_a_consumer_gets_no_more_at_once_than_fits_the_windows(slow: NodePair) -> None:
    topic = slow.new_topic()
    for _ in range(4):
        slow.expect_same(produce(9, (topic, 0, batch(value=bytes(100_000)))), 9)
    quota: Entity = {"client-id": "hungry"}
    set_quotas(slow, (quota, "consumer_byte_rate", 15_000.0))
    try:
        sizes: dict[str, int] = {}
        while len(sizes) < 2:
            for side, answer in zip(slow.sides, asked(slow, fetch(12, Part(topic)), 12, "hungry"), strict=True):
                if side.name in sizes:
                    continue
                # At the limit exactly: to wait for some milliseconds, and ask again, if its window has only just begun.
                assert answer.throttle_time_ms < 50
                if answer.responses:
                    sizes[side.name] = len(bytes(answer.responses[0].partitions[0].records))
        assert set(sizes.values()) == {150_000}
    finally:
        set_quotas(slow, (quota, "consumer_byte_rate", None))


def test_time_of_handlers_is_a_quota(slow: NodePair) -> None:
    set_quotas(slow, (ME, "request_percentage", 0.0001))
    try:
        with slow.other_connections() as other:
            answers = other.ask(MetadataRequest(topics=[]), 9, client_id="me")
            # Above all measure, and yet no longer than a window.
            assert throttled(answers) == [1000, 1000]
            before = time.monotonic()
            other.ask(MetadataRequest(topics=[]), 9, client_id="me", timeout_s=30)
            assert time.monotonic() - before > 0.5  # not read from meanwhile
            assert throttled(other.ask(MetadataRequest(topics=[]), 1, client_id="me", timeout_s=30)) == [0, 0]
    finally:
        set_quotas(slow, (ME, "request_percentage", None))


def test_changes_to_topics_are_a_quota(slow: NodePair) -> None:
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
        # What has been saved up may be overdrawn once; then clients are told to come again.
        answers = asked(slow, topics("first", 5, 7, 3), 6)
        check_alike(answers)
        codes = [[topic.error_code for topic in sorted(each.topics, key=lambda t: t.name)] for each in answers]
        assert codes[0].count(89) == codes[1].count(89) == 1
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="first-0", count=9, assignments=None)], timeout_ms=10_000
        )
        with slow.other_connections() as other:
            answers = other.ask(more, 3, client_id="me")
            check_alike(answers)
            assert [each.results[0].error_code for each in answers] == [89, 89]
        # Older clients would not understand: they are only slowed down.
        answers = asked(slow, topics("second", 2), 5)
        check_alike(answers)
        assert [each.topics[0].error_code for each in answers] == [0, 0]
        assert min(throttled(answers)) > 0
    finally:
        set_quotas(slow, (ME, "controller_mutation_rate", None))


def test_quotas_are_told_as_they_are_set(slow: NodePair) -> None:
    given = [(entity, "request_percentage", 10.5 + number) for number, entity in enumerate(entities("me"))]
    set_quotas(slow, *given, ({"ip": "192.0.2.1"}, "connection_creation_rate", 5.0))
    try:
        slow.expect_same(DescribeClientQuotasRequest(), 1, messages=Messages.LOOSELY)
    finally:
        set_quotas(
            slow,
            *((entity, key, None) for entity, key, _ in given),
            ({"ip": "192.0.2.1"}, "connection_creation_rate", None),
        )


def test_an_address_that_connects_too_often_waits(tmp_path: Path) -> None:
    """Also if it was named. On nodes of its own: all tests come from the same address."""
    frame = struct.pack(">hhih", 18, 0, 1, -1)
    asked_versions = struct.pack(">i", len(frame)) + frame
    with both_running(tmp_path) as (both, _):
        set_quotas(both, ({"ip": "localhost"}, "connection_creation_rate", 1.0))
        for side in both.sides:
            outcomes: list[bool] = []
            while outcomes.count(False) < 2 and len(outcomes) < 25:
                with socket.create_connection(("127.0.0.1", side.ports["PLAINTEXT"])) as sock:
                    sock.settimeout(30)
                    try:
                        sock.sendall(asked_versions)
                        outcomes.append(bool(sock.recv(4)))
                    except ConnectionResetError:
                        outcomes.append(False)
            # Some are let in at first; then they are kept waiting, and closed.
            assert outcomes[0], side
            assert outcomes.count(False) == 2, (side, outcomes)
