"""Fetch, versions 4 to 18: positions, limits, epochs, waits and isolation levels work as Kafka's."""

import time
from collections.abc import Iterator
from random import Random
from threading import Thread

import pytest

from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.wire.batch import read_batches
from tests.conformance.differential.harness import NodePair, Side, frame_of
from tests.conformance.differential.requests import FETCH_VERSIONS, Part, batch, fetch, produce, topic_id_of

LATEST = FETCH_VERSIONS[-1]
FAR = 1 << 40


@pytest.fixture(scope="module")
def filled(two_nodes: tuple[NodePair, object]) -> str:
    """Return a topic: partition 0 has ten growing batches of three records, partition 1 one batch, partition 2 none."""
    both = two_nodes[0]
    topic = both.new_topic(partitions=3)
    both.produce(topic, *(batch(3, value=b"x" * (10 + 40 * number)) for number in range(10)))
    both.produce(topic, batch(2), partition=1)
    return topic


@pytest.fixture(scope="module")
def segmented(two_nodes: tuple[NodePair, object]) -> str:
    """Return a topic with forty batches of two records in many segments."""
    both = two_nodes[0]
    topic = both.new_topic(configs={"internal.segment.bytes": "600", "index.interval.bytes": "100"})
    both.produce(topic, *(batch(2, value=b"y" * (number % 7 * 10)) for number in range(40)))
    return topic


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_every_version_returns_records_the_same_way(both: NodePair, filled: str, version: int) -> None:
    parts = [Part(filled, index) for index in range(3)]
    both.expect_same(fetch(version, *parts), version)
    both.expect_same(fetch(version, *reversed(parts)), version)
    both.expect_same(fetch(version, *parts, isolation_level=1), version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_offsets_get_the_same_answers(both: NodePair, filled: str, segmented: str, version: int) -> None:
    for offset in (-2, -1, 0, 1, 2, 3, 14, 29, 30, 31, FAR):
        both.expect_same(fetch(version, Part(filled, offset=offset)), version)
        both.expect_same(fetch(version, Part(segmented, offset=offset)), version)
        both.expect_same(fetch(version, Part(filled, 2, offset=offset)), version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_limits_per_partition_apply_the_same_way(both: NodePair, filled: str, version: int) -> None:
    for limit in (0, 1, 60, 100, 250, 401, 1000):
        both.expect_same(fetch(version, Part(filled, offset=4, max_bytes=limit)), version)
        both.expect_same(
            fetch(version, Part(filled, offset=4, max_bytes=limit), Part(filled, 1, max_bytes=limit)), version
        )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_limits_per_response_apply_the_same_way(both: NodePair, filled: str, version: int) -> None:
    parts = [Part(filled, 0, offset=20), Part(filled, 1), Part(filled, 2)]
    for limit in (0, 1, 100, 500, 3000):
        for requested in (parts, parts[::-1], parts[1:]):
            request = fetch(version, *requested, max_bytes=limit)
            both.expect_same(request, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_missing_topics_and_partitions_get_the_same_answers(both: NodePair, filled: str, version: int) -> None:
    both.expect_same(fetch(version, Part("nowhere")), version)
    both.expect_same(fetch(version, Part(filled, 3)), version)
    both.expect_same(fetch(version, Part(filled, -1)), version)
    both.expect_same(fetch(version, Part(filled), Part("nowhere"), Part(filled, 17), Part(filled, 1)), version)
    both.expect_same(fetch(version), version)
    both.expect_same(
        lambda side: FetchRequest(topics=[FetchTopic(topic=filled, topic_id=topic_id_of(side, filled))]), version
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_leader_epochs_are_checked_the_same_way(both: NodePair, filled: str, version: int) -> None:
    for epoch in (-1, 0, 1, 100, -5):
        both.expect_same(fetch(version, Part(filled, epoch=epoch)), version)
        both.expect_same(fetch(version, Part(filled, offset=FAR, epoch=epoch)), version)
    for last in (-1, 0, 1, 7):
        for offset in (0, 5, 30, 31):
            both.expect_same(fetch(version, Part(filled, offset=offset, last_fetched_epoch=last)), version)
            both.expect_same(fetch(version, Part(filled, 2, offset=offset, epoch=0, last_fetched_epoch=last)), version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_repeated_partition_gets_the_same_answer(both: NodePair, filled: str, version: int) -> None:
    both.expect_same(fetch(version, Part(filled, 0, 3, 300), Part(filled, 0, 9, 200), Part(filled, 1)), version)


@pytest.mark.parametrize("version", [4, 10, 11, 12, 13, 15, 18])
def test_fetches_of_unknown_followers_get_the_same_answers(both: NodePair, filled: str, version: int) -> None:
    for replica in (-2, 0, 1, 5):

        def make(side: Side, replica: int = replica) -> FetchRequest:
            request = fetch(version, Part(filled, offset=3))(side)
            request.replica_id = replica
            if version >= 15:
                request.replica_state = ReplicaState(replica_id=replica, replica_epoch=-1)
            return request

        both.expect_same(make, version)


def measure_waits(both: NodePair, request: object, version: int) -> tuple[float, float]:
    """Return the seconds that each node took for its answer."""
    times = []
    for side in both.sides:
        start = time.monotonic()
        side_request = request(side) if callable(request) else request
        side.send(frame_of(side_request, version, 1, "differential"), "PLAINTEXT")
        assert not isinstance(side.receive("PLAINTEXT", 10), str)
        times.append(time.monotonic() - start)
    return times[0], times[1]


@pytest.mark.parametrize(
    ("part", "min_bytes", "max_wait_ms", "waits"),
    [
        (Part("", 0, 0), 1, 250, False),
        (Part("", 0, 30), 1, 250, True),
        (Part("", 0, 30), 0, 250, False),
        (Part("", 0, 30), -1, 250, False),
        (Part("", 0, 27), 100_000, 250, True),
        (Part("", 0, 0, max_bytes=10), 100_000, 250, True),
        (Part("", 0, 31), 1, 250, False),
        (Part("", 0, 30, epoch=4), 1, 250, False),
        (Part("", 7, 0), 1, 250, False),
        (Part("", 2, 0), 1, 250, True),
        (Part("", 2, 0), 1, 0, False),
        (Part("", 2, 0), 1, -1, False),
    ],
)
def test_fetches_wait_the_same_way(
    both: NodePair, filled: str, part: Part, min_bytes: int, max_wait_ms: int, waits: bool
) -> None:
    for version in (4, 12, 18):
        request = fetch(version, part._replace(topic=filled), min_bytes=min_bytes, max_wait_ms=max_wait_ms)
        both.expect_same(request, version)
    for took in measure_waits(both, request, version):
        assert (took >= 0.24) == waits, took


def test_missing_partitions_do_not_end_a_wait(both: NodePair, filled: str) -> None:
    for missing in (Part("nowhere"), Part(filled, 7)):
        for version in (12, 18):
            request = fetch(version, missing, Part(filled, 0, 30), max_wait_ms=200)
            both.expect_same(request, version)
            assert [took >= 0.19 for took in measure_waits(both, request, version)] == [True, True]


def test_errors_of_partitions_end_a_wait(both: NodePair, filled: str) -> None:
    for wrong in (Part(filled, 1, offset=99), Part(filled, 1, epoch=5)):
        request = fetch(12, wrong, Part(filled, 0, 30), max_wait_ms=3000)
        both.expect_same(request, 12)
        assert [took < 1 for took in measure_waits(both, request, 12)] == [True, True]


def test_an_empty_fetch_does_not_wait(both: NodePair) -> None:
    for version in FETCH_VERSIONS:
        both.expect_same(fetch(version, max_wait_ms=20), version)


@pytest.mark.parametrize("version", [4, 12, 13, 18])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_produce_completes_a_waiting_fetch(both: NodePair, version: int, partitions: int) -> None:
    topic = both.new_topic(partitions=partitions)
    parts = [Part(topic, index) for index in range(partitions)]
    request = fetch(version, *parts, max_wait_ms=8000, min_bytes=150)
    start = time.monotonic()
    waiting = Thread(target=lambda: both.expect_same(request, version))
    with both.other_connections() as others:
        waiting.start()
        time.sleep(0.1)
        others.produce(topic, batch(2))
        time.sleep(0.05)
        assert waiting.is_alive(), "the first batch was not enough"
        others.produce(topic, batch(2), partition=partitions - 1)
        waiting.join(5)
    assert time.monotonic() - start < 4


def test_deleting_the_topic_completes_a_waiting_fetch(both: NodePair) -> None:
    for version in (12, 13):
        topic = both.new_topic()
        waiting = Thread(target=lambda: None)
        answers: list[list[str]] = []

        def wait(topic: str = topic, version: int = version, answers: list[list[str]] = answers) -> None:
            fetched = both.ask(fetch(version, Part(topic), max_wait_ms=3000), version)
            answers.append(both.differences(fetched, version))

        waiting = Thread(target=wait)
        with both.other_connections() as others:
            waiting.start()
            time.sleep(0.1)
            others.delete_topic(topic)
            waiting.join(8)
        assert answers.pop() == []


def test_a_disconnect_during_a_wait_does_no_harm(both: NodePair) -> None:
    topic = both.new_topic()
    for side in both.sides:
        for _ in range(5):
            side.send(frame_of(fetch(12, Part(topic), max_wait_ms=100_000)(side), 12, 1, "gone"), "PLAINTEXT")
            side.close("PLAINTEXT")
    both.produce(topic, batch())
    both.expect_same(fetch(12, Part(topic)), 12)


@pytest.fixture
def unverified(both: NodePair) -> Iterator[NodePair]:
    """Return both nodes with verification off, so that they accept transactional batches without a coordinator."""
    set_on_both(both, "transaction.partition.verification.enable", "false")
    yield both
    set_on_both(both, "transaction.partition.verification.enable", "true")


def set_on_both(both: NodePair, name: str, value: str) -> None:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])]
    )
    both.expect_same(request, 1)
    time.sleep(0.3)  # until both brokers have applied it


def test_read_committed_stops_at_open_transactions(unverified: NodePair) -> None:
    both = unverified
    topic = both.new_topic()

    def compare_reads() -> None:
        for version in FETCH_VERSIONS:
            for isolation in (0, 1):
                for offset in (0, 3, 5, 30):
                    both.expect_same(fetch(version, Part(topic, offset=offset), isolation_level=isolation), version)

    def send(transactional: bool, producer_id: int = -1, sequence: int = -1) -> None:
        data = batch(
            2,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence,
            transactional=transactional,
        )
        both.expect_same(produce(11, (topic, 0, data), transactional_id=f"t{producer_id}"), 11)

    send(False)
    send(True, 1, 0)
    compare_reads()
    send(False)
    send(True, 1, 2)
    send(True, 2, 0)
    compare_reads()
    send(False, 1, 4)  # not in the middle of its transaction
    compare_reads()


@pytest.mark.parametrize("seed", range(5))
def test_random_fetches_get_the_same_answers(both: NodePair, filled: str, segmented: str, seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        version = random.choice(FETCH_VERSIONS)
        names = random.sample([(filled, 0), (filled, 1), (filled, 2), (segmented, 0), ("nowhere", 0)], 3)
        parts = [
            Part(
                topic,
                index,
                offset=random.choice((0, 1, random.randrange(90), random.randrange(30), -1)),
                max_bytes=random.choice((0, 50, random.randrange(2000), 1_000_000)),
                epoch=random.choice((-1, -1, -1, 0, 0, 1)),
                last_fetched_epoch=random.choice((-1, -1, 0)),
            )
            for topic, index in names[: random.randint(1, 3)]
        ]
        request = fetch(
            version,
            *parts,
            max_bytes=random.choice((0, 100, random.randrange(3000), 1_000_000)),
            isolation_level=random.choice((0, 0, 1)),
            min_bytes=random.choice((0, 1, 10_000)),
            rack_id=random.choice(("", "rack")),
        )
        both.expect_same(request, version)


def test_a_log_is_read_in_the_same_steps(both: NodePair, segmented: str) -> None:
    for limit in (1, 100, 500, 5000):
        offset = 0
        while True:
            answers = both.expect_same(fetch(12, Part(segmented, offset=offset, max_bytes=limit)), 12)
            data = bytes(answers.ottla.responses[0].partitions[0].records or b"")
            if not data:
                break
            offset = max(header.next_offset for _, header in read_batches(data, partial_tail=True))
        assert offset == 80
