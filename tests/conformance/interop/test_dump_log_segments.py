"""Apache Kafka's DumpLogSegments reports no fault in logs that Ottla writes, and shows the written records.

Every log is dumped twice: while it is open, after a flush, and after it was closed. A `LogWriter` keeps a list of the
batches that it appended, which the dump must show, batch by batch and record by record.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ottla.protocol.wire.batch import MAX_INT32, TimestampType
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.compaction import cleaner
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.node_files import NodeMeta
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, truncate_fully, truncate_to
from tests.conformance.interop.dumped_segments import Dump, DumpedBatch, DumpedRecord, dump_files, latest_producers
from tests.support.java_peer import JavaPeer

NOW_MS = 1_700_000_000_000
FOREVER_MS = 1 << 60
SETTINGS = LogSettings(segment_bytes=4000, index_interval_bytes=200, retention_ms=-1)


@dataclass
class LogWriter:
    """Writes to a log and remembers the batches that it wrote."""

    log: PartitionLog
    random: random.Random
    epoch: int = 0
    now_ms: int = NOW_MS
    written: list[DumpedBatch] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """Producer id → first offset of its transaction."""

    def append(
        self,
        count: int = 3,
        *,
        producer_id: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        keys: int = 10,
    ) -> None:
        """Append a batch with timestamps that rise and fall."""
        self.now_ms += self.random.randrange(20)
        base = self.log.log_end_offset
        records = [
            DumpedRecord(
                base + number,
                self.now_ms - self.random.randrange(50),
                self.random.choice([None, "", *(f"k{key}" for key in range(keys))]) if not self.compacts else
                f"k{self.random.randrange(keys)}",
                self.random.choice([None, "", "value " * self.random.randrange(1, 9)]),
            )
            for number in range(count)
        ]  # fmt: skip
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        if producer_id >= 0:
            self.sequences[producer_id] = (sequence + count) & MAX_INT32
        if transactional:
            self.open.setdefault(producer_id, base)
        batch = build_batch(
            [Record(number, item.timestamp, encode(item.key), encode(item.value), [("h", b"x")][: number % 2])
             for number, item in enumerate(records)],
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )  # fmt: skip
        self.log.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        settings = self.log.settings
        stored = compression if settings.compression is None else settings.compression
        latest, kind = max(item.timestamp for item in records), "CreateTime"
        if settings.message_timestamp_type is TimestampType.LOG_APPEND:
            latest, kind = self.now_ms, "LogAppendTime"
            records = [item._replace(timestamp=latest) for item in records]
        self.written.append(
            DumpedBatch(
                base, base + count - 1, sequence, producer_id, 0 if producer_id >= 0 else -1, self.epoch,
                transactional, False, kind, latest, stored.name.lower(), tuple(records),
            )
        )  # fmt: skip

    @property
    def compacts(self) -> bool:
        return self.log.settings.compact

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """End the producer's transaction."""
        base = self.log.log_end_offset
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=7,
            transaction_version=1,
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )
        first = self.open.pop(producer_id)
        if not commit:
            stable = min(self.open.values(), default=base + 1)
            self.aborted.append((producer_id, first, base, stable))
        marker = DumpedRecord(base, self.now_ms, None, None, "COMMIT 7" if commit else "ABORT 7")
        self.written.append(
            DumpedBatch(
                base, base, -1, producer_id, 0, self.epoch, True, True, "CreateTime", self.now_ms, "none", (marker,)
            )
        )

    def truncate(self, offset: int) -> None:
        """Truncate the log as a follower does; the next leader has a new epoch."""
        truncate_to(self.log, offset, now_ms=self.now_ms, producer_expiration_ms=FOREVER_MS)
        self.forget_from(offset)
        assert self.log.log_end_offset == (self.written[-1].last_offset + 1 if self.written else offset)
        self.epoch += 1

    def forget_from(self, offset: int) -> None:
        """Forget the batch with an offset, and all later batches."""
        self.written = [batch for batch in self.written if batch.last_offset < offset]
        self.aborted = [entry for entry in self.aborted if entry[2] < offset]
        self.sequences.clear()
        self.open.clear()
        for batch in self.written:
            if batch.control:
                del self.open[batch.producer_id]
            elif batch.producer_id >= 0:
                self.sequences[batch.producer_id] = batch.base_sequence + len(batch.records)
                if batch.transactional:
                    self.open.setdefault(batch.producer_id, batch.base_offset)

    def commit_all(self) -> None:
        """Raise the high watermark to the log end."""
        self.log.advance_high_watermark(self.log.log_end_offset)

    def producers(self) -> dict[int, dict[str, int | None]]:
        """Return the expected state of each producer."""
        expected: dict[int, dict[str, int | None]] = {}
        for batch in self.written:
            if batch.producer_id < 0:
                continue
            entry = expected.setdefault(
                batch.producer_id,
                {"producerId": batch.producer_id, "producerEpoch": 0, "coordinatorEpoch": -1},
            )
            entry["lastTimestamp"] = batch.max_timestamp
            if batch.control:
                entry["coordinatorEpoch"] = 7
            else:
                entry["lastSequence"] = batch.base_sequence + len(batch.records) - 1
                entry["lastOffset"] = batch.last_offset
                entry["offsetDelta"] = len(batch.records) - 1
            entry["currentTxnFirstOffset"] = self.open.get(batch.producer_id)
        return expected

    def epochs(self) -> list[tuple[int, int]]:
        """Return each leader epoch that wrote a batch, with its start offset."""
        begun: dict[int, int] = {}
        for batch in self.written:
            begun.setdefault(batch.leader_epoch, batch.base_offset)
        return list(begun.items())


class Workspace:
    """A log in its own log directory that can be written, dumped, abandoned and reopened."""

    def __init__(self, path: Path, peer: JavaPeer, seed: int = 1) -> None:
        self.path = path
        self.peer = peer
        self.random = random.Random(seed)
        self.directory = self._directory()

    def _directory(self) -> LogDirectory:
        return LogDirectory(str(self.path), NodeMeta("c", 1), random=self.random, producer_expiration_ms=FOREVER_MS)

    def create(self, settings: LogSettings = SETTINGS) -> LogWriter:
        log = self.directory.create("t", 0, settings, topic_id=bytes(range(16)), now_ms=NOW_MS)
        return LogWriter(log, self.random)

    def check(self, writer: LogWriter) -> Dump:
        """Dump the open and then the closed log; both dumps must have the written batches."""
        writer.log.flusher.start()
        self.compare(dump_files(self.peer, self.path / "t-0"), writer)
        writer.commit_all()
        self.directory.close(broker_epoch=5)
        dump = dump_files(self.peer, self.path / "t-0")
        self.compare(dump, writer)
        dumped = {int(entry["producerId"] or 0): entry for entry in latest_producers(dump)}
        for producer_id, expected in writer.producers().items():
            assert expected.items() <= dumped[producer_id].items()
        if writer.written:
            epochs = (self.path / "t-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
            assert [tuple(map(int, line.split())) for line in epochs] == writer.epochs()
        return dump

    def compare(self, dump: Dump, writer: LogWriter) -> None:
        assert dump.batches == writer.written
        assert dump.aborted == writer.aborted

    def reopen(self, writer: LogWriter) -> LogWriter:
        """Reopen the log from its files."""
        self.directory = self._directory()
        self.directory.load(lambda _: writer.log.settings, writer.now_ms)
        assert self.directory.is_online
        assert not self.directory.corrupt
        return replace(writer, log=self.directory.logs["t", 0])


@pytest.fixture
def workspace(tmp_path: Path, java_peer: JavaPeer) -> Workspace:
    return Workspace(tmp_path, java_peer)


def write_random(writer: LogWriter, steps: int) -> None:
    """Write with plain, idempotent and transactional producers in turn."""
    for _ in range(steps):
        kind = writer.random.randrange(6)
        if kind == 0:
            writer.append(writer.random.randrange(1, 5))
        elif kind == 1:
            writer.append(writer.random.randrange(1, 5), producer_id=1)
        elif kind == 2 and writer.open:
            writer.end_transaction(writer.random.choice(list(writer.open)), commit=writer.random.random() < 0.5)
        else:
            writer.append(
                writer.random.randrange(1, 4), producer_id=writer.random.choice([2, 3, 4]), transactional=True
            )


def encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("timestamp_type", TimestampType)
@pytest.mark.parametrize("stored", [None, *Compression])
def test_every_compression_of_producer_and_topic_is_readable(
    workspace: Workspace, stored: Compression | None, timestamp_type: TimestampType
) -> None:
    writer = workspace.create(replace(SETTINGS, compression=stored, message_timestamp_type=timestamp_type))
    for sent in (*Compression, *Compression):
        for producer_id in (-1, 1):
            writer.append(20, compression=sent, producer_id=producer_id)
    dump = workspace.check(writer)
    assert len(dump.offsets) > 1
    assert sum(map(len, dump.offsets.values())) > 10


@pytest.mark.parametrize("seed", range(3))
def test_producers_and_transactions_in_many_segments_are_readable(
    tmp_path: Path, java_peer: JavaPeer, seed: int
) -> None:
    workspace = Workspace(tmp_path, java_peer, seed)
    writer = workspace.create()
    write_random(writer, 200)
    dump = workspace.check(writer)
    assert len(dump.times) > 3
    assert dump.aborted
    assert writer.open, "no transaction is open at the end"


def test_an_empty_log_is_readable(workspace: Workspace) -> None:
    assert workspace.check(workspace.create()).batches == []


def test_an_open_log_has_the_same_files_as_kafkas(workspace: Workspace) -> None:
    """Kafka logs an error if the index of a segment that it recovers is missing."""
    writer = workspace.create()
    for _ in range(2):
        base = writer.log.active.base_offset
        names = {path.name for path in (workspace.path / "t-0").glob(f"{base:020d}.*")}
        assert names >= {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
        write_random(writer, 20)
        writer.log.roll(NOW_MS)


def test_leader_epochs_are_readable(workspace: Workspace) -> None:
    writer = workspace.create()
    for epoch in (0, 1, 4, 9):
        writer.epoch = epoch
        write_random(writer, 25)
    assert len(writer.epochs()) == 4
    workspace.check(writer)


TRUNCATIONS: dict[str, Callable[[LogWriter], int]] = {
    "the last batch": lambda writer: writer.written[-1].base_offset,
    "inside a batch": lambda writer: next(
        batch.last_offset for batch in writer.written[60:] if batch.last_offset > batch.base_offset
    ),
    "at the start of a segment": lambda writer: writer.log.segments[2].base_offset,
    "in the first segment": lambda writer: writer.written[3].base_offset,
    "everything": lambda writer: 0,
}


@pytest.mark.parametrize("is_written_again", [False, True], ids=["not written again", "written again"])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_a_truncated_log_is_readable(workspace: Workspace, truncation: str, is_written_again: bool) -> None:
    writer = workspace.create()
    write_random(writer, 120)
    writer.truncate(TRUNCATIONS[truncation](writer))
    if is_written_again:
        write_random(writer, 60)
    workspace.check(writer)


def test_a_log_restarted_at_another_offset_is_readable(workspace: Workspace) -> None:
    writer = workspace.create()
    write_random(writer, 60)
    truncate_fully(writer.log, 5000, now_ms=writer.now_ms)
    writer.forget_from(0)
    writer.epoch += 1
    write_random(writer, 60)
    assert workspace.check(writer).batches[0].base_offset == 5000


def test_a_log_is_readable_after_deleted_records(workspace: Workspace) -> None:
    writer = workspace.create()
    write_random(writer, 120)
    writer.commit_all()
    start = writer.log.segments[2].base_offset + 3
    advance_log_start(writer.log, start)
    assert remove_expired(writer.log, writer.now_ms) == 2
    first = writer.log.segments[0].base_offset
    dropped = [batch for batch in writer.written if batch.last_offset < first]
    writer.log.flusher.start()
    dump = dump_files(workspace.peer, workspace.path / "t-0")
    assert dump.batches == writer.written[len(dropped) :]
    workspace.directory.close(5)
    dump = dump_files(workspace.peer, workspace.path / "t-0")
    assert dump.batches == writer.written[len(dropped) :]
    assert dump.aborted == [entry for entry in writer.aborted if entry[2] >= first]
    assert workspace.reopen(writer).log.log_start_offset == start


@pytest.mark.parametrize("seed", range(12))
def test_a_recovered_log_is_readable(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    workspace = Workspace(tmp_path, java_peer, seed)
    writer = workspace.create()
    write_random(writer, workspace.random.randrange(1, 150))
    writer.commit_all()
    workspace.directory.checkpoint_high_watermarks()
    # Nothing was closed: the newest file loses its end, and the indexes lose what was only in memory.
    newest = max((tmp_path / "t-0").glob("*.log"))
    kept_bytes = workspace.random.randrange(newest.stat().st_size + 1)
    whole = [header for position, header in writer.log.active.headers() if position + header.size_bytes <= kept_bytes]
    end = whole[-1].next_offset if whole else writer.log.active.base_offset
    with newest.open("r+b") as file:
        file.truncate(kept_bytes)
    writer = workspace.reopen(writer)
    assert writer.log.log_end_offset == end
    writer.forget_from(end)
    writer.epoch += 1
    write_random(writer, 40)
    workspace.check(writer)


def test_recovery_keeps_batches_after_a_compaction_gap(workspace: Workspace) -> None:
    """Kafka stores its recovery point once a minute, and its cleaner may remove the end of a segment before."""
    writer = workspace.create(replace(SETTINGS, compact=True, delete=False))
    for _ in range(40):
        writer.append()
    first = writer.log.segments[0]
    *_, (position, header) = first.headers()
    with Path(first.path(".log")).open("r+b") as file:
        file.truncate(position)
    end = writer.log.log_end_offset
    writer = workspace.reopen(writer)
    assert writer.log.log_end_offset == end
    removed = (header.base_offset, header.last_offset)
    writer.written = [batch for batch in writer.written if (batch.base_offset, batch.last_offset) != removed]
    write_random(writer, 20)
    workspace.check(writer)


@pytest.mark.parametrize("seed", range(4))
def test_a_compacted_log_is_readable(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    workspace = Workspace(tmp_path, java_peer, seed)
    writer = workspace.create(replace(SETTINGS, compact=True, delete=False, min_cleanable_dirty_ratio=0.0))
    write_random(writer, 200)
    for producer_id in list(writer.open):
        writer.end_transaction(producer_id, commit=seed % 2 == 0)
    write_random(writer, 60)
    writer.commit_all()
    plan = cleaner.plan(writer.log, first_dirty_offset=None, now_ms=writer.now_ms)
    assert plan is not None
    cleaned = cleaner.clean(plan, memory_bytes=1 << 20)
    reached = cleaner.install(writer.log, cleaned)
    assert reached
    cleaned.settle()
    workspace.directory.cleaned_to["t", 0] = reached
    writer.log.flusher.start()
    for _ in range(2):
        dump = dump_files(java_peer, tmp_path / "t-0", compacted=True)
        compare_compacted(dump, writer, reached)
        workspace.directory.close(5)
    writer = workspace.reopen(writer)
    write_random(writer, 30)
    workspace.directory.close(6)
    compare_compacted(dump_files(java_peer, tmp_path / "t-0", compacted=True), writer, reached)


def compare_compacted(dump: Dump, writer: LogWriter, reached: int) -> None:
    """Check that the newest committed value of each key remains below the cleaned offset, and everything above it."""

    def is_aborted(batch: DumpedBatch) -> bool:
        return batch.transactional and any(
            producer_id == batch.producer_id and first <= batch.base_offset <= last
            for producer_id, first, last, _ in writer.aborted
        )

    newest: dict[str | None, int] = {}
    for batch in writer.written:
        if not batch.control and not is_aborted(batch):
            newest.update({record.key: record.offset for record in batch.records if record.offset < reached})
    whole = {batch.base_offset: batch for batch in writer.written}
    kept = {record.offset for record in dump.records}
    for batch in dump.batches:
        original = whole[batch.base_offset]
        if batch.records or batch.producer_id >= 0:
            assert set(batch.records) <= set(original.records)
            assert batch._replace(records=(), max_timestamp=0) == original._replace(records=(), max_timestamp=0)
        assert (batch.last_offset, batch.leader_epoch) == (original.last_offset, original.leader_epoch)
        if batch.base_offset >= reached:
            assert batch == original
    assert set(newest.values()) <= kept
    data = {record.offset for batch in dump.batches if not batch.control for record in batch.records}
    assert {offset for offset in data if offset < reached} == set(newest.values())
    assert {batch.base_offset for batch in writer.written if batch.base_offset >= reached} <= kept
