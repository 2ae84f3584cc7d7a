"""Truncation of a log at its end and at its start, and the state that goes with it."""

from collections.abc import Callable

import pytest

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.log.opening import create_log
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, remove_segments, truncate_fully
from ottla.storage.log_environment import LogEnvironment
from tests.support.log_workbench import (
    FOREVER,
    NOW,
    LogWorkbench,
    Producer,
    aborted_of,
    batch,
    check_consistent,
    producers_of,
    stored_batches,
)
from tests.support.logs_in_memory import ManualBackground
from tests.support.simulated_disk import SimulatedDisk


def grown() -> LogWorkbench:
    """Batches of two records and markers, in several segments and epochs."""
    bench = LogWorkbench(LogSettings(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0))
    grow(bench, 12)
    return bench


def grow(bench: LogWorkbench, rounds: int) -> None:
    for number in range(rounds):
        bench.append(batch(b"a", b"b", producer=Producer(1, number * 2)), epoch=number // 3)
        bench.append(batch(b"c", b"d", producer=Producer(2, number * 2, transactional=True)), epoch=number // 3)
        bench.mark(2, commit=number % 2 == 0, epoch=number // 3)


def rebuilt(upto: int) -> LogWorkbench:
    """The same log, as if the rest had never been appended."""
    bench, full = LogWorkbench(LogSettings()), grown()
    for _, _, header, data in stored_batches(full.log):
        if header.last_offset < upto:
            bench.append_fetched(data)
    return bench


@pytest.mark.parametrize("offset", range(1, 61))
def test_a_cut_log_is_as_if_the_rest_had_never_been(offset: int) -> None:
    bench = grown()
    assert bench.log.log_end_offset == 60
    ends = [header.next_offset for _, _, header, _ in stored_batches(bench.log)]
    expected = max((end for end in ends if end <= offset), default=0)
    assert bench.truncate(offset) is (offset < 60)
    assert bench.log.log_end_offset == expected
    check_consistent(bench.log)
    other = rebuilt(offset)
    assert producers_of(bench.log) == producers_of(other.log)
    assert bench.log.epochs.entries == other.log.epochs.entries
    assert [e[:3] for e in aborted_of(bench.log)] == [e[:3] for e in aborted_of(other.log)]
    bench.append(epoch=9)
    bench.restart()
    assert bench.log.log_end_offset == expected + 1
    check_consistent(bench.log)


def test_an_ended_transaction_holds_back_readers_until_its_marker_is_replicated_also_after_a_cut() -> None:
    bench = LogWorkbench(LogSettings(segment_bytes=200))
    bench.append(batch(b"a", b"b", producer=Producer(1, 0, transactional=True)))
    bench.log.advance_high_watermark(2)
    bench.mark(1, commit=False)
    for _ in range(4):  # a segment begins behind the marker, with a snapshot of the producers
        bench.append(batch(b"c"))
    assert bench.log.last_stable_offset == 0
    assert bench.truncate(6)
    assert bench.log.log_end_offset == 6
    assert bench.log.last_stable_offset == 0
    bench.log.advance_high_watermark(6)
    assert bench.log.last_stable_offset == 6


def test_duplicates_of_truncated_batches_are_new() -> None:
    bench = LogWorkbench()
    bench.append(batch(b"a", producer=Producer(1, 0)))
    bench.append(batch(b"b", producer=Producer(1, 1)))
    bench.truncate(1)
    assert bench.append(batch(b"b", producer=Producer(1, 1))) == (1, 1, -1, False)


def test_nothing_behind_the_end_is_nothing_to_cut() -> None:
    bench = grown()
    assert not bench.truncate(60)
    assert not bench.truncate(99)
    assert bench.log.log_end_offset == 60


def test_an_epoch_without_records_does_not_outlive_a_cut_that_cuts_nothing() -> None:
    bench = LogWorkbench()
    bench.append(epoch=4)
    bench.log.epochs.assign(5, 1)
    bench.truncate(1)
    bench.append_fetched(batch(b"a", base_offset=1, leader_epoch=4))
    assert list(bench.log.epochs.entries) == [(4, 0)]


def test_a_cut_lowers_the_marks_and_the_recovery_point() -> None:
    bench = grown()
    bench.log.advance_high_watermark(60)
    bench.log.flusher.start()
    advance_log_start(bench.log, 30)
    bench.truncate(20)
    log = bench.log
    assert (log.log_start_offset, log.high_watermark, log.recovery_point, log.log_end_offset) == (20, 20, 20, 20)
    bench.append(epoch=9)
    bench.restart()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (20, 21)


def test_a_cut_never_makes_replicated_transactions_unstable() -> None:
    bench = LogWorkbench()
    bench.append(batch(b"a", producer=Producer(1, 0, transactional=True)))
    bench.mark(1, commit=True)
    bench.log.advance_high_watermark(2)
    bench.append()
    bench.truncate(2)
    assert bench.log.last_stable_offset == 2


def test_a_running_sync_does_not_count_after_a_truncation() -> None:
    slow = ManualBackground()
    log = create_log(LogEnvironment(disk=SimulatedDisk(1), background=slow), "/d", "t", 0, LogSettings(), now_ms=NOW)
    bench = LogWorkbench()
    bench.log = log
    for _ in range(4):
        bench.append()
    reported: list[int] = []
    log.flusher.when_durable(4, lambda: reported.append(4))
    bench.truncate(1)
    bench.append(epoch=1)
    slow.finish()
    assert log.recovery_point <= 1
    assert not reported, "what was waited for is gone"


def test_time_based_rolling_counts_from_the_segment_that_is_active_after_a_cut() -> None:
    bench = LogWorkbench(LogSettings(segment_ms=1000, file_delete_delay_ms=0))
    for time in (0, 10, 5000, 5001):
        bench.append(batch(b"a", timestamps=NOW + time))
    assert len(bench.log.segments) == 2
    bench.truncate(1)
    bench.append(batch(b"a", timestamps=NOW + 3000), epoch=1)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1]


@pytest.mark.parametrize("offset", [0, 7, 60, 100])
def test_starting_over_forgets_everything(offset: int) -> None:
    bench = grown()
    bench.restart()  # leaves a snapshot that belongs to no segment
    truncate_fully(bench.log, offset, now_ms=NOW)
    log = bench.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset, offset, offset)
    assert (len(log.producers), log.epochs.entries, aborted_of(log), log.size) == (0, (), [], 0)
    names = bench.disk.names(bench.directory)
    assert [name for name in names if name.endswith((".log", ".snapshot"))] == [f"{offset:020d}.log"]
    grow(bench, 3)
    check_consistent(log)
    bench.truncate(offset + 9)
    assert producers_of(bench.log)[1][2] == 3
    check_consistent(bench.log)


def test_before_the_first_segment_a_cut_starts_over() -> None:
    bench = LogWorkbench(start_offset=50)
    bench.append()
    assert bench.truncate(20)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (20, 20)


def test_files_go_after_their_delay() -> None:
    slow, disk = ManualBackground(), SimulatedDisk(1)
    settings = LogSettings(segment_bytes=200, file_delete_delay_ms=500)
    log = create_log(LogEnvironment(disk=disk, background=slow), "/d", "t", 0, settings, now_ms=NOW)
    for _ in range(9):
        log.append(batch(bytes(50)), leader_epoch=0, now_ms=NOW)
    slow.finish()
    remove_segments(log, log.segments[:2])
    assert any(name.endswith(".log.deleted") for name in disk.names("/d"))
    slow.pass_time(499)
    assert any(name.endswith(".deleted") for name in disk.names("/d"))
    slow.pass_time(1)
    assert not any(name.endswith(".deleted") for name in disk.names("/d"))


class TestLogStart:
    def test_it_moves_forward_only(self) -> None:
        bench = grown()
        bench.log.advance_high_watermark(40)
        assert advance_log_start(bench.log, 33)
        assert not advance_log_start(bench.log, 33)
        assert not advance_log_start(bench.log, 5)
        assert bench.log.log_start_offset == 33
        check_consistent(bench.log)

    def test_it_does_not_pass_the_high_watermark(self) -> None:
        bench = grown()
        bench.log.advance_high_watermark(40)
        with pytest.raises(OffsetOutOfRange):
            advance_log_start(bench.log, 41)

    @pytest.mark.parametrize("start", range(0, 61, 3))
    @pytest.mark.parametrize("clean", [True, False])
    def test_it_survives_a_start(self, start: int, clean: bool) -> None:
        bench = grown()
        bench.log.advance_high_watermark(60)
        advance_log_start(bench.log, start)
        if clean:
            bench.log.close()
        bench.reopen(clean=clean)
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (start, 60)
        check_consistent(bench.log)
        assert len(bench.values()) == len(grown().values(start))

    def test_a_log_start_beyond_the_end_empties_the_log(self) -> None:
        bench = grown()
        bench.log.close()
        bench.reopen(log_start=77)
        assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.size) == (77, 77, 0)


def fail_truncate(bench: LogWorkbench) -> None:
    bench.truncate(20)


def fail_start_over(bench: LogWorkbench) -> None:
    truncate_fully(bench.log, 99, now_ms=NOW)


@pytest.mark.parametrize("act", [fail_truncate, fail_start_over])
def test_a_failing_disk_is_reported(act: Callable[[LogWorkbench], None]) -> None:
    for calls in range(1, 60):
        bench = grown()
        bench.simulated.fail_after(calls)
        try:
            act(bench)
        except OSError:
            assert bench.failures
        bench.simulated.fail_after(FOREVER)
