"""Real consumers of the new protocol (KIP-848) with Ottla: librdkafka's, Java's, and Kafka's tools for groups."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path, java
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60
FAST = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}
numbers = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("consumers"), {**SETTINGS, **FAST})
    node.format()
    with node.running():
        yield node


@pytest.fixture
def topic(node: OttlaNode) -> str:
    """A topic of six partitions, with a hundred records in each."""
    name = f"read-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": node.address})
    (made,) = admin.create_topics([NewTopic(name, 6, 1)]).values()
    made.result(TIMEOUT_S)
    fill(node, name, 600)
    return name


def fill(node: OttlaNode, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": node.address})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % 6)
    assert producer.flush(TIMEOUT_S) == 0


class Reader:
    """A librdkafka consumer that commits what it has read."""

    def __init__(self, node: OttlaNode, group: str, *topics: str, **settings: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": node.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(list(topics))
        self.values: set[int] = set()

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        self.values.add(int(value))

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def until(readers: Sequence[Reader], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [reader.partitions for reader in readers]
        for reader in readers:
            reader.poll()


def shared(readers: Sequence[Reader], partitions: int = 6) -> bool:
    each = [reader.partitions for reader in readers]
    return all(each) and sum(map(len, each)) == partitions == len(set().union(*each))


@contextmanager
def java_tool(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_java(*words: str) -> str:
    with java_tool(*words) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err[-3000:]
        return out


def describe(node: OttlaNode, group: str, *how: str) -> list[list[str]]:
    """What Kafka's own tool says of a group, by rows and columns."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    out = run_java(tool, "--bootstrap-server", node.address, "--describe", "--group", group, *how)
    rows = [line.split() for line in out.splitlines() if line.strip()]
    return [row for row in rows if row[0] in ("GROUP", group)]


def test_librdkafka_members_share_commit_and_leave(node: OttlaNode, topic: str) -> None:
    group = f"group-{topic}"
    readers = [Reader(node, group, topic, group_protocol="consumer") for _ in range(3)]
    with ExitStack() as closing:
        for reader in readers:
            closing.callback(reader.consumer.close)
        until(readers, lambda: shared(readers) and len(set().union(*(reader.values for reader in readers))) == 600)
        for reader in readers:
            reader.consumer.commit(asynchronous=False)
        states, members = describe(node, group, "--state"), describe(node, group, "--members", "--verbose")
        assert "Stable" in states[1], states
        assert len(members) == 4, members
        readers[0].consumer.close()
        until(readers[1:], lambda: shared(readers[1:]))
    late = Reader(node, group, topic, group_protocol="consumer")
    with ExitStack() as closing:
        closing.callback(late.consumer.close)
        until([late], lambda: shared([late]))
        for _ in range(20):
            late.poll()
        assert not late.values  # all of it was committed
    offsets = describe(node, group, "--offsets")
    header = offsets[0]
    assert {row[header.index("CURRENT-OFFSET")] for row in offsets[1:]} == {"100"}


def test_librdkafka_finds_topics_by_expression_and_new_partitions(node: OttlaNode, topic: str) -> None:
    reader = Reader(node, f"group-{topic}", f"^{topic}$", group_protocol="consumer")
    with ExitStack() as closing:
        closing.callback(reader.consumer.close)
        until([reader], lambda: shared([reader]))
        admin = AdminClient({"bootstrap.servers": node.address})
        (grown,) = admin.create_partitions([NewPartitions(topic, 8)]).values()
        grown.result(TIMEOUT_S)
        until([reader], lambda: shared([reader], 8))


def test_a_group_moves_from_the_classic_protocol_to_the_new_one(node: OttlaNode, topic: str) -> None:
    """One member after the other, while records are read: the group changes its kind on the way."""
    group = f"group-{topic}"
    # Assignments with data of their own, such as those of librdkafka's sticky assignor, would get lost: refused.
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "range"}
    old = [Reader(node, group, topic, **classic) for _ in range(2)]
    new: list[Reader] = []
    with ExitStack() as closing:
        for reader in old:
            closing.callback(reader.consumer.close)
        until(old, lambda: shared(old))
        for _ in range(2):
            new.append(Reader(node, group, topic, group_protocol="consumer"))
            closing.callback(new[-1].consumer.close)
            until([*old, *new], lambda: shared([*old, *new]))
            old.pop().consumer.close()
            until([*old, *new], lambda: shared([*old, *new]))
        assert "Stable" in describe(node, group, "--state")[1]
        # And back again.
        for _ in range(2):
            old.append(Reader(node, group, topic, **classic))
            closing.callback(old[-1].consumer.close)
            until([*old, *new], lambda: shared([*old, *new]))
            new.pop().consumer.close()
            until([*old, *new], lambda: shared([*old, *new]))


def test_the_java_console_consumer_reads_as_a_group(node: OttlaNode, topic: str) -> None:
    out = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", node.address, "--topic", topic,
        "--group", f"group-{topic}", "--from-beginning", "--max-messages", "600", "--timeout-ms", "30000",
        "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert {int(line) for line in out.split()} == set(range(600))


def test_java_members_take_over_from_each_other(node: OttlaNode, topic: str) -> None:
    group = f"group-{topic}"
    words = [
        "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", node.address, "--topic", topic,
        "--group-id", group, "--group-protocol", "consumer", "--reset-policy", "earliest",
    ]  # fmt: skip
    with java_tool(*words) as first, java_tool(*words) as second:
        one, two = Watched(first), Watched(second)
        wait(lambda: sorted([*one.partitions, *two.partitions]) == list(range(6)) and one.partitions and two.partitions)
        wait(lambda: one.consumed + two.consumed >= 600)
        second.terminate()
        wait(lambda: sorted(one.partitions) == list(range(6)))
        first.terminate()
        first.wait(TIMEOUT_S)
    assert "Empty" in describe(node, group, "--state")[1]


class Watched:
    """What a VerifiableConsumer says of itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.partitions: set[int] = set()
        self.consumed = 0
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            numbers_of = {each["partition"] for each in told.get("partitions", ()) if isinstance(each, dict)}
            match told["name"]:
                case "partitions_assigned":
                    self.partitions |= numbers_of
                case "partitions_revoked":
                    self.partitions -= numbers_of
                case "records_consumed":
                    self.consumed += told["count"]


def wait(done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
