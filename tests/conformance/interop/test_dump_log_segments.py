"""Apache Kafka's own DumpLogSegments finds no fault with what Ottla writes, and finds in it what was written.

Every story is dumped twice: while the log is in use, after a flush, and after it was closed. A `Scribe` keeps a list of
all that it gave to a log, which the dump must show, batch by batch and record by record.
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
class Scribe:
    """Writes to a log and remembers what it wrote."""

    log: PartitionLog
    random: random.Random
    epoch: int = 0
    now_ms: int = NOW_MS
    written: list[DumpedBatch] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """Producer id → where its transaction began."""

    def data(
        self,
        count: int = 3,
        *,
        producer_id: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        keys: int = 10,
    ) -> None:
        """Append one batch, with timestamps that go forth and back."""
        self.now_ms += self.random.randrange(20)
        base = self.log.log_end_offset
        given = [
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
            [Record(number, item.timestamp, encoded(item.key), encoded(item.value), [("h", b"x")][: number % 2])
             for number, item in enumerate(given)],
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )  # fmt: skip
        self.log.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        settings = self.log.settings
        stored = compression if settings.compression is None else settings.compression
        latest, kind = max(item.timestamp for item in given), "CreateTime"
        if settings.message_timestamp_type is TimestampType.LOG_APPEND:
            latest, kind = self.now_ms, "LogAppendTime"
            given = [item._replace(timestamp=latest) for item in given]
        self.written.append(
            DumpedBatch(
                base, base + count - 1, sequence, producer_id, 0 if producer_id >= 0 else -1, self.epoch,
                transactional, False, kind, latest, stored.name.lower(), tuple(given),
            )
        )  # fmt: skip

    @property
    def compacts(self) -> bool:
        return self.log.settings.compact

    def end(self, producer_id: int, *, commit: bool) -> None:
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
        """Cut the log as a follower does; a new leader goes on."""
        truncate_to(self.log, offset, now_ms=self.now_ms, producer_expiration_ms=FOREVER_MS)
        self.forget_from(offset)
        assert self.log.log_end_offset == (self.written[-1].last_offset + 1 if self.written else offset)
        self.epoch += 1

    def forget_from(self, offset: int) -> None:
        """What is in the batch that holds the offset, and behind it, is gone."""
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
        """Let everything count as replicated."""
        self.log.advance_high_watermark(self.log.log_end_offset)

    def producers(self) -> dict[int, dict[str, int | None]]:
        """What is to be known of each producer."""
        known: dict[int, dict[str, int | None]] = {}
        for batch in self.written:
            if batch.producer_id < 0:
                continue
            entry = known.setdefault(
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
        return known

    def epochs(self) -> list[tuple[int, int]]:
        """Each leader epoch that wrote something, and where it began."""
        begun: dict[int, int] = {}
        for batch in self.written:
            begun.setdefault(batch.leader_epoch, batch.base_offset)
        return list(begun.items())


class Desk:
    """One log in a log directory of its own, to be written, dumped, left behind and opened again."""

    def __init__(self, path: Path, peer: JavaPeer, seed: int = 1) -> None:
        self.path = path
        self.peer = peer
        self.random = random.Random(seed)
        self.directory = self._directory()

    def _directory(self) -> LogDirectory:
        return LogDirectory(str(self.path), NodeMeta("c", 1), random=self.random, producer_expiration_ms=FOREVER_MS)

    def create(self, settings: LogSettings = SETTINGS) -> Scribe:
        log = self.directory.create("t", 0, settings, topic_id=bytes(range(16)), now_ms=NOW_MS)
        return Scribe(log, self.random)

    def check(self, scribe: Scribe) -> Dump:
        """Dump the log in use and closed; both must be what was written."""
        scribe.log.flusher.start()
        self.compare(dump_files(self.peer, self.path / "t-0"), scribe)
        scribe.commit_all()
        self.directory.close(broker_epoch=5)
        dump = dump_files(self.peer, self.path / "t-0")
        self.compare(dump, scribe)
        found = {int(entry["producerId"] or 0): entry for entry in latest_producers(dump)}
        for producer_id, expected in scribe.producers().items():
            assert expected.items() <= found[producer_id].items()
        if scribe.written:
            epochs = (self.path / "t-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
            assert [tuple(map(int, line.split())) for line in epochs] == scribe.epochs()
        return dump

    def compare(self, dump: Dump, scribe: Scribe) -> None:
        assert dump.batches == scribe.written
        assert dump.aborted == scribe.aborted

    def reopen(self, scribe: Scribe) -> Scribe:
        """Start again on what is there."""
        self.directory = self._directory()
        self.directory.load(lambda _: scribe.log.settings, scribe.now_ms)
        assert self.directory.is_online
        assert not self.directory.corrupt
        return replace(scribe, log=self.directory.logs["t", 0])


@pytest.fixture
def desk(tmp_path: Path, java_peer: JavaPeer) -> Desk:
    return Desk(tmp_path, java_peer)


def tell(scribe: Scribe, steps: int) -> None:
    """Plain, idempotent and transactional producers, in turns."""
    for _ in range(steps):
        kind = scribe.random.randrange(6)
        if kind == 0:
            scribe.data(scribe.random.randrange(1, 5))
        elif kind == 1:
            scribe.data(scribe.random.randrange(1, 5), producer_id=1)
        elif kind == 2 and scribe.open:
            scribe.end(scribe.random.choice(list(scribe.open)), commit=scribe.random.random() < 0.5)
        else:
            scribe.data(scribe.random.randrange(1, 4), producer_id=scribe.random.choice([2, 3, 4]), transactional=True)


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("timestamp_type", TimestampType)
@pytest.mark.parametrize("stored", [None, *Compression])
def test_every_compression_as_sent_and_as_the_topic_wants_it(
    desk: Desk, stored: Compression | None, timestamp_type: TimestampType
) -> None:
    scribe = desk.create(replace(SETTINGS, compression=stored, message_timestamp_type=timestamp_type))
    for sent in (*Compression, *Compression):
        for producer_id in (-1, 1):
            scribe.data(20, compression=sent, producer_id=producer_id)
    dump = desk.check(scribe)
    assert len(dump.offsets) > 1
    assert sum(map(len, dump.offsets.values())) > 10


@pytest.mark.parametrize("seed", range(3))
def test_producers_and_transactions_over_many_segments(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    desk = Desk(tmp_path, java_peer, seed)
    scribe = desk.create()
    tell(scribe, 200)
    dump = desk.check(scribe)
    assert len(dump.times) > 3
    assert dump.aborted
    assert scribe.open, "a transaction is still open at the end"


def test_a_log_without_records(desk: Desk) -> None:
    assert desk.check(desk.create()).batches == []


def test_a_log_in_use_has_the_files_that_kafkas_has(desk: Desk) -> None:
    """Kafka says so in its log, as an error, when the index of a segment that it is to recover is not there."""
    scribe = desk.create()
    for _ in range(2):
        base = scribe.log.active.base_offset
        names = {path.name for path in (desk.path / "t-0").glob(f"{base:020d}.*")}
        assert names >= {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
        tell(scribe, 20)
        scribe.log.roll(NOW_MS)


def test_leader_epochs(desk: Desk) -> None:
    scribe = desk.create()
    for epoch in (0, 1, 4, 9):
        scribe.epoch = epoch
        tell(scribe, 25)
    assert len(scribe.epochs()) == 4
    desk.check(scribe)


CUTS: dict[str, Callable[[Scribe], int]] = {
    "the last batch": lambda scribe: scribe.written[-1].base_offset,
    "inside a batch": lambda scribe: next(
        batch.last_offset for batch in scribe.written[60:] if batch.last_offset > batch.base_offset
    ),
    "where a segment begins": lambda scribe: scribe.log.segments[2].base_offset,
    "in the first segment": lambda scribe: scribe.written[3].base_offset,
    "everything": lambda scribe: 0,
}


@pytest.mark.parametrize("goes_on", [False, True], ids=["left there", "written to again"])
@pytest.mark.parametrize("cut", CUTS)
def test_truncation(desk: Desk, cut: str, goes_on: bool) -> None:
    scribe = desk.create()
    tell(scribe, 120)
    scribe.truncate(CUTS[cut](scribe))
    if goes_on:
        tell(scribe, 60)
    desk.check(scribe)


def test_a_log_that_begins_anew_elsewhere(desk: Desk) -> None:
    scribe = desk.create()
    tell(scribe, 60)
    truncate_fully(scribe.log, 5000, now_ms=scribe.now_ms)
    scribe.forget_from(0)
    scribe.epoch += 1
    tell(scribe, 60)
    assert desk.check(scribe).batches[0].base_offset == 5000


def test_a_log_start_inside_a_segment_and_segments_that_go_with_it(desk: Desk) -> None:
    scribe = desk.create()
    tell(scribe, 120)
    scribe.commit_all()
    start = scribe.log.segments[2].base_offset + 3
    advance_log_start(scribe.log, start)
    assert remove_expired(scribe.log, scribe.now_ms) == 2
    first = scribe.log.segments[0].base_offset
    dropped = [batch for batch in scribe.written if batch.last_offset < first]
    scribe.log.flusher.start()
    dump = dump_files(desk.peer, desk.path / "t-0")
    assert dump.batches == scribe.written[len(dropped) :]
    desk.directory.close(5)
    dump = dump_files(desk.peer, desk.path / "t-0")
    assert dump.batches == scribe.written[len(dropped) :]
    assert dump.aborted == [entry for entry in scribe.aborted if entry[2] >= first]
    assert desk.reopen(scribe).log.log_start_offset == start


@pytest.mark.parametrize("seed", range(12))
def test_what_recovery_leaves_after_a_crash(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    desk = Desk(tmp_path, java_peer, seed)
    scribe = desk.create()
    tell(scribe, desk.random.randrange(1, 150))
    scribe.commit_all()
    desk.directory.checkpoint_high_watermarks()
    # Nothing was closed: the newest file loses its end, and the indexes what was only in memory.
    newest = max((tmp_path / "t-0").glob("*.log"))
    cut = desk.random.randrange(newest.stat().st_size + 1)
    whole = [header for position, header in scribe.log.active.headers() if position + header.size_bytes <= cut]
    end = whole[-1].next_offset if whole else scribe.log.active.base_offset
    with newest.open("r+b") as file:
        file.truncate(cut)
    scribe = desk.reopen(scribe)
    assert scribe.log.log_end_offset == end
    scribe.forget_from(end)
    scribe.epoch += 1
    tell(scribe, 40)
    desk.check(scribe)


def test_recovery_keeps_what_lies_behind_a_gap_that_kafkas_compaction_left(desk: Desk) -> None:
    """Kafka writes down a recovery point each minute only, and its cleaner removes the end of a segment before that."""
    scribe = desk.create(replace(SETTINGS, compact=True, delete=False))
    for _ in range(40):
        scribe.data()
    first = scribe.log.segments[0]
    *_, (position, header) = first.headers()
    with Path(first.path(".log")).open("r+b") as file:
        file.truncate(position)
    end = scribe.log.log_end_offset
    scribe = desk.reopen(scribe)
    assert scribe.log.log_end_offset == end
    gone = (header.base_offset, header.last_offset)
    scribe.written = [batch for batch in scribe.written if (batch.base_offset, batch.last_offset) != gone]
    tell(scribe, 20)
    desk.check(scribe)


@pytest.mark.parametrize("seed", range(4))
def test_compaction(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    desk = Desk(tmp_path, java_peer, seed)
    scribe = desk.create(replace(SETTINGS, compact=True, delete=False, min_cleanable_dirty_ratio=0.0))
    tell(scribe, 200)
    for producer_id in list(scribe.open):
        scribe.end(producer_id, commit=seed % 2 == 0)
    tell(scribe, 60)
    scribe.commit_all()
    plan = cleaner.plan(scribe.log, first_dirty_offset=None, now_ms=scribe.now_ms)
    assert plan is not None
    cleaned = cleaner.clean(plan, memory_bytes=1 << 20)
    reached = cleaner.install(scribe.log, cleaned)
    assert reached
    cleaned.settle()
    desk.directory.cleaned_to["t", 0] = reached
    scribe.log.flusher.start()
    for _ in range(2):
        dump = dump_files(java_peer, tmp_path / "t-0", compacted=True)
        compare_compacted(dump, scribe, reached)
        desk.directory.close(5)
    scribe = desk.reopen(scribe)
    tell(scribe, 30)
    desk.directory.close(6)
    compare_compacted(dump_files(java_peer, tmp_path / "t-0", compacted=True), scribe, reached)


def compare_compacted(dump: Dump, scribe: Scribe, reached: int) -> None:
    """Of each key the newest committed value below where the cleaner came to stays; what is behind it stays whole."""

    def is_aborted(batch: DumpedBatch) -> bool:
        return batch.transactional and any(
            producer_id == batch.producer_id and first <= batch.base_offset <= last
            for producer_id, first, last, _ in scribe.aborted
        )

    newest: dict[str | None, int] = {}
    for batch in scribe.written:
        if not batch.control and not is_aborted(batch):
            newest.update({record.key: record.offset for record in batch.records if record.offset < reached})
    whole = {batch.base_offset: batch for batch in scribe.written}
    kept = {record.offset for record in dump.records}
    for found in dump.batches:
        given = whole[found.base_offset]
        if found.records or found.producer_id >= 0:
            assert set(found.records) <= set(given.records)
            assert found._replace(records=(), max_timestamp=0) == given._replace(records=(), max_timestamp=0)
        assert (found.last_offset, found.leader_epoch) == (given.last_offset, given.leader_epoch)
        if found.base_offset >= reached:
            assert found == given
    assert set(newest.values()) <= kept
    data = {record.offset for batch in dump.batches if not batch.control for record in batch.records}
    assert {offset for offset in data if offset < reached} == set(newest.values())
    assert {batch.base_offset for batch in scribe.written if batch.base_offset >= reached} <= kept
