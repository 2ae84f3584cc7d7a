"""A log against a list of batches: whatever is done to both, they tell the same.

`Model` is the list. A rule does something to the log and to the model; `LogMachine.check` compares all that readers can
see. Compaction changes the log in its way, within what it promises; the model then forgets what is gone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.protocol.errors import OffsetOutOfRange, OutOfOrderSequenceNumber
from ottla.protocol.wire.batch import NO_PRODUCER_ID, read_batches, read_header
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import Record, read_records
from ottla.storage.compaction.cleaner import clean, install, plan
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import Fetched, read, searches, searches_for_latest
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, truncate_to
from ottla.storage.log_environment import LogEnvironment
from tests.support.log_workbench import (
    DIRECTORY,
    FOREVER,
    NOW,
    Producer,
    batch,
    check_consistent,
    content,
    fetch_all,
    first_location,
)
from tests.support.simulated_disk import SimulatedDisk

SETTINGS = LogSettings(segment_bytes=1200, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
IDEMPOTENT, TRANSACTIONAL = st.sampled_from([1, 2]), st.sampled_from([11, 12, 13])
SOME = st.integers(0, 1 << 30)
"""Picks an offset, or anything else of which the number is not known beforehand."""


@dataclass
class Known:
    """A batch as the model keeps it. A marker's one record is no data."""

    records: list[Record]
    epoch: int
    producer_id: int = NO_PRODUCER_ID
    transactional: bool = False
    marker: ControlType | None = None

    base: int = field(init=False)
    last: int = field(init=False)
    """Of the batch as it was written: compaction takes records and leaves its offsets."""

    def __post_init__(self) -> None:
        self.base, self.last = self.records[0].offset, self.records[-1].offset


@dataclass
class Model:
    """What a log is to its readers: batches in the order of their offsets."""

    batches: list[Known] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0

    def add(self, known: Known) -> None:
        self.batches.append(known)
        self.end = known.last + 1

    def truncate(self, offset: int) -> None:
        self.batches = [known for known in self.batches if known.last < offset]
        self._end_at(self.batches[-1].last + 1 if self.batches else min(offset, self.end))

    def begin_at(self, offset: int) -> None:
        """Nothing is left: the log goes on where its first segment begins."""
        assert not self.batches
        assert offset <= self.end
        self._end_at(offset)

    def _end_at(self, offset: int) -> None:
        self.end = offset
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def forget(self, is_gone: Callable[[Record], bool]) -> None:
        """For compaction: records that readers see no more. Offsets stay as they are."""
        for known in self.batches:
            known.records = [record for record in known.records if not is_gone(record)]
        self.batches = [known for known in self.batches if known.records]

    def data(self, below: int) -> list[Record]:
        return [
            record
            for known in self.batches
            if known.marker is None and known.last < below
            for record in known.records
            if record.offset >= self.start
        ]

    def committed(self, below: int) -> list[Record]:
        """What read_committed shows: no record of a transaction that was aborted."""
        aborted: set[int] = set()
        pending: dict[int, list[int]] = {}
        for known in self.batches:
            if known.marker is not None:
                offsets = pending.pop(known.producer_id, [])
                if known.marker is ControlType.ABORT:
                    aborted.update(offsets)
            elif known.transactional:
                pending.setdefault(known.producer_id, []).extend(record.offset for record in known.records)
        return [record for record in self.data(below) if record.offset not in aborted]

    def undecided(self) -> int | None:
        """Where the first transaction begins that is open, or whose marker is not replicated."""
        started: dict[int, int] = {}
        unstable: list[int] = []
        for known in self.batches:
            if known.marker is not None:
                first = started.pop(known.producer_id, None)
                if first is not None and known.base >= self.high_watermark:
                    unstable.append(first)
            elif known.transactional:
                started.setdefault(known.producer_id, known.base)
        return min((*unstable, *started.values()), default=None)

    def visible(self) -> list[Record]:
        return [record for known in self.batches for record in known.records if record.offset >= self.start]


def consume(log_read: Callable[[int], Fetched], disk: SimulatedDisk, start: int, below: int) -> list[Record]:
    """What a consumer makes of fetches: aborted transactions are left out by the list that comes along."""
    found: list[Record] = []
    at = start
    while at < below:
        fetched = log_read(at)
        data = content(disk, fetched.records)
        assert fetched.aborted is not None
        coming = sorted(fetched.aborted, key=lambda entry: entry.first_offset)
        dropping: set[int] = set()
        before = at
        for pos, header in read_batches(data, partial_tail=True):
            at = header.next_offset
            while coming and coming[0].first_offset <= header.last_offset:
                dropping.add(coming.pop(0).producer_id)
            if header.is_control:
                if any(control_type(record) is ControlType.ABORT for record in read_records(data, pos, header)):
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                found += [record for record in read_records(data, pos, header) if record.offset >= start]
        if at == before:
            break
    return found


class LogMachine(RuleBasedStateMachine):
    """Steps in any order. `checkpoint` is the recovery point that was written down."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(7)
        self.disk.make_dir("/data")
        self.disk.sync_dir("/")
        self.log = create_log(self._home(), DIRECTORY, "t", 0, SETTINGS, now_ms=NOW)
        self.disk.sync_dir("/data")
        self.model = Model()
        self.checkpoint = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.last_sent: dict[int, tuple[bytearray, int, int]] = {}
        self.serial = 0
        self.cleaned_to = 0
        """All below was compacted. It is replicated, and so never cut off."""
        self.forgot = False
        """Whether the log may know less of transactions than the model."""

    def _home(self) -> LogEnvironment:
        return LogEnvironment(disk=self.disk, random=Random(1))

    def _records(self, count: int, size: int, skew: int, base: int) -> list[Record]:
        self.serial += 1
        value = b"%d" % self.serial
        times = [NOW + skew * 7 - number * (skew % 3 - 1) for number in range(count)]
        key = b"k%d" % (self.serial % 4)
        return [Record(base + number, time, key, value.ljust(size, b".")) for number, time in enumerate(times)]

    def _batch(self, given: list[Record], producer: Producer | None, compression: Compression, **at: int) -> bytearray:
        times = [record.timestamp for record in given]
        base = at.get("base_offset", 0)
        epoch = at.get("leader_epoch", -1)
        values = [record.value for record in given]
        return batch(
            *values,
            key=given[0].key,
            timestamps=times,
            producer=producer,
            compression=compression,
            base_offset=base,
            leader_epoch=epoch,
        )

    def _append(self, given: list[Record], producer: Producer | None, compression: Compression) -> bytearray:
        data = self._batch(given, producer, compression)
        sent = bytearray(data)
        appended = self.log.append(data, leader_epoch=self.epoch, now_ms=NOW)
        assert (appended.base_offset, appended.last_offset) == (self.model.end, self.model.end + len(given) - 1)
        known = Known(given, self.epoch)
        if producer is not None:
            known = replace(known, producer_id=producer.id, transactional=producer.transactional)
        self.model.add(known)
        return sent

    # What leaders do

    @rule(
        count=st.integers(1, 4),
        size=st.sampled_from([6, 40, 120]),
        skew=st.integers(-9, 30),
        compression=st.sampled_from(Compression),
    )
    def append(self, count: int, size: int, skew: int, compression: Compression) -> None:
        self._append(self._records(count, size, skew, self.model.end), None, compression)

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, count=st.integers(1, 3))
    def append_next(self, producer_id: int, count: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        producer = Producer(producer_id, sequence, transactional=producer_id > 10)
        base = self.model.end
        sent = self._append(self._records(count, 20, 3, base), producer, Compression.NONE)
        self.sequences[producer_id] = sequence + count
        self.last_sent[producer_id] = sent, base, base + count - 1

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL)
    def append_again(self, producer_id: int) -> None:
        if producer_id in self.last_sent:
            sent, base, last = self.last_sent[producer_id]
            appended = self.log.append(bytearray(sent), leader_epoch=self.epoch, now_ms=NOW)
            assert appended == (base, last, read_header(sent).max_timestamp, True)

    @rule(producer_id=IDEMPOTENT)
    def append_with_a_gap(self, producer_id: int) -> None:
        if producer_id in self.sequences:
            data = batch(b"late", producer=Producer(producer_id, self.sequences[producer_id] + 5))
            with pytest.raises(OutOfOrderSequenceNumber):
                self.log.append(data, leader_epoch=self.epoch, now_ms=NOW)

    @rule(producer_id=TRANSACTIONAL, commit=st.booleans())
    def mark(self, producer_id: int, commit: bool) -> None:
        if not self.log.producers.is_open(producer_id, 0):
            return
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=0,
            leader_epoch=self.epoch,
            now_ms=NOW,
        )
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = Record(self.model.end, NOW, None, None)
        self.model.add(Known([marker], self.epoch, producer_id, transactional=True, marker=kind))

    # What followers do

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), gap=st.sampled_from([0, 0, 2]), torn=st.booleans()
    )
    def append_fetched(self, counts: list[int], gap: int, torn: bool) -> None:
        data, end = b"", self.model.end
        for count in counts:
            given = self._records(count, 30, count, end + gap)
            data += self._batch(given, None, Compression.NONE, base_offset=end + gap, leader_epoch=self.epoch)
            end += gap + count
            self.model.add(Known(given, self.epoch))
        assert self.log.append_fetched(data + (data[:50] if torn else b""), now_ms=NOW) == len(data)

    @rule(pick=SOME)
    def truncate(self, pick: int) -> None:
        span = self.model.end - self.model.start
        offset = self.model.end - pick % (span + 1) if pick % 3 == 0 else self.model.end - pick % (min(span, 8) + 1)
        offset = max(offset, self.cleaned_to)
        truncate_to(self.log, offset, now_ms=NOW, producer_expiration_ms=FOREVER)
        self.model.truncate(offset)
        if not self.model.batches:
            self.model.begin_at(self.log.log_end_offset)
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)
        self.epoch += 1
        self.forgot = self.forgot or self.model.start > 0
        self._adopt()

    # Upkeep

    @rule(pick=SOME)
    def advance_high_watermark(self, pick: int) -> None:
        marks = [known.last + 1 for known in self.model.batches if known.last >= self.model.high_watermark]
        if marks:
            self.model.high_watermark = marks[pick % len(marks)]
            assert self.log.advance_high_watermark(self.model.high_watermark)

    @rule(pick=SOME)
    def advance_log_start(self, pick: int) -> None:
        room = self.model.high_watermark - self.model.start
        offset = self.model.start + pick % (room + 2)
        if offset > self.model.high_watermark:
            with pytest.raises(OffsetOutOfRange):
                advance_log_start(self.log, offset)
            return
        advance_log_start(self.log, offset)
        self.model.start = offset

    @rule(kept=st.sampled_from([-1, 0, 800, 2500]))
    def retain(self, kept: int) -> None:
        before = [(segment.base_offset, segment.size) for segment in self.log.segments]
        settings, self.log.settings = self.log.settings, replace(self.log.settings, retention_bytes=kept)
        remove_expired(self.log, NOW)
        self.log.settings = settings
        ends = [base for base, _ in before[1:]] + [self.model.end]
        total, start = sum(size for _, size in before), self.model.start
        for (_, size), end in zip(before, ends, strict=True):
            if not (0 <= kept <= total - size and size) or end > self.model.high_watermark:
                break
            total, start = total - size, max(start, end)
        self.model.start = start

    @rule()
    def compact(self) -> None:
        log, model = self.log, self.model
        before, log.settings = log.settings, replace(log.settings, compact=True, delete=False)
        work = plan(log, first_dirty_offset=None, now_ms=NOW)
        if work is not None:
            cleaned = clean(work, memory_bytes=1 << 20)
            end = install(log, cleaned)
            cleaned.settle()
            assert end is not None
            newest = {record.key: record for record in model.committed(end)}
            left = {
                record.offset
                for segment in log.segments
                for _, header, block, at in segment.batches()
                for record in read_records(block, at, header)
            }
            assert left >= {record.offset for record in model.visible() if record.offset >= end}
            model.forget(lambda record: record.offset not in left)
            assert {record.key: record for record in model.committed(end)} == newest
            self.cleaned_to = end
        log.settings = before

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flusher.start()
        self.checkpoint = self.log.recovery_point

    @rule(segment_bytes=st.sampled_from([700, 1200, 5000]), interval=st.sampled_from([0, 150, 4096]))
    def change_settings(self, segment_bytes: int, interval: int) -> None:
        self.log.settings = replace(self.log.settings, segment_bytes=segment_bytes, index_interval_bytes=interval)

    @rule(crash=st.sampled_from(["no", "killed", "power"]))
    def restart(self, crash: str) -> None:
        if crash == "no":
            self.log.close()
            self.checkpoint = self.log.recovery_point
        else:
            self.disk = self.disk.crash() if crash == "power" else self.disk.process_crash()
        self.log = open_log(
            self._home(),
            DIRECTORY,
            "t",
            0,
            self.log.settings,
            clean=crash == "no",
            now_ms=NOW,
            recovery_point=self.checkpoint,
            log_start_offset=self.model.start,
            producer_expiration_ms=FOREVER,
        )
        if crash == "power":
            assert self.log.log_end_offset >= self.checkpoint
            if self.log.log_end_offset < self.model.end:
                self.model.truncate(self.log.log_end_offset)
            self.model.start = self.log.log_start_offset
            self.model.end = self.log.log_end_offset
        self.checkpoint = self.log.recovery_point
        self.model.high_watermark = self.model.start
        self.forgot = True
        self.epoch += 1
        self._adopt()

    def _adopt(self) -> None:
        """Producers go on from what the log knows; older repeats may be forgotten."""
        self.sequences = {producer.producer_id: producer.last_sequence + 1 for producer in self.log.producers}
        self.last_sent.clear()

    # What readers see

    @rule(pick=SOME, max_bytes=st.sampled_from([1, 200, 5000]), isolation=st.sampled_from(Isolation))
    def read(self, pick: int, max_bytes: int, isolation: Isolation) -> None:
        offset = self.model.start + pick % (self.model.end - self.model.start + 1)
        limit = self.log.limit(isolation)
        if isolation is Isolation.LAST_STABLE:
            found = consume(lambda at: read(self.log, at, max_bytes, isolation), self.disk, offset, limit)
            expected = self.model.committed(limit)
        else:
            found = fetch_all(self.log, offset, isolation, max_bytes=max_bytes)
            expected = self.model.data(limit)
        assert found == [record for record in expected if record.offset >= offset]

    @rule(outside=st.sampled_from([-1, 1]))
    def read_outside(self, outside: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            read(self.log, self.model.start - 1 if outside < 0 else self.model.end + 1, 100, Isolation.LOG_END)

    @rule(delta=st.integers(-70, 250))
    def find_by_timestamp(self, delta: int) -> None:
        found = first_location(searches(self.log, NOW + delta))
        expected = next((r for r in self.model.visible() if r.timestamp >= NOW + delta), None)
        assert (found and found[:2]) == (expected and expected[:2])

    @rule()
    def find_latest(self) -> None:
        found = first_location(searches_for_latest(self.log))
        expected = max(self.model.visible(), key=lambda record: record.timestamp, default=None)
        assert (found and found[:2]) == (expected and expected[:2])

    @invariant()
    def ends_are_the_same(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.high_watermark == model.high_watermark
        undecided = model.undecided()
        if undecided is None:
            assert log.last_stable_offset == log.high_watermark
        elif not self.forgot:
            assert log.last_stable_offset == min(max(undecided, model.start), model.high_watermark)

    @precondition(lambda self: self.model.end % 5 == 0)
    @invariant()
    def files_are_consistent(self) -> None:
        check_consistent(self.log, self.cleaned_to)

    def teardown(self) -> None:
        check_consistent(self.log, self.cleaned_to)


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
