"""Real consumers of the classic protocol work with Ottla: librdkafka's, Java's, and Kafka's tools."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.conformance.interop.test_consumer_group_clients import (
    TIMEOUT_S,
    Reader,
    are_partitions_shared,
    describe,
    fill,
    poll_until,
    run_java,
)
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
numbers = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("classic"), SETTINGS)
    node.format()
    with node.running():
        yield node
    assert not node.logged_errors()


def new_topic(node: OttlaNode) -> str:
    """Return a topic of six partitions with a hundred records each."""
    name = f"classic-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": node.address})
    (future,) = admin.create_topics([NewTopic(name, 6, 1)]).values()
    future.result(TIMEOUT_S)
    fill(node, name, 600)
    return name


@pytest.fixture
def topic(node: OttlaNode) -> str:
    return new_topic(node)


def values_of(readers: list[Reader]) -> set[object]:
    return set().union(*(reader.values for reader in readers))


def has_read(reader: Reader, offset: int) -> bool:
    """Return whether a reader has reached an offset in all its partitions."""
    return all(position.offset >= offset for position in reader.consumer.position(reader.consumer.assignment()))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_librdkafka_members_share_partitions_commit_and_leave(node: OttlaNode, topic: str, strategy: str) -> None:
    group = f"group-{topic}"
    settings = {"partition_assignment_strategy": strategy, "session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
    readers = [Reader(node, group, topic, **settings) for _ in range(3)]
    with ExitStack() as closing:
        for reader in readers:
            closing.callback(reader.consumer.close)
        poll_until(readers, lambda: are_partitions_shared(readers) and len(values_of(readers)) == 600)
        for reader in readers:
            reader.consumer.commit(asynchronous=False)
        readers[0].consumer.close()
        poll_until(readers[1:], lambda: are_partitions_shared(readers[1:]))
    committed = Consumer({"bootstrap.servers": node.address, "group.id": group}).committed(
        [TopicPartition(topic, partition) for partition in range(6)], timeout=TIMEOUT_S
    )
    assert [position.offset for position in committed] == [100] * 6


def test_a_static_member_rejoins_without_a_rebalance(node: OttlaNode, topic: str) -> None:
    group = f"group-{topic}"
    settings = {"partition_assignment_strategy": "range", "session_timeout_ms": 30_000, "heartbeat_interval_ms": 300}
    first = Reader(node, group, topic, group_instance_id="one", **settings)
    second = Reader(node, group, topic, group_instance_id="two", **settings)
    with ExitStack() as closing:
        closing.callback(first.consumer.close)
        poll_until([first, second], lambda: are_partitions_shared([first, second]))
        assigned = {part.partition for part in second.consumer.assignment()}
        second.consumer.close()
        again = Reader(node, group, topic, group_instance_id="two", **settings)
        closing.callback(again.consumer.close)
        poll_until([first, again], lambda: are_partitions_shared([first, again]))
        assert {part.partition for part in again.consumer.assignment()} == assigned


def test_members_survive_a_killed_node(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        topic = new_topic(node)
        settings = {
            "session_timeout_ms": 30_000,
            "heartbeat_interval_ms": 300,
            "partition_assignment_strategy": "range",
        }
        readers = [Reader(node, "g", topic, **settings) for _ in range(2)]
        with ExitStack() as closing:
            for reader in readers:
                closing.callback(reader.consumer.close)
            poll_until(readers, lambda: are_partitions_shared(readers) and len(values_of(readers)) == 600)
            for reader in readers:
                reader.consumer.commit(asynchronous=False)
            assigned = [sorted(part.partition for part in reader.consumer.assignment()) for reader in readers]
            members = {row[1] for row in describe(node, "g", "--members")[1:]}
            node.stop(signal.SIGKILL)
            node.start()
            fill(node, topic, 60)
            poll_until(readers, lambda: all(has_read(reader, 110) for reader in readers))
            assert [sorted(part.partition for part in reader.consumer.assignment()) for reader in readers] == assigned
            assert {row[1] for row in describe(node, "g", "--members")[1:]} == members
            for reader in readers:
                reader.consumer.commit(asynchronous=False)


def test_the_java_console_consumer_reads_as_a_classic_group(node: OttlaNode, topic: str) -> None:
    where = ["--bootstrap-server", node.address]
    out = run_java(
        CONSOLE, *where, "--topic", topic, "--group", f"group-{topic}", "--from-beginning", "--max-messages", "600",
        "--timeout-ms", "30000", "--command-property", "group.protocol=classic",
    )  # fmt: skip
    assert {int(line) for line in out.split()} == set(range(600))
    offsets = describe(node, f"group-{topic}", "--offsets")
    column = offsets[0].index("LAG")
    assert [row[column] for row in offsets[1:]] == ["0"] * 6
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    output = run_java(
        CONSOLE, *where, "--topic", "__consumer_offsets", "--from-beginning", "--formatter", formatter,
        "--timeout-ms", "5000",
    )  # fmt: skip
    assert f'"group":"group-{topic}"' in output


def test_kafkas_tool_resets_offsets_and_deletes_groups(node: OttlaNode, topic: str) -> None:
    group, where = f"group-{topic}", ["--bootstrap-server", node.address]
    options = ["--group", group, "--topic", topic, "--execute"]
    run_java(GROUPS, *where, "--reset-offsets", "--to-offset", "40", *options)
    reader = Consumer({"bootstrap.servers": node.address, "group.id": group})
    parts = [TopicPartition(topic, partition) for partition in range(6)]
    assert [position.offset for position in reader.committed(parts, timeout=TIMEOUT_S)] == [40] * 6
    run_java(GROUPS, *where, "--reset-offsets", "--shift-by", "-15", *options)
    assert [position.offset for position in reader.committed(parts, timeout=TIMEOUT_S)] == [25] * 6
    assert group in run_java(GROUPS, *where, "--list")
    run_java(GROUPS, *where, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    offsets = [position.offset for position in reader.committed(parts, timeout=TIMEOUT_S)]
    assert offsets[1] < 0
    assert offsets[2] == 25
    run_java(GROUPS, *where, "--delete", "--group", group)
    assert group not in run_java(GROUPS, *where, "--list").split()


def test_only_members_commit_for_a_group_with_members(node: OttlaNode, topic: str) -> None:
    reader = Reader(node, f"group-{topic}", topic)
    with ExitStack() as closing:
        closing.callback(reader.consumer.close)
        poll_until([reader], lambda: are_partitions_shared([reader]))
        stranger = Consumer({"bootstrap.servers": node.address, "group.id": f"group-{topic}"})
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
