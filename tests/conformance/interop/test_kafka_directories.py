"""Apache Kafka and Ottla run alternately on one log directory, and each reads the files of the other.

    filled       clients write to Kafka, which shuts down
    continued    Ottla opens the directory, compacts, appends and closes
    killed       clients read from and write to Kafka, which is killed
    recovered    Ottla recovers the directory, appends and closes
    crashed      clients read from Kafka, which shuts down; Ottla appends and crashes, with half a batch at the end
    survived     Kafka recovers the directory, and clients read from it

Each stage is a fixture of the module that continues from the stage before.
"""

import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.harness.kafka_jars import class_path, java
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.wire.batch import TimestampType, assign_offset, check_crc, read_batches
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.storage.compaction import cleaner
from ottla.storage.directories.checkpoints import CLEANED, read_checkpoint
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.node_files import DirectoryLock, read_clean_shutdown, read_meta
from ottla.storage.disk import SystemDisk
from ottla.storage.log import producer_snapshot
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import LogSettings
from tests.conformance.interop.dumped_segments import dump_files
from tests.support.java_peer import JavaPeer
from tests.support.kafka_broker import KafkaNode

DISK = SystemDisk()
SMALL = {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": SMALL,
    "arrived": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "recompressed": {**SMALL, "compression.type": "zstd"},
    "numbered": SMALL,
    "transactions": SMALL,
    "undecided": {},
    "deleted": SMALL,
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "empty": {},
}
STAGES = ("first", "second", "third", "fourth", "fifth")
FOREIGN_ID = 9_000_000
NODE_FILES = ("meta.properties", "bootstrap.checkpoint")


class ConsumedRecord(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Range(NamedTuple):
    start: int
    end: int


@dataclass
class Observations:
    """The records that clients read, and the end of Kafka's log."""

    committed: dict[str, list[ConsumedRecord]] = field(default_factory=dict)
    everything: dict[str, list[ConsumedRecord]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    log: str = ""


@dataclass
class Stage:
    """A stage by Kafka or Ottla: a copy of the resulting directory, and the records that were read and written."""

    node: KafkaNode
    copy: Path
    observed: Observations = field(default_factory=Observations)
    written: dict[str, list[ConsumedRecord]] = field(default_factory=lambda: defaultdict(list))
    """By topic, the lasting records: plain ones and those of committed transactions."""
    aborted: dict[str, list[ConsumedRecord]] = field(default_factory=lambda: defaultdict(list))
    java_offsets: list[int] = field(default_factory=list)
    """The offsets that Kafka's consumer reads from the topic with transactions, with `read_committed`."""


def settings_of(topic: str) -> LogSettings:
    settings = TOPICS.get(topic, {})
    return LogSettings(
        segment_bytes=int(settings.get("internal.segment.bytes", 1 << 30)),
        index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        message_timestamp_type=TimestampType("message.timestamp.type" in settings),
        compression=Compression.ZSTD if "compression.type" in settings else None,
        compact="cleanup.policy" in settings or topic.startswith("__"),
        delete="cleanup.policy" not in settings and not topic.startswith("__"),
    )


# Stages by Kafka


class KafkaProducers:
    """Producers of all kinds for a running Kafka node."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.address = stage.node.address

    def fill(self, bursts: int) -> None:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = self.producer({"compression.type": codec})
            self.send(producer, ("plain", "arrived", "recompressed", "deleted", "compacted"), bursts)
        self.send(self.producer({"enable.idempotence": True}), ("numbered",), 3 * bursts)
        producers = [self.producer({"transactional.id": f"{self.name}-{number}"}) for number in range(2)]
        for producer in producers:
            producer.init_transactions()
        for number, commit in enumerate([True, False, True, False, False, True]):
            producer = producers[number % 2]
            producer.begin_transaction()
            self.send(producer, ("transactions", "compacted"), bursts, aborted=not commit)
            (producer.commit_transaction if commit else producer.abort_transaction)()

    def leave_undecided(self) -> None:
        """Start a transaction that stays open for longer than the test runs."""
        producer = self.producer({"transactional.id": "undecided", "transaction.timeout.ms": 600_000})
        producer.init_transactions()
        producer.begin_transaction()
        self.send(producer, ("undecided",), 2, aborted=True)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return Producer({"bootstrap.servers": self.address, "linger.ms": 1, "log_level": 2, **settings})

    def send(self, producer: Producer, topics: Sequence[str], bursts: int, *, aborted: bool = False) -> None:
        """Send some batches to each topic, and record them when they are acknowledged."""
        acknowledged = self.stage.aborted if aborted else self.stage.written

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            acknowledged[message.topic() or ""].append(consumed(message))

        for burst in range(bursts):
            for topic, number in product(topics, range(8)):
                value = None if topic == "compacted" and number == 7 else f"{self.name} {burst} {number} ".encode() * 9
                producer.produce(topic, value, f"k{burst * 5 % 7 + number}".encode(), on_delivery=on_delivery)
            assert producer.flush(20) == 0


def consumed(message: Message) -> ConsumedRecord:
    offset = message.offset()
    assert offset is not None
    return ConsumedRecord(offset, message.key(), message.value(), message.timestamp()[1])


def create_topics(node: KafkaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(20)


def delete_records(node: KafkaNode, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    for future in admin.delete_records([TopicPartition("deleted", 0, before)]).values():
        future.result(20)


def wait_until_decided(node: KafkaNode) -> None:
    """Wait until the markers of ended transactions are in the logs, which is after the client's answer."""
    admin = AdminClient({"bootstrap.servers": node.address, "log_level": 2})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    question = {TopicPartition(topic, 0): latest for topic in ("transactions", "compacted")}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ends = [
            [future.result(10).offset for future in admin.list_offsets(question, isolation_level=level).values()]
            for level in IsolationLevel
        ]
        if ends[0] == ends[1]:
            return
        time.sleep(0.05)
    pytest.fail("the transactions were not completed")


def commit_offset(node: KafkaNode) -> None:
    """Commit an offset of a group, so that `__consumer_offsets` exists too."""
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "readers", "log_level": 2})
    try:
        consumer.commit(offsets=[TopicPartition("plain", 0, 5)], asynchronous=False)
    finally:
        consumer.close()


def wait_until_cleaned(node: KafkaNode) -> None:
    """Wait until compaction has reached the active segment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        active = max(int(path.stem) for path in (node.directory / "compacted-0").glob("*.log"))
        if read_checkpoint(DISK, str(node.directory / CLEANED)).get(("compacted", 0)) == active:
            return
        time.sleep(0.1)
    pytest.fail("the compacted topic was not cleaned")


def consume_all(node: KafkaNode) -> Observations:
    """Return the records that consumers read at both isolation levels."""
    observed = Observations()
    for level, result in (("read_committed", observed.committed), ("read_uncommitted", observed.everything)):
        consumer = Consumer(
            {
                "bootstrap.servers": node.address,
                "group.id": "readers",
                "isolation.level": level,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in TOPICS])
            result.update({topic: [] for topic in TOPICS})
            ended: set[str] = set()
            deadline = time.monotonic() + 30
            while len(ended) < len(TOPICS):
                assert time.monotonic() < deadline, f"{set(TOPICS) - ended} were not read to their end"
                for message in consumer.consume(1000, timeout=0.2):
                    error, topic = message.error(), message.topic() or ""
                    if error is None:
                        result[topic].append(consumed(message))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended.add(topic)
            if level == "read_uncommitted":
                for topic in TOPICS:
                    observed.ranges[topic] = Range(
                        *consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
                    )
        finally:
            consumer.close()
    return observed


def consume_with_java(node: KafkaNode, topic: str, count: int) -> list[int]:
    """Return the offsets of the first `count` records that Kafka's console consumer reads."""
    tool = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", node.address, "--topic", topic]
    what = ["--partition", "0", "--offset", "earliest", "--isolation-level", "read_committed"]
    output = ["--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"]
    ends = ["--max-messages", str(count), "--timeout-ms", "20000"]
    finished = subprocess.run(
        [str(java()), "-Xmx128m", "-cp", class_path(), *tool, *what, *output, *ends],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return [int(line.removeprefix("Offset:")) for line in finished.stdout.split() if line.startswith("Offset:")]


def run_kafka_stage(node: KafkaNode, copy: Path, *, end: signal.Signals, act: Callable[[Stage], None]) -> Stage:
    """Run Kafka, let `act` read and write, stop Kafka, and keep a copy of the directory."""
    stage = Stage(node, copy)
    with node.running(end=end):
        act(stage)
    stage.observed.log = node.log_tail()
    shutil.copytree(node.directory, copy)
    return stage


# Stages by Ottla


def open_directory(path: Path) -> LogDirectory:
    meta = read_meta(DISK, str(path))
    assert meta is not None
    directory = LogDirectory(str(path), meta)
    directory.load(settings_of, now())
    assert directory.failure is None
    assert not directory.corrupt
    return directory


def now() -> int:
    return time.time_ns() // 1_000_000


def run_ottla_stage(before: Stage, copy: Path, name: str, *, close: bool) -> Stage:
    """Open the node's directory with Ottla, append to all topics, and close it or crash."""
    stage = Stage(before.node, copy)
    with DirectoryLock(str(stage.node.directory)):
        directory = open_directory(stage.node.directory)
        broker_epoch = directory.broker_epoch
        appender = LogAppender(directory, stage, name)
        appender.fill()
        if close:
            directory.close(0 if broker_epoch is None else broker_epoch)
        else:
            appender.leave_torn_batches()
    shutil.copytree(stage.node.directory, copy)
    return stage


@dataclass
class LogAppender:
    """Appends to the logs of a directory, as a leader does."""

    directory: LogDirectory
    stage: Stage
    name: str

    def fill(self) -> None:
        for topic in ("plain", "arrived", "recompressed", "deleted", "compacted", "empty"):
            for codec in Compression:
                self.append(topic, self.batch(compression=codec))
        self.repeat_numbered()
        # Producer ids that Kafka has not allocated, because it keeps allocating its own.
        for commit in (False, True):
            producer_id = FOREIGN_ID + STAGES.index(self.name) * 2 + commit
            for topic in ("transactions", "compacted"):
                self.transaction(topic, producer_id, commit=commit)
        self.compact()
        for log in self.directory.logs.values():
            log.advance_high_watermark(log.log_end_offset)

    def batch(self, **fields: Any) -> bytearray:
        timestamp = now()
        records = [
            Record(number, timestamp, b"k%d" % number, f"{self.name} {number} ".encode() * 5) for number in range(6)
        ]
        return build_batch(records, **fields)

    def append(self, topic: str, batch: bytearray, *, aborted: bool = False) -> None:
        log = self.directory.logs[topic, 0]
        records = list(read_records(batch))
        epoch = max(log.epochs.latest, 0)
        appended = log.append(batch, leader_epoch=epoch, now_ms=now())
        assert not appended.duplicate
        appended_records = (self.stage.aborted if aborted else self.stage.written)[topic]
        for number, record in enumerate(records):
            timestamp = record.timestamp if appended.append_time_ms < 0 else appended.append_time_ms
            appended_records.append(ConsumedRecord(appended.base_offset + number, record.key, record.value, timestamp))

    def repeat_numbered(self) -> None:
        """Continue the sequences of the idempotent producers from Kafka's stages."""
        for producer in list(self.directory.logs["numbered", 0].producers):
            batch = self.batch(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.last_sequence + 1,
            )
            again = bytearray(batch)
            self.append("numbered", batch)
            log = self.directory.logs["numbered", 0]
            assert log.append(again, leader_epoch=log.epochs.latest, now_ms=now()).duplicate

    def transaction(self, topic: str, producer_id: int, *, commit: bool) -> None:
        log = self.directory.logs[topic, 0]
        for sequence in (0, 6, 12):
            batch = self.batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
            self.append(topic, batch, aborted=not commit)
        log.append_marker(
            producer_id=producer_id,
            producer_epoch=1,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=2,
            leader_epoch=log.epochs.latest,
            now_ms=now(),
        )

    def compact(self) -> None:
        name = ("compacted", 0)
        log = self.directory.logs[name]
        log.advance_high_watermark(log.log_end_offset)
        log.roll(now())  # the active segment is never cleaned
        plan = cleaner.plan(log, first_dirty_offset=self.directory.cleaned_to.get(name), now_ms=now())
        assert plan is not None
        cleaned = cleaner.clean(plan, memory_bytes=1 << 20)
        reached = cleaner.install(log, cleaned)
        assert reached is not None
        cleaned.settle()
        self.directory.cleaned_to[name] = reached

    def leave_torn_batches(self) -> None:
        """Leave half a batch at the end of each log, as a crash may; acknowledged records are in the file.

        Some logs were flushed shortly before.
        """
        for topic in ("plain", "transactions", "compacted"):
            self.directory.logs[topic, 0].flusher.start()
        self.directory.checkpoint_recovery_points(wait=True)
        for (topic, _), log in self.directory.logs.items():
            if topic in TOPICS:
                batch = self.batch()
                assign_offset(batch, 0, log.log_end_offset, log.epochs.latest)
                with Path(log.active.path(".log")).open("ab") as file:
                    file.write(batch[:-7])


# The stages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="module")
def filled(folder: Path) -> Stage:
    node = KafkaNode(folder)
    node.format()

    def act(stage: Stage) -> None:
        create_topics(node)
        producers = KafkaProducers(stage, "first")
        producers.fill(6)
        producers.leave_undecided()
        delete_records(node, 100)
        commit_offset(node)
        wait_until_cleaned(node)
        stage.observed = consume_all(node)

    return run_kafka_stage(node, folder / "filled", end=signal.SIGTERM, act=act)


@pytest.fixture(scope="module")
def continued(filled: Stage, folder: Path) -> Stage:
    return run_ottla_stage(filled, folder / "continued", "second", close=True)


@pytest.fixture(scope="module")
def killed(continued: Stage, folder: Path) -> Stage:
    def act(stage: Stage) -> None:
        stage.observed = consume_all(stage.node)
        KafkaProducers(stage, "third").fill(3)
        wait_until_decided(stage.node)

    return run_kafka_stage(continued.node, folder / "killed", end=signal.SIGKILL, act=act)


@pytest.fixture(scope="module")
def recovered(killed: Stage, folder: Path) -> Stage:
    return run_ottla_stage(killed, folder / "recovered", "fourth", close=True)


@pytest.fixture(scope="module")
def crashed(recovered: Stage, folder: Path) -> tuple[Stage, Stage]:
    def act(stage: Stage) -> None:
        stage.observed = consume_all(stage.node)

    between = run_kafka_stage(recovered.node, folder / "between", end=signal.SIGTERM, act=act)
    return between, run_ottla_stage(between, folder / "crashed", "fifth", close=False)


@pytest.fixture(scope="module")
def survived(crashed: tuple[Stage, Stage], folder: Path) -> Stage:
    def act(stage: Stage) -> None:
        stage.observed = consume_all(stage.node)
        stage.java_offsets = consume_with_java(
            stage.node, "transactions", len(stage.observed.committed["transactions"])
        )

    return run_kafka_stage(crashed[1].node, folder / "survived", end=signal.SIGTERM, act=act)


# What each read


def test_ottla_reads_the_files_of_kafka(filled: Stage, tmp_path: Path) -> None:
    directory = open_directory(copy_directory(filled, tmp_path))
    assert directory.broker_epoch is not None
    assert directory.broker_epoch >= 0
    for topic, offsets in filled.observed.ranges.items():
        log = directory.logs[topic, 0]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            offsets.start,
            offsets.end,
            offsets.end,
        )
        assert read_all(log, Isolation.LOG_END) == filled.observed.everything[topic]
        assert read_all(log, Isolation.LAST_STABLE) == filled.observed.committed[topic]
        newest = max(Path(log.directory).glob("*.snapshot"), default=None)
        assert (newest is None) == (topic == "empty")
        if newest is not None:
            assert log.producers.snapshot() == producer_snapshot.decode(newest.read_bytes())
    assert directory.logs["undecided", 0].last_stable_offset == 0
    assert len(directory.logs["transactions", 0].segments) > 3
    assert len(filled.observed.everything["compacted"]) < len(filled.written["compacted"])


def test_clients_read_the_records_that_they_wrote(filled: Stage) -> None:
    """Check the basis of the following tests."""
    check_observed(filled.observed, [filled])
    assert filled.observed.committed["undecided"] == []
    assert len(filled.observed.everything["undecided"]) == 16


def test_opening_and_closing_does_not_change_files(filled: Stage, tmp_path: Path) -> None:
    path = copy_directory(filled, tmp_path)
    before = read_files(path)
    directory = open_directory(path)
    directory.close(closed_broker_epoch(filled))
    after = read_files(path)
    # At a start, an epoch without batches is removed, and its leader adds it again; Kafka does the same.
    assert before.pop("empty-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert after.pop("empty-0/leader-epoch-checkpoint") == b"0\n0\n"
    assert differences(before, after) == []


def test_recovery_writes_the_files_that_kafka_wrote(filled: Stage, tmp_path: Path) -> None:
    """Recovery rebuilds indexes, aborted transactions, producers and epochs from the batches, byte for byte."""
    path = copy_directory(filled, tmp_path)
    before = read_files(path)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink()
    for name in before:
        if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")) and not name.startswith("__cluster"):
            (path / name).unlink()
    open_directory(path).close(closed_broker_epoch(filled))
    after = read_files(path)
    # Compaction removed records that these files were built from.
    skipped = re.compile(
        r"(compacted-0/.*(\.snapshot|\.txnindex|checkpoint))|(empty-0/leader-epoch-checkpoint)"
    ).fullmatch
    assert [line for line in differences(before, after) if not skipped(line.partition(":")[0])] == []


@pytest.mark.parametrize("number", range(3))
def test_ottla_does_not_change_kafkas_other_files(
    number: int, filled: Stage, continued: Stage, killed: Stage, recovered: Stage, crashed: tuple[Stage, Stage]
) -> None:
    before, after = [(filled, continued), (killed, recovered), crashed][number]
    kafka_files = [
        {
            name: data
            for name, data in read_files(stage.copy).items()
            if name.startswith(("__cluster_metadata-0/", *NODE_FILES))
        }
        for stage in (before, after)
    ]
    assert len(kafka_files[0]) > 8
    assert kafka_files[0] == kafka_files[1]
    ids = [
        {path.parent.name: path.read_bytes() for path in stage.copy.rglob("partition.metadata")}
        for stage in (before, after)
    ]
    assert ids[0] == ids[1]


def test_kafka_continues_after_a_clean_stop_of_ottla(filled: Stage, continued: Stage, killed: Stage) -> None:
    check_observed(killed.observed, [filled, continued])
    assert storage_warnings(killed) == []


def test_ottla_reads_the_records_that_a_killed_kafka_acknowledged(
    filled: Stage, continued: Stage, killed: Stage, tmp_path: Path
) -> None:
    directory = open_directory(copy_directory(killed, tmp_path))
    assert directory.broker_epoch is None
    observed = Observations()
    for topic in TOPICS:
        log = directory.logs[topic, 0]
        observed.everything[topic] = read_all(log, Isolation.LOG_END)
        log.advance_high_watermark(log.log_end_offset)
        observed.committed[topic] = read_all(log, Isolation.LAST_STABLE)
    check_observed(observed, [filled, continued, killed])


def test_kafka_continues_after_recovery_by_ottla(
    filled: Stage, continued: Stage, killed: Stage, recovered: Stage, crashed: tuple[Stage, Stage]
) -> None:
    check_observed(crashed[0].observed, [filled, continued, killed, recovered])
    assert storage_warnings(crashed[0]) == []


def test_kafka_recovers_the_files_of_a_crashed_ottla(
    filled: Stage, continued: Stage, killed: Stage, recovered: Stage, crashed: tuple[Stage, Stage], survived: Stage
) -> None:
    check_observed(survived.observed, [filled, continued, killed, recovered, crashed[1]])
    assert [line for line in storage_warnings(survived) if "Corruption found in segment" not in line] == []


def test_kafkas_consumer_reads_the_records_of_both(survived: Stage) -> None:
    assert survived.java_offsets == [record.offset for record in survived.observed.committed["transactions"]]
    assert len(survived.java_offsets) > 10


@pytest.mark.parametrize("number", range(2))
def test_kafkas_tool_accepts_the_files_of_ottla(
    java_peer: JavaPeer, number: int, continued: Stage, recovered: Stage
) -> None:
    stage = (continued, recovered)[number]
    for topic in TOPICS:
        dump = dump_files(java_peer, stage.copy / f"{topic}-0", compacted=topic == "compacted")
        offsets = {record.offset for record in dump.records}
        assert offsets >= {record.offset for record in stage.written[topic]} or topic == "compacted"


def check_observed(observed: Observations, stages: Sequence[Stage]) -> None:
    """Check that exactly the records of these stages are there, at their offsets."""
    start = stages[0].observed.ranges["deleted"].start
    for topic in TOPICS:
        lasting = [record for stage in stages for record in stage.written[topic]]
        everything = lasting + [record for stage in stages for record in stage.aborted[topic]]
        if topic == "compacted":
            assert newest_by_key(observed.committed[topic]) == newest_by_key(lasting)
            assert set(observed.committed[topic]) <= set(lasting)
            assert set(observed.everything[topic]) <= set(everything)
            continue
        if topic == "deleted":
            lasting = everything = [record for record in lasting if record.offset >= start]
        assert observed.committed[topic] == sorted(lasting)
        assert observed.everything[topic] == sorted(everything)


def newest_by_key(records: Iterable[ConsumedRecord]) -> dict[bytes | None, ConsumedRecord]:
    return {record.key: record for record in sorted(records)}


def storage_warnings(stage: Stage) -> list[str]:
    """Return Kafka's warnings about its storage."""
    return [
        line
        for line in stage.observed.log.splitlines()
        if "QuorumController" not in line and "NetworkClient" not in line
    ]


def closed_broker_epoch(stage: Stage) -> int:
    epoch = read_clean_shutdown(DISK, str(stage.copy))
    assert epoch is not None
    return epoch


def copy_directory(stage: Stage, folder: Path) -> Path:
    """Return another copy of a stage's directory, which a test may change."""
    return Path(shutil.copytree(stage.copy, folder / "copy"))


def read_files(path: Path) -> dict[str, bytes]:
    """Return all files under a directory, except those that wait for deletion."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.suffix != ".deleted" and file.name != ".lock"
    }


def differences(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [
        f"{name}: {summarize(before.get(name))} became {summarize(after.get(name))}"
        for name in sorted({*before, *after})
        if normalize(name, before.get(name)) != normalize(name, after.get(name))
    ]


def normalize(name: str, data: bytes | None) -> object:
    """Sort the lines of checkpoints and the producers of snapshots, which may be in any order."""
    if data is not None and name.endswith("-checkpoint"):
        return sorted(data.splitlines())
    if data is not None and name.endswith(".snapshot"):
        return sorted(producer_snapshot.decode(data))
    return data


def summarize(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes {data[:120]!r}"


def read_all(log: PartitionLog, isolation: Isolation) -> list[ConsumedRecord]:
    """Return the records that a consumer would return from its fetches."""
    records: list[ConsumedRecord] = []
    offset = log.log_start_offset
    while (fetched := read(log, offset, 2000, isolation)).records is not None:
        piece = fetched.records
        aborted = list(fetched.aborted or ())
        data = DISK.pread(piece.file.number, piece.size, piece.position)
        for position, header in read_batches(data, partial_tail=True):
            check_crc(data, position, header)
            is_aborted = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in aborted
            )
            if not header.is_control and not is_aborted:
                records += [
                    ConsumedRecord(record.offset, record.key, record.value, record.timestamp)
                    for record in read_records(data, position, header)
                    if record.offset >= offset
                ]
            offset = header.next_offset
    return records
