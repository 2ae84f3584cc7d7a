"""Kafka Streams 4.3.1 runs on Ottla with the streams protocol (KIP-1071), while instances and nodes die."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bench.harness.kafka_jars import cached_folder, class_path, compile_java, copy_jars, digest, java
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 100
FOLDER = Path(__file__).parent / "streams"
FAST = {
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.assignment.interval.ms": "100",
}
JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LINES = ("to be or not to be", "all the world is a stage", "to thine own self be true")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("streams"), {**SETTINGS, **FAST})
    node.format()
    with node.running():
        admin = AdminClient({"bootstrap.servers": node.address})
        for future in admin.create_topics([NewTopic("lines", 3, 1), NewTopic("counts", 2, 1)]).values():
            future.result(TIMEOUT_S)
        yield node


def streams_class_path() -> str:
    pom, source = FOLDER / "pom.xml", FOLDER / "WordCount.java"
    libs = cached_folder(f"kafka-streams-{digest([pom])}", lambda folder: copy_jars(folder, pom))
    classes = cached_folder(
        f"streams-peer-{digest([pom, source])}", lambda folder: compile_java(libs, folder, [source])
    )
    return f"{classes}{os.pathsep}{libs}/*"


class Instance:
    """A process of the application."""

    def __init__(self, node: OttlaNode, name: str, folder: Path) -> None:
        self.log_path = folder / f"{name}.log"
        command = [str(java()), *JVM, "-cp", streams_class_path(), "WordCount", node.address, "word-count"]
        command += ["lines", "counts", str(folder / name), "1", "exactly_once_v2", "streams"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_running(self) -> bool:
        states = [line for line in self.log_path.read_text().splitlines() if line.startswith("state ")]
        assert self.process.poll() is None, self.log_path.read_text()[-3000:]
        return bool(states) and states[-1] == "state RUNNING"


@contextmanager
def ending(instance: Instance) -> Iterator[Instance]:
    try:
        yield instance
    finally:
        if instance.process.poll() is None:
            instance.process.kill()
        instance.process.wait(TIMEOUT_S)


class Counts:
    """The counts so far, as a `read_committed` consumer reads them."""

    def __init__(self, node: OttlaNode) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": node.address,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe(["counts"])
        self.counted: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        while (message := self.consumer.poll(0.2)) is not None:
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            before, now = self.counted.get(key.decode(), 0), int(value)
            assert now == before + 1, f"{key.decode()} went from {before} to {now}"
            self.counted[key.decode()] = now
        return self.counted


def wait_until(is_done: Callable[[], bool], why: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


def write(node: OttlaNode, rounds: int) -> Counter[str]:
    producer = Producer({"bootstrap.servers": node.address})
    words: Counter[str] = Counter()
    for number in range(rounds):
        for line in LINES:
            producer.produce("lines", line.encode(), partition=number % 3)
            words.update(line.split(" "))
    assert producer.flush(TIMEOUT_S) == 0
    return words


def describe(node: OttlaNode, *more: str) -> str:
    command = [str(java()), *JVM, "-cp", class_path(), "org.apache.kafka.tools.streams.StreamsGroupCommand"]
    command += ["--bootstrap-server", node.address, *more]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.timeout(300)
def test_words_are_counted_once_while_an_instance_dies(node: OttlaNode, tmp_path: Path) -> None:
    expected = write(node, 20)
    with ExitStack() as stack:
        first = stack.enter_context(ending(Instance(node, "first", tmp_path)))
        second = stack.enter_context(ending(Instance(node, "second", tmp_path)))
        wait_until(lambda: first.is_running() and second.is_running(), first.log_path.read_text)
        counts = Counts(node)
        wait_until(lambda: counts.read() == expected, lambda: (counts.counted, expected))
        output = describe(node, "--describe", "--group", "word-count", "--members")
        assert output.count("word-count-") >= 2, output
        assert "word-count" in describe(node, "--list")
        first.process.send_signal(signal.SIGKILL)
        expected += write(node, 20)
        wait_until(lambda: counts.read() == expected, lambda: (counts.counted, expected))
        second.process.terminate()
        assert second.process.wait(TIMEOUT_S) in (0, 143), second.log_path.read_text()[-3000:]
    wait_until(
        lambda: "Empty" in describe(node, "--describe", "--group", "word-count", "--state"),
        lambda: node.log_path.read_text()[-3000:],
    )
    described = describe(node, "--delete", "--group", "word-count", "--delete-all-internal-topics")
    assert "word-count" in described
    assert "word-count" not in describe(node, "--list")
    counts.consumer.close()
