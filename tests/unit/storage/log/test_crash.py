"""Power loss and SIGKILL: whatever was done, a log comes back as a prefix of what it was, with all that is synced.

A run appends, flushes, rolls, truncates as a follower of a new leader does, and moves the log's start, until the disk
loses power in some call; then the log is opened with a recovery point that was reached before, and all goes on. Leader
epochs and offsets tell whether bytes came back that had been cut off.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.wire.batch import BatchHeader, read_header
from ottla.protocol.wire.control import ControlType, control_type, coordinator_epoch, transaction_marker
from ottla.protocol.wire.records import read_records
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.producers import Origin, Producers
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, truncate_fully, truncate_to
from ottla.storage.log_environment import LogEnvironment
from tests.support.log_workbench import (
    DIRECTORY,
    FOREVER,
    NOW,
    LogWorkbench,
    Producer,
    aborted_by_brute_force,
    aborted_of,
    batch,
    check_consistent,
    fetch_all,
    producers_of,
    stored_batches,
)
from tests.support.simulated_disk import PowerLoss, SimulatedDisk, Survival
from tests.unit.storage.log import crash_writer

EPOCHS_TRUNCATED = 2
"""How many epochs a new leader may be ahead."""


class Run:
    """One seed: a log, what was appended to it in order, and what its owner had written down."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = NOW
        self.disk = SimulatedDisk(seed, lambda: self.now_ms)
        self.settings = LogSettings(
            segment_bytes=self.random.choice((700, 1500, 4000)),
            index_interval_bytes=self.random.choice((0, 100, 600)),
            flush_messages=self.random.choice((1, 20, FOREVER, FOREVER)),
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.content: list[bytes | bytearray] = []
        """Every batch that is in the log or was on its way, removed ones too: what is found is a prefix of it."""
        self.epoch = 0
        self.recovery_point = 0
        """What the checkpoint says."""
        self.promised = 0
        """All below is there after a crash: the same, but while a truncation is under way."""
        self.log_start = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.log = create_log(self._home(), DIRECTORY, "t", 0, self.settings, now_ms=NOW)
        self.disk.sync_dir("/")
        self.disk.sync_dir("/data")
        self.disk.sync_dir(DIRECTORY)

    def _home(self) -> LogEnvironment:
        return LogEnvironment(disk=self.disk, random=Random(1))

    def go_on(self, steps: int) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (8, self.append),
            (6, self.append_idempotent),
            (4, self.append_in_transaction),
            (4, self.mark),
            (4, self.append_fetched),
            (2, self.flush),
            (2, self.roll),
            (2, self.follow),
            (1, self.advance_start),
            (1, self.start_over),
            (1, self.restart),
        ]
        weights = [weight for weight, _ in kinds]
        for _, step in self.random.choices(kinds, weights, k=steps):
            self.now_ms += self.random.randrange(-5, 20)
            step()

    # Steps. What is about to be written is noted before, because power may be lost right after it.

    def _batch(self, producer: Producer | None = None, *, base_offset: int = 0, epoch: int = -1) -> bytearray:
        values = [self.random.randbytes(self.random.choice((5, 40, 150))) for _ in range(self.random.choice((1, 1, 3)))]
        times = [self.now_ms + self.random.randrange(-50, 50) for _ in values]
        return batch(*values, timestamps=times, producer=producer, base_offset=base_offset, leader_epoch=epoch)

    def _append(self, data: bytearray) -> None:
        self.content.append(data)
        self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        self._note()

    def _note(self) -> None:
        """The checkpoint is written now and then."""
        if self.random.random() < 0.7:
            self._checkpoint()
        if self.random.random() < 0.7:
            self.log_start = self.log.log_start_offset

    def _checkpoint(self) -> None:
        self.recovery_point = self.promised = self.log.recovery_point

    def append(self) -> None:
        self._append(self._batch())

    def append_idempotent(self) -> None:
        producer_id = self.random.randrange(3)
        data = self._batch(Producer(producer_id, self.sequences.get(producer_id, 0)))
        self.sequences[producer_id] = self.sequences.get(producer_id, 0) + read_header(data).record_count
        self._append(data)

    def append_in_transaction(self) -> None:
        producer_id = self.random.randrange(10, 13)
        data = self._batch(Producer(producer_id, self.sequences.get(producer_id, 0), transactional=True))
        self.sequences[producer_id] = self.sequences.get(producer_id, 0) + read_header(data).record_count
        self.open.add(producer_id)
        self._append(data)

    def mark(self) -> None:
        if not self.open:
            return
        producer_id, commit = self.random.choice(sorted(self.open)), self.random.random() < 0.4
        self.open.discard(producer_id)
        marker = transaction_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp=self.now_ms,
            base_offset=self.log.log_end_offset,
            leader_epoch=self.epoch,
        )
        self.content.append(marker)
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=1,
            transaction_version=0,
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )
        self._note()

    def append_fetched(self) -> None:
        offset, fetched = self.log.log_end_offset, []
        for _ in range(self.random.choice((1, 2, 4))):
            offset += self.random.choice((0, 0, 0, 3))  # compaction leaves gaps
            fetched.append(self._batch(base_offset=offset, epoch=self.epoch))
            offset = read_header(fetched[-1]).next_offset
        self.content += fetched
        whole = b"".join(fetched)
        tail = self.random.choice((0, 0, 70))
        self.log.append_fetched(whole + whole[:tail], now_ms=self.now_ms)
        self._note()

    def flush(self) -> None:
        self.log.flusher.start()
        self._note()

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self._note()

    def follow(self) -> None:
        """Another leader: what it does not have is cut off, and the lowered recovery point is written down."""
        self.epoch += self.random.randint(1, EPOCHS_TRUNCATED)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = max(start, end - self.random.choice((0, 1, 2, 5, 20, 60)))
        # Until it is done, all of what was there may come back; nothing from the offset's batch on need come back.
        ends = [read_header(data).next_offset for data in self.content]
        self.promised = min(self.promised, max((end for end in ends if end <= offset), default=0))
        truncate_to(self.log, offset, now_ms=self.now_ms, producer_expiration_ms=FOREVER)
        self._checkpoint()
        self.log_start = min(self.log_start, self.log.log_start_offset)
        self.content = [data for data in self.content if read_header(data).base_offset < self.log.log_end_offset]
        self._adopt()

    def start_over(self) -> None:
        """The leader's log begins behind the end of this one."""
        if self.random.random() < 0.7:
            return
        self.epoch += 1
        offset = self.log.log_end_offset + self.random.choice((0, 7))
        self.promised = 0
        truncate_fully(self.log, offset, now_ms=self.now_ms)
        self._checkpoint()
        self.log_start = offset
        self.content = []
        self._adopt()

    def advance_start(self) -> None:
        log = self.log
        log.advance_high_watermark(log.log_end_offset)
        advance_log_start(log, self.random.randint(log.log_start_offset, log.high_watermark))
        self._note()
        if self.log_start == log.log_start_offset:
            remove_expired(log, self.now_ms)

    def restart(self) -> None:
        self.log.close()
        self._checkpoint()
        self.log_start = self.log.log_start_offset
        before = producers_of(self.log)
        self.open_log(clean=True)
        assert self.log.log_end_offset == self.recovery_point
        assert producers_of(self.log) == before

    # Crashes

    def open_log(self, *, clean: bool) -> None:
        self.log = open_log(
            self._home(),
            DIRECTORY,
            "t",
            0,
            self.settings,
            clean=clean,
            now_ms=self.now_ms,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            producer_expiration_ms=FOREVER,
        )

    def recover(self) -> None:
        """Lose power, perhaps again while the log is recovered, and look at what is found."""
        self.disk = self.disk.crash()
        while self.random.random() < 0.4:
            self.disk.crash_after(self.random.choice((1, 2, 3, 5, 8, 15, 40)))
            with suppress(PowerLoss):
                self.open_log(clean=False)
            self.disk = self.disk.crash()
        self.open_log(clean=False)
        self.check()
        self._adopt()

    def check(self) -> None:
        check_consistent(self.log)
        found = [data for _, _, _, data in stored_batches(self.log)]
        everything = [bytes(data) for data in self.content]
        first = everything.index(found[0]) if found else len(everything)
        assert found == everything[first : first + len(found)], "what is found was not written like this"
        for data in everything:
            header = read_header(data)
            if self.log.log_start_offset <= header.base_offset and header.last_offset < self.promised:
                assert data in found, f"{header.base_offset} was synced and is lost"
        assert self.log.log_end_offset >= self.promised
        self._checkpoint()
        self.content = [data for data in everything if read_header(data).base_offset < self.log.log_end_offset]
        self.check_producers()

    def check_producers(self) -> None:
        """Those with a batch behind the log's start are known exactly; of others something may be known."""
        expected = replay(self.content)
        actual = producers_of(self.log)
        start = self.log.log_start_offset
        recent = {h.producer_id for h in map(read_header, self.content) if h.base_offset >= start}
        for producer in expected:
            known = actual.pop(producer.producer_id, None)
            saved = producer.saved()
            if known is not None and saved.transaction_start < start:
                saved = saved._replace(transaction_start=known[-1])  # type: ignore[arg-type]
            if producer.producer_id in recent:
                assert known is not None
                if start == 0:
                    assert known == tuple(saved)
                else:
                    assert known[:2] == tuple(saved)[:2]
        assert not actual, "producers that nobody has heard of"
        if start == 0:
            entries = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted_of(self.log)]
            assert entries == aborted_by_brute_force(self.log)

    def _adopt(self) -> None:
        """Producers go on from what the log knows of them."""
        self.sequences = {p.producer_id: p.last_sequence + 1 for p in self.log.producers}
        self.open = {p.producer_id for p in self.log.producers if p.transaction_start is not None}
        # A leader is elected again, in a new epoch.
        self.epoch = max(self.epoch, self.log.epochs.latest + 1)


def replay(content: list[bytes | bytearray]) -> Producers:
    """The producers' state after some batches, as a follower would have it."""
    producers = Producers()
    for data in content:
        header = read_header(data)
        if header.producer_id < 0:
            continue
        if not header.is_control:
            producers.check(header, Origin.REPLICATION)
            producers.apply(header, header.base_offset)
            continue
        replay_marker(producers, data, header)
    return producers


def replay_marker(producers: Producers, data: bytes | bytearray, header: BatchHeader) -> None:
    for record in read_records(data, 0, header):
        changes = producers.begin(Origin.REPLICATION)
        changes.add_marker(
            header,
            record.offset,
            commit=control_type(record) is ControlType.COMMIT,
            coordinator_epoch=coordinator_epoch(record),
            timestamp=record.timestamp,
        )
        for ended in changes.commit():
            producers.complete(ended)


@pytest.mark.parametrize("seed", range(300))
def test_after_power_loss_the_log_is_a_prefix_of_what_was_appended(seed: int) -> None:
    run = Run(seed)
    for _ in range(3):
        if run.random.random() < 0.8:
            run.disk.crash_after(run.random.randint(1, 200))
        with suppress(PowerLoss):
            run.go_on(30)
        run.recover()
    run.go_on(10)
    check_consistent(run.log)
    for _, _, _, data in list(stored_batches(run.log))[-1:]:
        assert data == bytes(run.content[-1])


SECTOR_BATCH = 512
"""A batch as large as a sector makes old and new bytes fit together."""


def sector_batch(fill: bytes, base_offset: int, epoch: int) -> bytearray:
    overhead = len(batch(fill * 300)) - 300
    data = batch(fill * (SECTOR_BATCH - overhead), base_offset=base_offset, leader_epoch=epoch)
    assert len(data) == SECTOR_BATCH
    return data


@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("seed", range(20))
def test_a_truncated_tail_never_mixes_with_new_records(survival: Survival, seed: int) -> None:
    bench = LogWorkbench(LogSettings(), disk=SimulatedDisk(seed))
    bench.append_fetched(*[sector_batch(b"o", offset, 1) for offset in range(10)])
    bench.log.flusher.start()
    bench.truncate(3)
    bench.append_fetched(*[sector_batch(b"n", offset, 2) for offset in range(3, 10)])
    bench.disk = bench.simulated.crash(survival)
    bench.reopen(clean=False, recovery_point=3)
    epochs = [header.leader_epoch for _, _, header, _ in stored_batches(bench.log)]
    assert epochs == [1, 1, 1] + [2] * (len(epochs) - 3)
    check_consistent(bench.log)


@pytest.mark.parametrize("seed", range(40))
def test_truncated_segments_never_follow_new_ones(seed: int) -> None:
    random = Random(seed)
    bench = LogWorkbench(LogSettings(segment_bytes=2 * SECTOR_BATCH, file_delete_delay_ms=0), disk=SimulatedDisk(seed))
    bench.append_fetched(*[sector_batch(b"o", offset, 1) for offset in range(10)])
    bench.log.flusher.start()
    cut = random.randrange(1, 9)
    bench.simulated.crash_after(random.randint(1, 60))
    with suppress(PowerLoss):
        bench.truncate(cut)
        bench.append_fetched(*[sector_batch(b"n", offset, 2) for offset in range(cut, 10)])
    bench.disk = bench.simulated.crash()
    bench.reopen(clean=False, recovery_point=cut)
    headers = [header for _, _, header, _ in stored_batches(bench.log)]
    assert [header.base_offset for header in headers] == list(range(len(headers)))
    assert len(headers) >= cut
    epochs = [header.leader_epoch for header in headers]
    assert epochs in ([1] * len(epochs), [1] * cut + [2] * (len(epochs) - cut))


def test_a_segment_whose_predecessor_lost_its_end_is_dropped() -> None:
    bench = LogWorkbench(LogSettings(segment_bytes=400))
    for _ in range(12):
        bench.append(count=2)
    assert len(bench.log.segments) > 2
    first, second = bench.log.segments[:2]
    first.cut(list(stored_batches(bench.log))[1].position)  # at a batch's start: nothing is torn
    bench.reopen(clean=False, recovery_point=0)
    assert bench.log.log_end_offset < second.base_offset
    assert len(bench.log.segments) == 1
    check_consistent(bench.log)


def test_indexes_of_a_segment_survive_though_it_was_synced_before_it_was_closed() -> None:
    for seed in range(20):
        bench = LogWorkbench(LogSettings(segment_bytes=600, index_interval_bytes=0), disk=SimulatedDisk(seed))
        bench.append(batch(b"x", producer=Producer(7, 0, transactional=True)))
        bench.mark(7, commit=False)
        bench.log.flusher.start()
        reached = bench.log.recovery_point
        bench.log.roll(NOW)
        bench.append()
        bench.log.flusher.start()
        bench.disk = bench.simulated.imagine_crash(Survival.NONE)
        bench.reopen(clean=False, recovery_point=reached)
        assert len(aborted_of(bench.log)) == 1
        check_consistent(bench.log)


# SIGKILL


def start_writer(directory: Path, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.storage.log.crash_writer", str(directory), str(seed)]
    root = Path(__file__).parents[4]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


def test_after_sigkill_everything_written_is_there(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    random = Random(1)
    reported: list[tuple[int, str]] = []
    synced = 0
    for round_number in range(15):
        with start_writer(directory, round_number) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            lines = writer.stdout.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                kind, offset, digest = line.split()
                if kind == "written":
                    reported.append((int(offset), digest))
                else:
                    synced = int(offset)
        log = crash_writer.open_or_create(str(directory), clean=False, recovery_point=synced)
        check_consistent(log)
        found = [(header.base_offset, crash_writer.digest(data)) for _, _, header, data in stored_batches(log)]
        # At the most the last one of each round was written, but not reported before the end came.
        assert set(reported) <= set(found)
        assert len(found) <= len(reported) + 1
        reported = found
        assert producers_of(log) == {
            p.producer_id: tuple(p.saved()) for p in replay([b for *_, b in stored_batches(log)])
        }
        log.close()
    assert len(reported) > 100
    assert len(fetch_all(log)) > 100
