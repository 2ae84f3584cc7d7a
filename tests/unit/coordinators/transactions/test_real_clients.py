"""Transactions of librdkafka's producer and consumer with one node."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode
from tests.unit.coordinators.transactions.clients import TIMEOUT_S, copy_all, producer, read


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    """A running node."""
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        yield node


def create(node: OttlaNode, *topics: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    for made in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        made.result(TIMEOUT_S)


def send(writer: Producer, topic: str, *values: str) -> None:
    for number, value in enumerate(values):
        writer.produce(topic, value.encode(), partition=number % 2)
    assert writer.flush(TIMEOUT_S) == 0


def test_readers_see_committed_records_and_no_aborted_ones(node: OttlaNode) -> None:
    create(node, "t")
    writer = producer(node)
    for number in range(5):
        writer.begin_transaction()
        send(writer, "t", f"a{number}", f"b{number}")
        writer.commit_transaction(TIMEOUT_S)
        writer.begin_transaction()
        send(writer, "t", f"x{number}", f"y{number}")
        writer.abort_transaction(TIMEOUT_S)
    writer.begin_transaction()
    send(writer, "t", "open", "open")
    assert read(node, "t") == [f"a{n}" for n in range(5)] + [f"b{n}" for n in range(5)]
    everything = read(node, "t", isolation="read_uncommitted")
    assert sorted(everything) == sorted([f"{c}{n}" for c in "abxy" for n in range(5)] + ["open", "open"])
    writer.abort_transaction(TIMEOUT_S)


def test_a_second_producer_of_an_id_fences_the_first(node: OttlaNode) -> None:
    create(node, "t")
    first = producer(node)
    first.begin_transaction()
    send(first, "t", "lost")
    second = producer(node)
    first.produce("t", b"late", partition=0)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    send(second, "t", "kept")
    second.commit_transaction(TIMEOUT_S)
    assert read(node, "t") == ["kept"]


def test_consume_transform_produce_is_exactly_once(node: OttlaNode) -> None:
    """Read one topic, write another and commit the offsets; the next consumer continues there."""
    create(node, "in", "out")
    source = producer(node, "source")
    source.begin_transaction()
    send(source, "in", *[str(number) for number in range(18)])
    source.commit_transaction(TIMEOUT_S)
    assert copy_all(node, "in", "out", 18, at_once=3) == 18
    assert sorted(map(int, read(node, "out"))) == list(range(18))


def test_killing_a_node_splits_no_transaction(node: OttlaNode) -> None:
    create(node, "t")
    writer = producer(node)
    writer.begin_transaction()
    send(writer, "t", "a", "b")
    writer.commit_transaction(TIMEOUT_S)
    writer.begin_transaction()
    send(writer, "t", "torn", "torn")
    node.stop(signal.SIGKILL)
    node.start()
    assert read(node, "t") == ["a", "b"]
    again = producer(node)  # ends what its predecessor left open
    again.begin_transaction()
    send(again, "t", "c", "d")
    again.commit_transaction(TIMEOUT_S)
    assert read(node, "t") == ["a", "c", "b", "d"]


def test_a_transaction_that_continues_after_a_kill_commits_completely(node: OttlaNode) -> None:
    create(node, "t")
    writer = producer(node)
    writer.begin_transaction()
    send(writer, "t", "a", "b")
    node.stop(signal.SIGKILL)
    node.start()
    send(writer, "t", "c", "d")
    writer.commit_transaction(TIMEOUT_S)
    assert sorted(read(node, "t")) == ["a", "b", "c", "d"]


def test_a_deleted_topic_blocks_no_transaction(node: OttlaNode) -> None:
    create(node, "kept", "deleted")
    writer = producer(node)
    writer.begin_transaction()
    send(writer, "kept", "a", "b")
    send(writer, "deleted", "c", "d")
    admin = AdminClient({"bootstrap.servers": node.address})
    admin.delete_topics(["deleted"])["deleted"].result(TIMEOUT_S)
    writer.commit_transaction(TIMEOUT_S)
    writer.begin_transaction()
    send(writer, "kept", "e", "f")
    writer.commit_transaction(TIMEOUT_S)
    assert read(node, "kept") == ["a", "e", "b", "f"]
