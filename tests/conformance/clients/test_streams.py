"""Kafka Streams counts words exactly once with classic groups, even if the node is killed."""

import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.kafka_jars import java

from tests.conformance.clients.programs.lines import Record
from tests.conformance.clients.running import LIBRDKAFKA, Programs
from tests.conformance.clients.topics import create_topic
from tests.conformance.interop.test_kafka_streams import streams_class_path
from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_node import OttlaNode

PARTITIONS = 2
LINES = [f"the word number {number % 7} comes again" for number in range(200)]
END_TIMEOUT_S = 30


@contextmanager
def running_word_count(node: OttlaNode, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the application, and kill it at the end if it still runs."""
    command = [
        *(str(java()), *JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", streams_class_path()),
        *("WordCount", node.address, "words", "lines", "counts", str(folder), "1", "exactly_once_v2", "classic"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(line.strip() == "state RUNNING" for line in process.stdout), "the application exited before it ran"
        yield process
    finally:
        process.kill()
        process.communicate()


def read_counts(node: OttlaNode, programs: Programs, count: int) -> dict[str, list[int]]:
    """Return the successive counts of each word."""
    read = programs[LIBRDKAFKA].ask(
        "read", address=node.address, topic="counts", partitions=PARTITIONS, count=count, committed=True
    )
    counts: dict[str, list[int]] = defaultdict(list)
    for record in read.records:
        assert record.key is not None
        assert record.value is not None
        counts[record.key.decode()].append(int(record.value))
    return dict(counts)


def test_words_are_counted_once_even_if_the_node_is_killed(node: OttlaNode, programs: Programs, tmp_path: Path) -> None:
    create_topic(node, "lines", PARTITIONS)
    create_topic(node, "counts", PARTITIONS)

    def write(lines: list[str]) -> None:
        records = [Record(number % PARTITIONS, None, line.encode()) for number, line in enumerate(lines)]
        programs[LIBRDKAFKA].ask("write", address=node.address, topic="lines", records=records)

    expected = Counter(word for line in LINES for word in line.split())
    with running_word_count(node, tmp_path / "state") as application:
        write(LINES[:100])
        read_counts(node, programs, 100)  # the application is working on these records
        node.stop(signal.SIGKILL)
        node.start()
        write(LINES[100:])
        counts = read_counts(node, programs, expected.total())
        application.terminate()
        application.wait(END_TIMEOUT_S)
    assert counts == {word: list(range(1, total + 1)) for word, total in expected.items()}
