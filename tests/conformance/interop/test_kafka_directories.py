"""Apache Kafka and Ottla take turns on one log directory, and each finds what the other left.

    filled       Kafka is filled by clients and stops in order
    continued    Ottla opens it, compacts, appends and closes
    killed       Kafka starts on that, is read and written to, and is killed
    recovered    Ottla recovers it, appends and closes
    crashed      Kafka starts on that, is read and stops; Ottla appends and does not close; half a batch is at the end
    survived     Kafka recovers that, and is read

Each of them is a fixture that goes on from the one before and is made once.
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
TURNS = ("first", "second", "third", "fourth", "fifth")
FOREIGN_ID = 9_000_000
NODE_FILES = ("meta.properties", "bootstrap.checkpoint")


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Range(NamedTuple):
    start: int
    end: int


@dataclass
class Findings:
    """What clients saw of a Kafka, and what it had to say."""

    committed: dict[str, list[Seen]] = field(default_factory=dict)
    everything: dict[str, list[Seen]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    words: str = ""


@dataclass
class Turn:
    """One turn of Kafka or Ottla: a copy of the directory as it was left, and what was seen or written in it."""

    node: KafkaNode
    copy: Path
    found: Findings = field(default_factory=Findings)
    written: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    """By topic, records that stay: plain ones and those of committed transactions."""
    aborted: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    java_offsets: list[int] = field(default_factory=list)
    """What Kafka's own consumer reads of the topic with transactions, committed ones only."""


def settings_of(topic: str) -> LogSettings:
    given = TOPICS.get(topic, {})
    return LogSettings(
        segment_bytes=int(given.get("internal.segment.bytes", 1 << 30)),
        index_interval_bytes=int(given.get("index.interval.bytes", 4096)),
        message_timestamp_type=TimestampType("message.timestamp.type" in given),
        compression=Compression.ZSTD if "compression.type" in given else None,
        compact="cleanup.policy" in given or topic.startswith("__"),
        delete="cleanup.policy" not in given and not topic.startswith("__"),
    )


# Kafka's turns


class Clients:
    """Producers of all kinds for one running Kafka."""

    def __init__(self, turn: Turn, name: str) -> None:
        self.turn = turn
        self.name = name
        self.address = turn.node.address

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
        """A transaction that nobody ends for longer than this test takes."""
        producer = self.producer({"transactional.id": "undecided", "transaction.timeout.ms": 600_000})
        producer.init_transactions()
        producer.begin_transaction()
        self.send(producer, ("undecided",), 2, aborted=True)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return Producer({"bootstrap.servers": self.address, "linger.ms": 1, "log_level": 2, **settings})

    def send(self, producer: Producer, topics: Sequence[str], bursts: int, *, aborted: bool = False) -> None:
        """Some batches to each topic, noted where they were acknowledged."""
        told = self.turn.aborted if aborted else self.turn.written

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            told[message.topic() or ""].append(seen(message))

        for burst in range(bursts):
            for topic, number in product(topics, range(8)):
                value = None if topic == "compacted" and number == 7 else f"{self.name} {burst} {number} ".encode() * 9
                producer.produce(topic, value, f"k{burst * 5 % 7 + number}".encode(), on_delivery=on_delivery)
            assert producer.flush(20) == 0


def seen(message: Message) -> Seen:
    offset = message.offset()
    assert offset is not None
    return Seen(offset, message.key(), message.value(), message.timestamp()[1])


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
    """Until the markers of transactions that have ended are in the logs: they come after the client's answer."""
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
    pytest.fail("transactions stay undecided")


def commit_offset(node: KafkaNode) -> None:
    """A group that has come somewhere, so that Kafka has its own compacted topic for that too."""
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "readers", "log_level": 2})
    try:
        consumer.commit(offsets=[TopicPartition("plain", 0, 5)], asynchronous=False)
    finally:
        consumer.close()


def wait_until_cleaned(node: KafkaNode) -> None:
    """Until compaction has reached the active segment and has nothing left to do."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        active = max(int(path.stem) for path in (node.directory / "compacted-0").glob("*.log"))
        if read_checkpoint(DISK, str(node.directory / CLEANED)).get(("compacted", 0)) == active:
            return
        time.sleep(0.1)
    pytest.fail("the compacted topic was not cleaned")


def consume_all(node: KafkaNode) -> Findings:
    """Everything that consumers see, with and without transactions that are not committed."""
    found = Findings()
    for level, result in (("read_committed", found.committed), ("read_uncommitted", found.everything)):
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
                assert time.monotonic() < deadline, f"{set(TOPICS) - ended} do not come to their end"
                for message in consumer.consume(1000, timeout=0.2):
                    error, topic = message.error(), message.topic() or ""
                    if error is None:
                        result[topic].append(seen(message))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended.add(topic)
            if level == "read_uncommitted":
                for topic in TOPICS:
                    found.ranges[topic] = Range(*consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10))
        finally:
            consumer.close()
    return found


def consume_with_java(node: KafkaNode, topic: str, count: int) -> list[int]:
    """The offsets that Kafka's console consumer reads, as many records as there should be."""
    tool = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", node.address, "--topic", topic]
    what = ["--partition", "0", "--offset", "earliest", "--isolation-level", "read_committed"]
    shown = ["--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"]
    ends = ["--max-messages", str(count), "--timeout-ms", "20000"]
    done = subprocess.run(
        [str(java()), "-Xmx128m", "-cp", class_path(), *tool, *what, *shown, *ends],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(line.removeprefix("Offset:")) for line in done.stdout.split() if line.startswith("Offset:")]


def kafka_turn(node: KafkaNode, copy: Path, *, end: signal.Signals, act: Callable[[Turn], None]) -> Turn:
    """Kafka runs, is read, written to (by `act`, if it likes) and ended; a copy of the directory is kept."""
    turn = Turn(node, copy)
    with node.running(end=end):
        act(turn)
    turn.found.words = node.log_tail()
    shutil.copytree(node.directory, copy)
    return turn


# Ottla's turns


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


def ottla_turn(before: Turn, copy: Path, name: str, *, close: bool) -> Turn:
    """Ottla opens the node's directory, appends to all topics and leaves it."""
    turn = Turn(before.node, copy)
    with DirectoryLock(str(turn.node.directory)):
        directory = open_directory(turn.node.directory)
        broker_epoch = directory.broker_epoch
        clerk = Clerk(directory, turn, name)
        clerk.fill()
        if close:
            directory.close(0 if broker_epoch is None else broker_epoch)
        else:
            clerk.tear()
    shutil.copytree(turn.node.directory, copy)
    return turn


@dataclass
class Clerk:
    """Appends to the logs of a directory, as a leader would."""

    directory: LogDirectory
    turn: Turn
    name: str

    def fill(self) -> None:
        for topic in ("plain", "arrived", "recompressed", "deleted", "compacted", "empty"):
            for codec in Compression:
                self.append(topic, self.batch(compression=codec))
        self.repeat_numbered()
        # Ids that Kafka has not given out: it goes on to use its own.
        for commit in (False, True):
            producer_id = FOREIGN_ID + TURNS.index(self.name) * 2 + commit
            for topic in ("transactions", "compacted"):
                self.transaction(topic, producer_id, commit=commit)
        self.compact()
        for log in self.directory.logs.values():
            log.advance_high_watermark(log.log_end_offset)

    def batch(self, **fields: Any) -> bytearray:
        at = now()
        given = [Record(number, at, b"k%d" % number, f"{self.name} {number} ".encode() * 5) for number in range(6)]
        return build_batch(given, **fields)

    def append(self, topic: str, batch: bytearray, *, aborted: bool = False) -> None:
        log = self.directory.logs[topic, 0]
        given = list(read_records(batch))
        epoch = max(log.epochs.latest, 0)
        appended = log.append(batch, leader_epoch=epoch, now_ms=now())
        assert not appended.duplicate
        told = (self.turn.aborted if aborted else self.turn.written)[topic]
        for number, record in enumerate(given):
            timestamp = record.timestamp if appended.append_time_ms < 0 else appended.append_time_ms
            told.append(Seen(appended.base_offset + number, record.key, record.value, timestamp))

    def repeat_numbered(self) -> None:
        """Go on where the idempotent producers of Kafka's turns are."""
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
        log.roll(now())  # the segment that is written to is never cleaned
        plan = cleaner.plan(log, first_dirty_offset=self.directory.cleaned_to.get(name), now_ms=now())
        assert plan is not None
        cleaned = cleaner.clean(plan, memory_bytes=1 << 20)
        reached = cleaner.install(log, cleaned)
        assert reached is not None
        cleaned.settle()
        self.directory.cleaned_to[name] = reached

    def tear(self) -> None:
        """Half a batch at the end of each log, as a crash may leave it; what was acknowledged is in the file.

        Some logs had been flushed shortly before.
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


# The turns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="module")
def filled(folder: Path) -> Turn:
    node = KafkaNode(folder)
    node.format()

    def act(turn: Turn) -> None:
        create_topics(node)
        clients = Clients(turn, "first")
        clients.fill(6)
        clients.leave_undecided()
        delete_records(node, 100)
        commit_offset(node)
        wait_until_cleaned(node)
        turn.found = consume_all(node)

    return kafka_turn(node, folder / "filled", end=signal.SIGTERM, act=act)


@pytest.fixture(scope="module")
def continued(filled: Turn, folder: Path) -> Turn:
    return ottla_turn(filled, folder / "continued", "second", close=True)


@pytest.fixture(scope="module")
def killed(continued: Turn, folder: Path) -> Turn:
    def act(turn: Turn) -> None:
        turn.found = consume_all(turn.node)
        Clients(turn, "third").fill(3)
        wait_until_decided(turn.node)

    return kafka_turn(continued.node, folder / "killed", end=signal.SIGKILL, act=act)


@pytest.fixture(scope="module")
def recovered(killed: Turn, folder: Path) -> Turn:
    return ottla_turn(killed, folder / "recovered", "fourth", close=True)


@pytest.fixture(scope="module")
def crashed(recovered: Turn, folder: Path) -> tuple[Turn, Turn]:
    def act(turn: Turn) -> None:
        turn.found = consume_all(turn.node)

    between = kafka_turn(recovered.node, folder / "between", end=signal.SIGTERM, act=act)
    return between, ottla_turn(between, folder / "crashed", "fifth", close=False)


@pytest.fixture(scope="module")
def survived(crashed: tuple[Turn, Turn], folder: Path) -> Turn:
    def act(turn: Turn) -> None:
        turn.found = consume_all(turn.node)
        turn.java_offsets = consume_with_java(turn.node, "transactions", len(turn.found.committed["transactions"]))

    return kafka_turn(crashed[1].node, folder / "survived", end=signal.SIGTERM, act=act)


# What each found


def test_ottla_finds_what_kafka_left(filled: Turn, tmp_path: Path) -> None:
    directory = open_directory(copy_of(filled, tmp_path))
    assert directory.broker_epoch is not None
    assert directory.broker_epoch >= 0
    for topic, found in filled.found.ranges.items():
        log = directory.logs[topic, 0]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (found.start, found.end, found.end)
        assert read_all(log, Isolation.LOG_END) == filled.found.everything[topic]
        assert read_all(log, Isolation.LAST_STABLE) == filled.found.committed[topic]
        newest = max(Path(log.directory).glob("*.snapshot"), default=None)
        assert (newest is None) == (topic == "empty")
        if newest is not None:
            assert log.producers.snapshot() == producer_snapshot.decode(newest.read_bytes())
    assert directory.logs["undecided", 0].last_stable_offset == 0
    assert len(directory.logs["transactions", 0].segments) > 3
    assert len(filled.found.everything["compacted"]) < len(filled.written["compacted"])


def test_what_clients_wrote_is_what_they_read(filled: Turn) -> None:
    """So that the tests that follow compare with something."""
    assert_seen(filled.found, [filled])
    assert filled.found.committed["undecided"] == []
    assert len(filled.found.everything["undecided"]) == 16


def test_opening_and_closing_changes_nothing(filled: Turn, tmp_path: Path) -> None:
    path = copy_of(filled, tmp_path)
    before = content(path)
    directory = open_directory(path)
    directory.close(before_epoch(filled))
    after = content(path)
    # An epoch in which nothing was written is forgotten at a start, and begun again by its leader; also in Kafka.
    assert before.pop("empty-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert after.pop("empty-0/leader-epoch-checkpoint") == b"0\n0\n"
    assert differences(before, after) == []


def test_recovery_writes_the_files_that_kafka_wrote(filled: Turn, tmp_path: Path) -> None:
    """Indexes, aborted transactions, producers and epochs: made anew from the batches alone, byte by byte the same."""
    path = copy_of(filled, tmp_path)
    before = content(path)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink()
    for name in before:
        if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")) and not name.startswith("__cluster"):
            (path / name).unlink()
    open_directory(path).close(before_epoch(filled))
    after = content(path)
    # Records that compaction removed cannot tell of the past any more.
    skipped = re.compile(
        r"(compacted-0/.*(\.snapshot|\.txnindex|checkpoint))|(empty-0/leader-epoch-checkpoint)"
    ).fullmatch
    assert [line for line in differences(before, after) if not skipped(line.partition(":")[0])] == []


@pytest.mark.parametrize("number", range(3))
def test_ottla_leaves_alone_what_is_not_a_log_of_its_own(
    number: int, filled: Turn, continued: Turn, killed: Turn, recovered: Turn, crashed: tuple[Turn, Turn]
) -> None:
    before, after = [(filled, continued), (killed, recovered), crashed][number]
    owned = [
        {
            name: data
            for name, data in content(turn.copy).items()
            if name.startswith(("__cluster_metadata-0/", *NODE_FILES))
        }
        for turn in (before, after)
    ]
    assert len(owned[0]) > 8
    assert owned[0] == owned[1]
    ids = [
        {path.parent.name: path.read_bytes() for path in turn.copy.rglob("partition.metadata")}
        for turn in (before, after)
    ]
    assert ids[0] == ids[1]


def test_kafka_goes_on_from_where_ottla_closed(filled: Turn, continued: Turn, killed: Turn) -> None:
    assert_seen(killed.found, [filled, continued])
    assert complaints(killed) == []


def test_ottla_finds_what_a_killed_kafka_acknowledged(
    filled: Turn, continued: Turn, killed: Turn, tmp_path: Path
) -> None:
    directory = open_directory(copy_of(killed, tmp_path))
    assert directory.broker_epoch is None
    found = Findings()
    for topic in TOPICS:
        log = directory.logs[topic, 0]
        found.everything[topic] = read_all(log, Isolation.LOG_END)
        log.advance_high_watermark(log.log_end_offset)
        found.committed[topic] = read_all(log, Isolation.LAST_STABLE)
    assert_seen(found, [filled, continued, killed])


def test_kafka_goes_on_from_what_ottla_recovered(
    filled: Turn, continued: Turn, killed: Turn, recovered: Turn, crashed: tuple[Turn, Turn]
) -> None:
    assert_seen(crashed[0].found, [filled, continued, killed, recovered])
    assert complaints(crashed[0]) == []


def test_kafka_recovers_what_a_crashed_ottla_left(
    filled: Turn, continued: Turn, killed: Turn, recovered: Turn, crashed: tuple[Turn, Turn], survived: Turn
) -> None:
    assert_seen(survived.found, [filled, continued, killed, recovered, crashed[1]])
    assert [line for line in complaints(survived) if "Corruption found in segment" not in line] == []


def test_kafkas_own_consumer_reads_what_both_have_written(survived: Turn) -> None:
    assert survived.java_offsets == [record.offset for record in survived.found.committed["transactions"]]
    assert len(survived.java_offsets) > 10


@pytest.mark.parametrize("number", range(2))
def test_kafkas_tool_finds_no_fault_with_what_ottla_left(
    java_peer: JavaPeer, number: int, continued: Turn, recovered: Turn
) -> None:
    turn = (continued, recovered)[number]
    for topic in TOPICS:
        dump = dump_files(java_peer, turn.copy / f"{topic}-0", compacted=topic == "compacted")
        offsets = {record.offset for record in dump.records}
        assert offsets >= {record.offset for record in turn.written[topic]} or topic == "compacted"


def assert_seen(found: Findings, turns: Sequence[Turn]) -> None:
    """All that was written in these turns is there, in its place, and nothing else."""
    start = turns[0].found.ranges["deleted"].start
    for topic in TOPICS:
        stays = [record for turn in turns for record in turn.written[topic]]
        everything = stays + [record for turn in turns for record in turn.aborted[topic]]
        if topic == "compacted":
            assert newest(found.committed[topic]) == newest(stays)
            assert set(found.committed[topic]) <= set(stays)
            assert set(found.everything[topic]) <= set(everything)
            continue
        if topic == "deleted":
            stays = everything = [record for record in stays if record.offset >= start]
        assert found.committed[topic] == sorted(stays)
        assert found.everything[topic] == sorted(everything)


def newest(seen: Iterable[Seen]) -> dict[bytes | None, Seen]:
    return {record.key: record for record in sorted(seen)}


def complaints(turn: Turn) -> list[str]:
    """What Kafka warned of that has to do with its storage."""
    return [
        line for line in turn.found.words.splitlines() if "QuorumController" not in line and "NetworkClient" not in line
    ]


def before_epoch(turn: Turn) -> int:
    epoch = read_clean_shutdown(DISK, str(turn.copy))
    assert epoch is not None
    return epoch


def copy_of(turn: Turn, folder: Path) -> Path:
    """A copy to play with; the one that the turn keeps stays as it is."""
    return Path(shutil.copytree(turn.copy, folder / "copy"))


def content(path: Path) -> dict[str, bytes]:
    """All files under a directory, but for those that are only waiting to be deleted."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.suffix != ".deleted" and file.name != ".lock"
    }


def differences(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [
        f"{name}: {shown(before.get(name))} became {shown(after.get(name))}"
        for name in sorted({*before, *after})
        if normal(name, before.get(name)) != normal(name, after.get(name))
    ]


def normal(name: str, data: bytes | None) -> object:
    """The lines of checkpoints and the producers of snapshots come in any order."""
    if data is not None and name.endswith("-checkpoint"):
        return sorted(data.splitlines())
    if data is not None and name.endswith(".snapshot"):
        return sorted(producer_snapshot.decode(data))
    return data


def shown(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes {data[:120]!r}"


def read_all(log: PartitionLog, isolation: Isolation) -> list[Seen]:
    """The records that a consumer would see, as it takes them from what a fetch gives."""
    found: list[Seen] = []
    offset = log.log_start_offset
    while (fetched := read(log, offset, 2000, isolation)).records is not None:
        piece = fetched.records
        aborted = list(fetched.aborted or ())
        data = DISK.pread(piece.file.number, piece.size, piece.position)
        for position, header in read_batches(data, partial_tail=True):
            check_crc(data, position, header)
            spoiled = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in aborted
            )
            if not header.is_control and not spoiled:
                found += [
                    Seen(record.offset, record.key, record.value, record.timestamp)
                    for record in read_records(data, position, header)
                    if record.offset >= offset
                ]
            offset = header.next_offset
    return found
