"""Real consumers of the new protocol (KIP-848) work with Ottla: librdkafka's, Java's, and Kafka's tools for groups."""

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
    """Return a topic of six partitions with a hundred records each."""
    name = f"read-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": node.address})
    (future,) = admin.create_topics([NewTopic(name, 6, 1)]).values()
    future.result(TIMEOUT_S)
    fill(node, name, 600)
    return name


def fill(node: OttlaNode, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": node.address})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % 6)
    assert producer.flush(TIMEOUT_S) == 0


class Reader:
    """A librdkafka consumer that commits the records that it has read."""

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
        return {part.partition for part in self.consumer.assignment()}


def poll_until(readers: Sequence[Reader], is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, [reader.partitions for reader in readers]
        for reader in readers:
            reader.poll()


def are_partitions_shared(readers: Sequence[Reader], partitions: int = 6) -> bool:
    assigned = [reader.partitions for reader in readers]
    return all(assigned) and sum(map(len, assigned)) == partitions == len(set().union(*assigned))


@contextmanager
def running_java(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_java(*arguments: str) -> str:
    with running_java(*arguments) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err[-3000:]
        return out


def describe(node: OttlaNode, group: str, *options: str) -> list[list[str]]:
    """Return the rows and columns of Kafka's description of a group."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    out = run_java(tool, "--bootstrap-server", node.address, "--describe", "--group", group, *options)
    rows = [line.split() for line in out.splitlines() if line.strip()]
    return [row for row in rows if row[0] in ("GROUP", group)]


def test_librdkafka_members_share_partitions_commit_and_leave(node: OttlaNode, topic: str) -> None:
    group = f"group-{topic}"
    readers = [Reader(node, group, topic, group_protocol="consumer") for _ in range(3)]
    with ExitStack() as closing:
        for reader in readers:
            closing.callback(reader.consumer.close)
        poll_until(
            readers,
            lambda: are_partitions_shared(readers) and len(set().union(*(reader.values for reader in readers))) == 600,
        )
        for reader in readers:
            reader.consumer.commit(asynchronous=False)
        states, members = describe(node, group, "--state"), describe(node, group, "--members", "--verbose")
        assert "Stable" in states[1], states
        assert len(members) == 4, members
        readers[0].consumer.close()
        poll_until(readers[1:], lambda: are_partitions_shared(readers[1:]))
    late = Reader(node, group, topic, group_protocol="consumer")
    with ExitStack() as closing:
        closing.callback(late.consumer.close)
        poll_until([late], lambda: are_partitions_shared([late]))
        for _ in range(20):
            late.poll()
        assert not late.values  # all records were committed
    offsets = describe(node, group, "--offsets")
    header = offsets[0]
    assert {row[header.index("CURRENT-OFFSET")] for row in offsets[1:]} == {"100"}


def test_librdkafka_subscribes_by_expression_and_gets_new_partitions(node: OttlaNode, topic: str) -> None:
    reader = Reader(node, f"group-{topic}", f"^{topic}$", group_protocol="consumer")
    with ExitStack() as closing:
        closing.callback(reader.consumer.close)
        poll_until([reader], lambda: are_partitions_shared([reader]))
        admin = AdminClient({"bootstrap.servers": node.address})
        (grown,) = admin.create_partitions([NewPartitions(topic, 8)]).values()
        grown.result(TIMEOUT_S)
        poll_until([reader], lambda: are_partitions_shared([reader], 8))


def test_a_group_migrates_from_the_classic_protocol(node: OttlaNode, topic: str) -> None:
    """Members change one by one while they read records, and the group changes its type."""
    group = f"group-{topic}"
    # The coordinator refuses assignors with user data, such as librdkafka's sticky assignor, which would lose it.
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "range"}
    old = [Reader(node, group, topic, **classic) for _ in range(2)]
    new: list[Reader] = []
    with ExitStack() as closing:
        for reader in old:
            closing.callback(reader.consumer.close)
        poll_until(old, lambda: are_partitions_shared(old))
        for _ in range(2):
            new.append(Reader(node, group, topic, group_protocol="consumer"))
            closing.callback(new[-1].consumer.close)
            poll_until([*old, *new], lambda: are_partitions_shared([*old, *new]))
            old.pop().consumer.close()
            poll_until([*old, *new], lambda: are_partitions_shared([*old, *new]))
        assert "Stable" in describe(node, group, "--state")[1]
        # And back.
        for _ in range(2):
            old.append(Reader(node, group, topic, **classic))
            closing.callback(old[-1].consumer.close)
            poll_until([*old, *new], lambda: are_partitions_shared([*old, *new]))
            new.pop().consumer.close()
            poll_until([*old, *new], lambda: are_partitions_shared([*old, *new]))


def test_the_java_console_consumer_reads_in_a_group(node: OttlaNode, topic: str) -> None:
    out = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", node.address, "--topic", topic,
        "--group", f"group-{topic}", "--from-beginning", "--max-messages", "600", "--timeout-ms", "30000",
        "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert {int(line) for line in out.split()} == set(range(600))


def test_java_members_take_over_from_each_other(node: OttlaNode, topic: str) -> None:
    group = f"group-{topic}"
    arguments = [
        "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", node.address, "--topic", topic,
        "--group-id", group, "--group-protocol", "consumer", "--reset-policy", "earliest",
    ]  # fmt: skip
    with running_java(*arguments) as first, running_java(*arguments) as second:
        first_output, second_output = ConsumerOutput(first), ConsumerOutput(second)
        wait_until(
            lambda: (
                sorted([*first_output.partitions, *second_output.partitions]) == list(range(6))
                and first_output.partitions
                and second_output.partitions
            )
        )
        wait_until(lambda: first_output.consumed + second_output.consumed >= 600)
        second.terminate()
        wait_until(lambda: sorted(first_output.partitions) == list(range(6)))
        first.terminate()
        first.wait(TIMEOUT_S)
    assert "Empty" in describe(node, group, "--state")[1]


class ConsumerOutput:
    """The assignment and the progress that a VerifiableConsumer prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.partitions: set[int] = set()
        self.consumed = 0
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            numbers_of = {part["partition"] for part in event.get("partitions", ()) if isinstance(part, dict)}
            match event["name"]:
                case "partitions_assigned":
                    self.partitions |= numbers_of
                case "partitions_revoked":
                    self.partitions -= numbers_of
                case "records_consumed":
                    self.consumed += event["count"]


def wait_until(is_done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
