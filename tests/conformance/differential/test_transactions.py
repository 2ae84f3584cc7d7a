"""Transactions behave as Kafka's: every API and version, errors included."""

import itertools
from collections.abc import Callable
from copy import copy
from functools import partial

import pytest

from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.rpc.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.rpc.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.requests import Part, batch, fetch, produce
from tests.conformance.differential.transactional import CONCURRENT, IDS, TransactionalProducer

NEW = 12
OLD = 11
_names = itertools.count(1)


@pytest.fixture
def topic(both: NodePair) -> str:
    return both.new_topic(partitions=2)


@pytest.fixture
def new_producer(both: NodePair) -> Callable[[], TransactionalProducer]:
    """Return a function that makes producers, each with its own transactional id."""
    return lambda: TransactionalProducer(both, f"producer-{next(_names)}")


def expect_same_log(both: NodePair, topic: str, partition: int = 0) -> None:
    """Check that both logs are equal at both isolation levels."""
    for isolation in (0, 1):
        both.expect_same(
            fetch(17, Part(topic, partition), isolation_level=isolation),
            17,
            ignoring=("*producer_id", "*timestamp", "*session_id"),
        )


# -- whole transactions --


@pytest.mark.parametrize("version", [12, 13])
def test_transactions_of_version_2_are_equal(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer().start()
    for commit in (True, False, True):
        for partition in (0, 1, 0):
            assert not producer.send(version, topic, partition)
        assert not producer.end(5, commit=commit)
    assert not producer.send(version, topic)
    for partition in (0, 1):
        expect_same_log(both, topic, partition)


@pytest.mark.parametrize("version", range(4))
def test_transactions_of_version_1_are_equal(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer().start(version)
    for commit, produce_version in zip((True, False, True), (3, 9, 11), strict=True):
        assert not producer.add(version, (topic, 0), (topic, 1))
        for partition in (0, 1, 0):
            assert not producer.send(produce_version, topic, partition)
        assert not producer.end(version, commit=commit)
    for partition in (0, 1):
        expect_same_log(both, topic, partition)


def test_a_producer_changes_its_transaction_version(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str
) -> None:
    producer = new_producer().start()
    assert not producer.add(3, (topic, 0))
    assert not producer.send(OLD, topic)
    assert not producer.end(5, commit=True)
    assert not producer.send(NEW, topic)
    assert not producer.end(4, commit=True)
    assert not producer.send(NEW, topic)
    assert not producer.end(5, commit=False)
    expect_same_log(both, topic)


# -- writing --


@pytest.mark.parametrize("version", range(3, 12))
def test_writes_to_partitions_not_added_are_refused(
    new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer().start()
    assert producer.send(version, topic)
    assert not producer.add(3, (topic, 0))
    assert producer.send(version, topic, 1)
    assert not producer.send(version, topic, 0)
    assert producer.send(version, topic, 0, epoch=producer.epoch + 1, sequence=0)
    assert producer.send(version, topic, 0, epoch=producer.epoch - 1, sequence=0)
    assert not producer.end(3, commit=True)
    assert producer.send(version, topic, 0)


@pytest.mark.parametrize("version", [12, 13])
def test_writes_add_their_partitions(
    new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer().start()
    assert producer.send(version, topic, epoch=producer.epoch + 1, sequence=0)
    assert producer.send(version, topic, sequence=3)
    assert not producer.send(version, topic)
    assert producer.send(version, topic, sequence=5)
    assert not producer.send(version, topic, sequence=0)  # again
    assert not producer.end(5, commit=True)
    assert producer.send(version, topic, epoch=producer.epoch - 1, sequence=1)
    assert producer.send(version, topic, sequence=2)


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_writes_of_unknown_producers_are_refused(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer()
    for side in both.sides:
        side.memory[producer.id] = 77_777
    producer.epoch = 0
    assert producer.send(version, topic)
    producer.start()
    for side in both.sides:
        side.memory[producer.id] = 77_777
    assert producer.send(version, topic)


@pytest.mark.parametrize("version", [11, 12])
def test_two_producers_in_one_request_get_the_same_answers(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    def data(producer_id: int) -> bytearray:
        return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    producer = new_producer().start()
    parts = (topic, 0, data(1)), (topic, 1, data(2))
    both.expect_same(produce(version, *parts, transactional_id=producer.id), version)


@pytest.mark.parametrize("version", [11, 12])
def test_records_outside_the_transaction_get_the_same_answers(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer().start()
    plain = produce(version, (topic, 0, batch()), transactional_id=producer.id)
    both.expect_same(plain, version)
    assert not producer.send(NEW, topic)
    both.expect_same(plain, version)
    both.expect_same(
        lambda side: produce(
            version,
            (topic, 0, batch(producer_id=producer.producer_id(side), producer_epoch=0, base_sequence=1)),
            transactional_id=producer.id,
        )(side),
        version,
    )
    both.expect_same(
        produce(version, ("nowhere", 0, batch(transactional=True, producer_id=1, producer_epoch=0))), version
    )


# -- init --


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_initialized_the_same_way(
    new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer()
    assert not producer.init(version)
    assert not producer.init(version)
    assert not producer.add(3, (topic, 0))
    assert producer.init(version) == CONCURRENT
    producer.settle()
    assert not producer.init(version)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_producer_ids_are_reinitialized_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer()
    for side in both.sides:
        side.memory[producer.id] = 4711
    assert not producer.init(version, expect=True, epoch=3)
    assert producer.epoch == 0
    assert not producer.init(version, expect=True)
    assert not producer.init(version, expect=True, epoch=0)  # again
    assert producer.init(version, expect=True, epoch=7)
    assert not producer.init(version)
    assert producer.init(version, expect=True, epoch=1)
    assert not producer.send(NEW, topic)
    assert producer.init(version, expect=True) == CONCURRENT
    producer.settle()
    assert not producer.init(version, expect=True)
    for side in both.sides:
        side.memory[producer.id] += 1
    assert producer.init(version, expect=True)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 900_000, 900_001, 0x7FFF_FFFF])
def test_transaction_timeouts_are_checked_the_same_way(
    new_producer: Callable[[], TransactionalProducer], version: int, timeout_ms: int
) -> None:
    new_producer().init(version, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", range(6))
def test_invalid_initializations_are_refused(both: NodePair, version: int) -> None:
    both.expect_same(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)
    if version >= 3:
        for producer_id, epoch in ((1, -1), (-1, 1)):
            request = InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            both.expect_same(request, version)


# -- adding partitions and offsets --


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    other = both.new_topic(partitions=2)
    producer = new_producer()
    for side in both.sides:
        side.memory[producer.id] = 1
    assert producer.add(version, (topic, 0), epoch=0)
    producer.start()
    assert not producer.add(version, (topic, 0))
    assert not producer.add(version, (topic, 0))
    assert not producer.add(version, (topic, 0), (topic, 1), (other, 1))
    assert producer.add(version, ("nowhere", 0))
    producer.add(version, (topic, 0), ("nowhere", 0), (topic, 9))
    producer.add(version, (topic, 0), ("__transaction_state", 0))
    assert producer.add(version, (topic, 0), epoch=producer.epoch + 1)
    assert producer.add(version, (topic, 0), epoch=-1)
    producer.settle()
    for side in both.sides:
        side.memory[producer.id] += 1
    assert producer.add(version, (topic, 0))


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer()
    assert producer.add(version, (topic, 0), epoch=0, verify=True)
    producer.start()
    assert producer.add(version, (topic, 0), verify=True)
    assert not producer.add(version, (topic, 0))
    assert not producer.add(version, (topic, 0), verify=True)
    producer.add(version, (topic, 0), (topic, 1), verify=True)
    producer.add(version, (topic, 0), ("nowhere", 1), verify=True)
    assert producer.add(version, (topic, 0), epoch=9, verify=True)
    assert not producer.end(5, commit=True)
    assert producer.add(version, (topic, 0), verify=True)


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_in_one_request_get_the_same_answers(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    first, second = new_producer().start(), new_producer().start()
    request = [
        (first, topic, False),
        (second, topic, True),
        (new_producer(), topic, False),
        (new_producer(), "nowhere", True),
    ]
    both.expect_same(
        lambda side: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=producer.id,
                    producer_id=producer.producer_id(side),
                    producer_epoch=producer.epoch,
                    verify_only=verify,
                    topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
                )
                for producer, name, verify in request
            ]
        ),
        version,
    )


@pytest.mark.parametrize("version", range(4))
def test_an_empty_transactional_id_is_refused(both: NodePair, topic: str, version: int) -> None:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])]
    both.expect_same(AddPartitionsToTxnRequest(v3_and_below_topics=topics), version)
    both.expect_same(EndTxnRequest(), version)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added_the_same_way(new_producer: Callable[[], TransactionalProducer], version: int) -> None:
    producer = new_producer()
    assert producer.add_offsets(version, "group", epoch=0)
    producer.start()
    assert not producer.add_offsets(version, "group")
    assert not producer.add_offsets(version, "")
    assert producer.add_offsets(version, "group", epoch=5)
    assert not producer.end(3, commit=True)
    assert not producer.end(3, commit=True)


# -- ending --

STATES = ("new", "ongoing", "committed", "aborted")


def bring_to(producer: TransactionalProducer, state: str, topic: str, version: int) -> None:
    """Bring the producer's last transaction into a state, with requests of a version."""
    producer.start()
    if state == "new":
        return
    if version >= 5:
        assert not producer.send(NEW, topic)
    else:
        assert not producer.add(3, (topic, 0))
    if state != "ongoing":
        assert not producer.end(version, commit=state == "committed")


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("state", STATES)
def test_transactions_end_the_same_way(
    new_producer: Callable[[], TransactionalProducer], topic: str, state: str, version: int
) -> None:
    for commit, ahead in itertools.product((True, False), (-2, -1, 0, 1)):
        producer = new_producer()
        bring_to(producer, state, topic, version)
        producer.end(version, commit=commit, epoch=producer.epoch + ahead)
        producer.end(version, commit=commit, epoch=producer.epoch + ahead)
        producer.end(version, commit=not commit)


@pytest.mark.parametrize("version", range(6))
def test_ending_a_foreign_transaction_is_refused(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    producer = new_producer()
    assert producer.end(version, commit=True, epoch=0)
    bring_to(producer, "ongoing", topic, version)
    for side in both.sides:
        side.memory[producer.id] += 1
    assert producer.end(version, commit=True)


@pytest.mark.parametrize("version", [2, 5])
def test_ending_by_another_version_gets_the_same_answer(
    new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    for state, commit in itertools.product(STATES[1:], (True, False)):
        producer = new_producer()
        bring_to(producer, state, topic, version)
        producer.end(5 if version == 2 else 2, commit=commit)


def test_a_transaction_past_its_timeout_is_aborted(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str
) -> None:
    producer = new_producer().start(timeout_ms=100)
    assert not producer.send(NEW, topic)
    assert producer.wait_for(lambda state: state == "CompleteAbort")
    expect_same_log(both, topic)
    assert producer.send(NEW, topic)
    assert producer.end(5, commit=True)
    assert not producer.init(5, expect=True)
    assert not producer.send(NEW, topic)


# -- markers --


@pytest.mark.parametrize("version", [1, 2])
def test_transaction_markers_are_written_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    for ahead, coordinator_epoch, commit in itertools.product((-1, 0, 1), (-1, 0, 7), (True, False)):
        for kind in (0, 2) if version >= 2 else (0,):
            producer = new_producer().start()
            producer.start()
            assert not producer.send(NEW, topic)
            marker = WritableTxnMarker(
                producer_epoch=producer.epoch + ahead,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=kind,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            )
            both.expect_same(partial(with_marker, producer, marker), version, ignoring=IDS)
    expect_same_log(both, topic)


def with_marker(producer: TransactionalProducer, marker: WritableTxnMarker, side: Side) -> WriteTxnMarkersRequest:
    marker.producer_id = producer.producer_id(side)
    return WriteTxnMarkersRequest(markers=[copy(marker)])


@pytest.mark.parametrize("version", [1, 2])
def test_markers_for_missing_partitions_get_the_same_answers(both: NodePair, topic: str, version: int) -> None:
    both.expect_same(WriteTxnMarkersRequest(), version)
    names = [
        WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 1, 9]),
        WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
    ]
    for topics in (names, names[1:], names[:1], []):
        markers = [
            WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=topics, coordinator_epoch=1)
            for producer_id in (88_001, 88_002)
        ]
        both.expect_same(WriteTxnMarkersRequest(markers=markers), version)


# -- describing and listing --


def test_transactions_are_described_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str
) -> None:
    ids = []
    for state in STATES:
        producer = new_producer()
        bring_to(producer, state, topic, 5)
        ids.append(producer.id)
    request = DescribeTransactionsRequest(transactional_ids=[*ids, "nobody", ""])
    both.expect_same(request, 0, ignoring=IDS)
    both.expect_same(DescribeTransactionsRequest(), 0)


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_the_same_way(
    both: NodePair, new_producer: Callable[[], TransactionalProducer], topic: str, version: int
) -> None:
    for state in STATES:
        bring_to(new_producer(), state, topic, 5)
    requests = [
        ListTransactionsRequest(),
        ListTransactionsRequest(state_filters=["Ongoing"]),
        ListTransactionsRequest(state_filters=["Ongoing", "Empty", "no such"]),
        ListTransactionsRequest(state_filters=["no such"]),
        ListTransactionsRequest(producer_id_filters=[1_000_000]),
    ]
    if version >= 1:
        requests += [ListTransactionsRequest(duration_filter=duration) for duration in (0, 1_000_000, -5)]
    if version >= 2:
        patterns = ("producer-.*", "producer", "", "(", ".*-1[0-9]", "[[:alpha:]]+-[0-9]+", "(?i)WRITER-1")
        requests += [ListTransactionsRequest(transactional_id_pattern=pattern) for pattern in patterns]
    for request in requests:
        both.expect_same(request, version, ignoring=IDS)
