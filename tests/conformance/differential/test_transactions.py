"""Transactions beside Kafka: every API and version, errors included."""

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
from tests.conformance.differential.harness import Both, Side
from tests.conformance.differential.requests import Part, batch, fetch, produce
from tests.conformance.differential.transactional import CONCURRENT, IDS, Writer

NEW = 12
OLD = 11
_names = itertools.count(1)


@pytest.fixture
def topic(both: Both) -> str:
    return both.new_topic(partitions=2)


@pytest.fixture
def writers(both: Both) -> Callable[[], Writer]:
    """Makes producers, each with an id of its own."""
    return lambda: Writer(both, f"writer-{next(_names)}")


def same_log(both: Both, topic: str, partition: int = 0) -> None:
    """Both logs hold the same, and readers of either kind see the same of it."""
    for isolation in (0, 1):
        both.same(
            fetch(17, Part(topic, partition), isolation_level=isolation),
            17,
            ignoring=("*producer_id", "*timestamp", "*session_id"),
        )


# -- whole transactions --


@pytest.mark.parametrize("version", [12, 13])
def test_transactions_of_version_2(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers().start()
    for commit in (True, False, True):
        for partition in (0, 1, 0):
            assert not writer.send(version, topic, partition)
        assert not writer.end(5, commit=commit)
    assert not writer.send(version, topic)
    for partition in (0, 1):
        same_log(both, topic, partition)


@pytest.mark.parametrize("version", range(4))
def test_transactions_of_version_1(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers().start(version)
    for commit, produce_version in zip((True, False, True), (3, 9, 11), strict=True):
        assert not writer.add(version, (topic, 0), (topic, 1))
        for partition in (0, 1, 0):
            assert not writer.send(produce_version, topic, partition)
        assert not writer.end(version, commit=commit)
    for partition in (0, 1):
        same_log(both, topic, partition)


def test_a_producer_moves_from_one_version_to_the_next(both: Both, writers: Callable[[], Writer], topic: str) -> None:
    writer = writers().start()
    assert not writer.add(3, (topic, 0))
    assert not writer.send(OLD, topic)
    assert not writer.end(5, commit=True)
    assert not writer.send(NEW, topic)
    assert not writer.end(4, commit=True)
    assert not writer.send(NEW, topic)
    assert not writer.end(5, commit=False)
    same_log(both, topic)


# -- writing --


@pytest.mark.parametrize("version", range(3, 12))
def test_writes_to_partitions_that_were_not_added(writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers().start()
    assert writer.send(version, topic)
    assert not writer.add(3, (topic, 0))
    assert writer.send(version, topic, 1)
    assert not writer.send(version, topic, 0)
    assert writer.send(version, topic, 0, epoch=writer.epoch + 1, sequence=0)
    assert writer.send(version, topic, 0, epoch=writer.epoch - 1, sequence=0)
    assert not writer.end(3, commit=True)
    assert writer.send(version, topic, 0)


@pytest.mark.parametrize("version", [12, 13])
def test_writes_that_add_their_partitions(writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers().start()
    assert writer.send(version, topic, epoch=writer.epoch + 1, sequence=0)
    assert writer.send(version, topic, sequence=3)
    assert not writer.send(version, topic)
    assert writer.send(version, topic, sequence=5)
    assert not writer.send(version, topic, sequence=0)  # again
    assert not writer.end(5, commit=True)
    assert writer.send(version, topic, epoch=writer.epoch - 1, sequence=1)
    assert writer.send(version, topic, sequence=2)


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_writes_of_unknown_producers(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers()
    for side in both.sides:
        side.memory[writer.id] = 77_777
    writer.epoch = 0
    assert writer.send(version, topic)
    writer.start()
    for side in both.sides:
        side.memory[writer.id] = 77_777
    assert writer.send(version, topic)


@pytest.mark.parametrize("version", [11, 12])
def test_two_producers_in_one_request(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    def data(producer_id: int) -> bytearray:
        return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    writer = writers().start()
    parts = (topic, 0, data(1)), (topic, 1, data(2))
    both.same(produce(version, *parts, transactional_id=writer.id), version)


@pytest.mark.parametrize("version", [11, 12])
def test_records_outside_of_the_transaction(
    both: Both, writers: Callable[[], Writer], topic: str, version: int
) -> None:
    writer = writers().start()
    plain = produce(version, (topic, 0, batch()), transactional_id=writer.id)
    both.same(plain, version)
    assert not writer.send(NEW, topic)
    both.same(plain, version)
    both.same(
        lambda side: produce(
            version,
            (topic, 0, batch(producer_id=writer.producer_id(side), producer_epoch=0, base_sequence=1)),
            transactional_id=writer.id,
        )(side),
        version,
    )
    both.same(produce(version, ("nowhere", 0, batch(transactional=True, producer_id=1, producer_epoch=0))), version)


# -- init --


@pytest.mark.parametrize("version", range(6))
def test_init(writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers()
    assert not writer.init(version)
    assert not writer.init(version)
    assert not writer.add(3, (topic, 0))
    assert writer.init(version) == CONCURRENT
    writer.settle()
    assert not writer.init(version)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_init_of_one_that_goes_on(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers()
    for side in both.sides:
        side.memory[writer.id] = 4711
    assert not writer.init(version, expect=True, epoch=3)
    assert writer.epoch == 0
    assert not writer.init(version, expect=True)
    assert not writer.init(version, expect=True, epoch=0)  # again
    assert writer.init(version, expect=True, epoch=7)
    assert not writer.init(version)
    assert writer.init(version, expect=True, epoch=1)
    assert not writer.send(NEW, topic)
    assert writer.init(version, expect=True) == CONCURRENT
    writer.settle()
    assert not writer.init(version, expect=True)
    for side in both.sides:
        side.memory[writer.id] += 1
    assert writer.init(version, expect=True)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 900_000, 900_001, 0x7FFF_FFFF])
def test_timeouts_of_init(writers: Callable[[], Writer], version: int, timeout_ms: int) -> None:
    writers().init(version, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", range(6))
def test_init_that_makes_no_sense(both: Both, version: int) -> None:
    both.same(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)
    if version >= 3:
        for producer_id, epoch in ((1, -1), (-1, 1)):
            request = InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            both.same(request, version)


# -- growing --


@pytest.mark.parametrize("version", range(6))
def test_adding_partitions(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    other = both.new_topic(partitions=2)
    writer = writers()
    for side in both.sides:
        side.memory[writer.id] = 1
    assert writer.add(version, (topic, 0), epoch=0)
    writer.start()
    assert not writer.add(version, (topic, 0))
    assert not writer.add(version, (topic, 0))
    assert not writer.add(version, (topic, 0), (topic, 1), (other, 1))
    assert writer.add(version, ("nowhere", 0))
    writer.add(version, (topic, 0), ("nowhere", 0), (topic, 9))
    writer.add(version, (topic, 0), ("__transaction_state", 0))
    assert writer.add(version, (topic, 0), epoch=writer.epoch + 1)
    assert writer.add(version, (topic, 0), epoch=-1)
    writer.settle()
    for side in both.sides:
        side.memory[writer.id] += 1
    assert writer.add(version, (topic, 0))


@pytest.mark.parametrize("version", [4, 5])
def test_checking_partitions(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers()
    assert writer.add(version, (topic, 0), epoch=0, verify=True)
    writer.start()
    assert writer.add(version, (topic, 0), verify=True)
    assert not writer.add(version, (topic, 0))
    assert not writer.add(version, (topic, 0), verify=True)
    writer.add(version, (topic, 0), (topic, 1), verify=True)
    writer.add(version, (topic, 0), ("nowhere", 1), verify=True)
    assert writer.add(version, (topic, 0), epoch=9, verify=True)
    assert not writer.end(5, commit=True)
    assert writer.add(version, (topic, 0), verify=True)


@pytest.mark.parametrize("version", [4, 5])
def test_many_transactions_in_one_request(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    first, second = writers().start(), writers().start()
    request = [
        (first, topic, False),
        (second, topic, True),
        (writers(), topic, False),
        (writers(), "nowhere", True),
    ]
    both.same(
        lambda side: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=writer.id,
                    producer_id=writer.producer_id(side),
                    producer_epoch=writer.epoch,
                    verify_only=verify,
                    topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
                )
                for writer, name, verify in request
            ]
        ),
        version,
    )


@pytest.mark.parametrize("version", range(4))
def test_an_empty_transactional_id(both: Both, topic: str, version: int) -> None:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])]
    both.same(AddPartitionsToTxnRequest(v3_and_below_topics=topics), version)
    both.same(EndTxnRequest(), version)


@pytest.mark.parametrize("version", range(5))
def test_adding_offsets(writers: Callable[[], Writer], version: int) -> None:
    writer = writers()
    assert writer.add_offsets(version, "group", epoch=0)
    writer.start()
    assert not writer.add_offsets(version, "group")
    assert not writer.add_offsets(version, "")
    assert writer.add_offsets(version, "group", epoch=5)
    assert not writer.end(3, commit=True)
    assert not writer.end(3, commit=True)


# -- ending --

STATES = ("new", "ongoing", "committed", "aborted")


def bring(writer: Writer, state: str, topic: str, version: int) -> None:
    """A producer whose last transaction is in a state, brought there by requests of a version."""
    writer.start()
    if state == "new":
        return
    if version >= 5:
        assert not writer.send(NEW, topic)
    else:
        assert not writer.add(3, (topic, 0))
    if state != "ongoing":
        assert not writer.end(version, commit=state == "committed")


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("state", STATES)
def test_ending(writers: Callable[[], Writer], topic: str, state: str, version: int) -> None:
    for commit, ahead in itertools.product((True, False), (-2, -1, 0, 1)):
        writer = writers()
        bring(writer, state, topic, version)
        writer.end(version, commit=commit, epoch=writer.epoch + ahead)
        writer.end(version, commit=commit, epoch=writer.epoch + ahead)
        writer.end(version, commit=not commit)


@pytest.mark.parametrize("version", range(6))
def test_ending_what_belongs_to_others(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    writer = writers()
    assert writer.end(version, commit=True, epoch=0)
    bring(writer, "ongoing", topic, version)
    for side in both.sides:
        side.memory[writer.id] += 1
    assert writer.end(version, commit=True)


@pytest.mark.parametrize("version", [2, 5])
def test_ending_by_another_version(writers: Callable[[], Writer], topic: str, version: int) -> None:
    for state, commit in itertools.product(STATES[1:], (True, False)):
        writer = writers()
        bring(writer, state, topic, version)
        writer.end(5 if version == 2 else 2, commit=commit)


def test_a_transaction_that_takes_too_long_is_aborted(both: Both, writers: Callable[[], Writer], topic: str) -> None:
    writer = writers().start(timeout_ms=100)
    assert not writer.send(NEW, topic)
    assert writer.wait_for(lambda state: state == "CompleteAbort")
    same_log(both, topic)
    assert writer.send(NEW, topic)
    assert writer.end(5, commit=True)
    assert not writer.init(5, expect=True)
    assert not writer.send(NEW, topic)


# -- markers --


@pytest.mark.parametrize("version", [1, 2])
def test_markers(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    for ahead, coordinator_epoch, commit in itertools.product((-1, 0, 1), (-1, 0, 7), (True, False)):
        for kind in (0, 2) if version >= 2 else (0,):
            writer = writers().start()
            writer.start()
            assert not writer.send(NEW, topic)
            marker = WritableTxnMarker(
                producer_epoch=writer.epoch + ahead,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=kind,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            )
            both.same(partial(with_marker, writer, marker), version, ignoring=IDS)
    same_log(both, topic)


def with_marker(writer: Writer, marker: WritableTxnMarker, side: Side) -> WriteTxnMarkersRequest:
    marker.producer_id = writer.producer_id(side)
    return WriteTxnMarkersRequest(markers=[copy(marker)])


@pytest.mark.parametrize("version", [1, 2])
def test_markers_for_partitions_that_are_not_here(both: Both, topic: str, version: int) -> None:
    both.same(WriteTxnMarkersRequest(), version)
    names = [
        WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 1, 9]),
        WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
    ]
    for topics in (names, names[1:], names[:1], []):
        markers = [
            WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=topics, coordinator_epoch=1)
            for producer_id in (88_001, 88_002)
        ]
        both.same(WriteTxnMarkersRequest(markers=markers), version)


# -- looking --


def test_describing(both: Both, writers: Callable[[], Writer], topic: str) -> None:
    made = []
    for state in STATES:
        writer = writers()
        bring(writer, state, topic, 5)
        made.append(writer.id)
    request = DescribeTransactionsRequest(transactional_ids=[*made, "nobody", ""])
    both.same(request, 0, ignoring=IDS)
    both.same(DescribeTransactionsRequest(), 0)


@pytest.mark.parametrize("version", range(3))
def test_listing(both: Both, writers: Callable[[], Writer], topic: str, version: int) -> None:
    for state in STATES:
        bring(writers(), state, topic, 5)
    requests = [
        ListTransactionsRequest(),
        ListTransactionsRequest(state_filters=["Ongoing"]),
        ListTransactionsRequest(state_filters=["Ongoing", "Empty", "no such"]),
        ListTransactionsRequest(state_filters=["no such"]),
        ListTransactionsRequest(producer_id_filters=[1_000_000]),
    ]
    if version >= 1:
        requests += [ListTransactionsRequest(duration_filter=each) for each in (0, 1_000_000, -5)]
    if version >= 2:
        patterns = ("writer-.*", "writer", "", "(", ".*-1[0-9]", "[[:alpha:]]+-[0-9]+", "(?i)WRITER-1")
        requests += [ListTransactionsRequest(transactional_id_pattern=each) for each in patterns]
    for request in requests:
        both.same(request, version, ignoring=IDS)
