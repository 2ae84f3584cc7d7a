"""Appending: offsets, epochs, rolling, duplicates, markers, followers, and disks that fail."""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ottla.protocol.errors import InvalidTxnState, OutOfOrderSequenceNumber, RecordListTooLarge
from ottla.protocol.wire.batch import CorruptBatch, TimestampType, read_header
from ottla.protocol.wire.control import transaction_marker
from ottla.storage.log.opening import create_log
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import truncate_to
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

WIDE = 3_000_000_000
"""More than 31 bits."""


@pytest.fixture
def bench() -> LogWorkbench:
    return LogWorkbench()


class TestLeader:
    def test_batches_get_offsets_and_the_leaders_epoch(self, bench: LogWorkbench) -> None:
        assert bench.append(count=3)[:2] == (0, 2)
        assert bench.append(count=1, epoch=4)[:2] == (3, 3)
        headers = [header for _, _, header, _ in stored_batches(bench.log)]
        assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 0), (3, 4)]
        assert list(bench.log.epochs.entries) == [(0, 0), (4, 3)]
        check_consistent(bench.log)

    def test_an_epoch_never_falls(self, bench: LogWorkbench) -> None:
        bench.append(epoch=4)
        with pytest.raises(AssertionError, match="epoch 3"):
            bench.append(epoch=3)
        assert bench.log.log_end_offset == 1

    def test_the_bytes_stay_as_they_came(self, bench: LogWorkbench) -> None:
        sent = batch(b"a", b"b", timestamps=[NOW, NOW + 5])
        bench.append(bytearray(sent))
        (found,) = stored_batches(bench.log)
        assert found.data[16:] == sent[16:]

    def test_with_create_time_no_append_time_is_told(self, bench: LogWorkbench) -> None:
        assert bench.append().append_time_ms == -1

    def test_with_log_append_time_the_brokers_clock_counts(self) -> None:
        bench = LogWorkbench(LogSettings(message_timestamp_type=TimestampType.LOG_APPEND))
        appended = bench.append(batch(b"a", timestamps=5, producer=Producer(1, 0)))
        assert appended.append_time_ms == NOW
        (found,) = stored_batches(bench.log)
        assert (found.header.max_timestamp, found.header.timestamp_type) == (NOW, TimestampType.LOG_APPEND)
        bench.now_ms += 100
        again = bench.append(batch(b"a", timestamps=5, producer=Producer(1, 0)))
        assert again == (0, 0, NOW, True)

    def test_the_high_watermark_follows_and_never_passes_the_end(self, bench: LogWorkbench) -> None:
        bench.append(count=3)
        assert bench.log.advance_high_watermark(99)
        assert bench.log.high_watermark == 3
        assert not bench.log.advance_high_watermark(2)


class TestProducers:
    def test_each_of_the_last_five_batches_is_recognized(self, bench: LogWorkbench) -> None:
        for number in range(7):
            bench.append(batch(b"a", b"b", producer=Producer(1, number * 2)))
        for number in range(2, 7):
            again = bench.append(batch(b"a", b"b", producer=Producer(1, number * 2)))
            assert again == (number * 2, number * 2 + 1, NOW, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            bench.append(batch(b"a", b"b", producer=Producer(1, 2)))
        assert bench.log.log_end_offset == 14

    def test_a_gap_is_refused_and_leaves_no_trace(self, bench: LogWorkbench) -> None:
        bench.append(batch(b"a", producer=Producer(1, 0)))
        before = bench.log.active.size, producers_of(bench.log)
        with pytest.raises(OutOfOrderSequenceNumber):
            bench.append(batch(b"a", producer=Producer(1, 2)))
        assert (bench.log.active.size, producers_of(bench.log)) == before

    def test_an_open_transaction_holds_back_the_last_stable_offset_until_its_marker_is_replicated(
        self, bench: LogWorkbench
    ) -> None:
        log = bench.log
        bench.append()
        bench.append(batch(b"a", producer=Producer(1, 0, transactional=True)))
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 1
        bench.mark(1, commit=True)
        assert log.last_stable_offset == 1
        log.advance_high_watermark(3)
        assert log.last_stable_offset == 3

    def test_an_abort_goes_to_the_index_of_the_markers_segment(self, bench: LogWorkbench) -> None:
        bench.append(batch(b"a", producer=Producer(1, 0, transactional=True)))
        bench.append(batch(b"a", producer=Producer(2, 0, transactional=True)))
        bench.log.roll(NOW)
        bench.mark(1, commit=False)
        bench.mark(2, commit=True)
        assert [tuple(entry) for entry in bench.log.segments[1].aborted.read()] == [(1, 0, 2, 1)]
        assert bench.log.segments[0].aborted.read() == []

    def test_a_marker_without_a_transaction_changes_only_the_epoch(self, bench: LogWorkbench) -> None:
        bench.mark(1, commit=False, producer_epoch=3)
        assert aborted_of(bench.log) == []
        assert producers_of(bench.log)[1][1] == 3


class TestRolling:
    def test_a_segment_never_grows_beyond_its_size(self, bench: LogWorkbench) -> None:
        for number in range(60):
            bench.append(batch(bytes(number * 7)))
        assert len(bench.log.segments) > 5
        assert all(segment.size <= 1000 for segment in bench.log.segments)
        check_consistent(bench.log)

    def test_a_batch_larger_than_a_segment_is_refused(self, bench: LogWorkbench) -> None:
        with pytest.raises(RecordListTooLarge):
            bench.append(batch(bytes(1000)))
        assert bench.log.log_end_offset == 0

    def test_a_segment_closes_when_a_batch_is_later_than_the_first_by_its_time(self) -> None:
        bench = LogWorkbench(LogSettings(segment_ms=1000))
        for time in (0, 1000, 400, 1001, 1500, 2001, 2002):
            bench.append(batch(b"a", timestamps=NOW + time))
        assert [segment.base_offset for segment in bench.log.segments] == [0, 3, 6]

    def test_max_compaction_lag_closes_the_segment_in_time(self) -> None:
        bench = LogWorkbench(LogSettings(segment_ms=10_000, compact=True, max_compaction_lag_ms=1000))
        for time in (0, 1000, 1001):
            bench.append(batch(b"a", timestamps=NOW + time))
        assert [segment.base_offset for segment in bench.log.segments] == [0, 2]

    def test_the_jitter_spreads_the_closing(self) -> None:
        rolled = set()
        for seed in range(30):
            settings = LogSettings(segment_ms=1000, segment_jitter_ms=500)
            environment = LogEnvironment(disk=SimulatedDisk(1), random=Random(seed))
            log = create_log(environment, "/d", "t", 0, settings, now_ms=NOW)
            time = 0
            while len(log.segments) == 1:
                log.append(batch(b"a", timestamps=NOW + time), leader_epoch=0, now_ms=NOW)
                time += 50
            assert 500 < time <= 1100
            rolled.add(time)
        assert len(rolled) > 4

    def test_without_timestamps_the_brokers_clock_counts(self) -> None:
        bench = LogWorkbench(LogSettings(segment_ms=1000))
        for time in (0, 900, 1001):
            bench.now_ms = NOW + time
            bench.append(batch(b"a", timestamps=-1))
        assert [segment.base_offset for segment in bench.log.segments] == [0, 2]

    def test_a_full_index_closes_the_segment(self) -> None:
        bench = LogWorkbench(LogSettings(index_interval_bytes=0, segment_index_bytes=60))
        for _ in range(30):
            bench.append()
        assert len(bench.log.segments) > 3
        assert all(segment.times.size_bytes <= 60 for segment in bench.log.segments)
        assert all(segment.offsets.size_bytes <= 60 for segment in bench.log.segments)

    def test_offsets_more_than_31_bits_apart_are_in_different_segments(self) -> None:
        bench = LogWorkbench(LogSettings(index_interval_bytes=0))
        bench.append_fetched(batch(b"a", base_offset=0, leader_epoch=0))
        bench.append_fetched(
            batch(b"b", base_offset=WIDE, leader_epoch=0),
            batch(b"c", base_offset=WIDE + 1, leader_epoch=0),
            batch(b"d", base_offset=2 * WIDE, leader_epoch=0),
        )
        assert bench.values() == [b"a", b"b", b"c", b"d"]
        assert [segment.base_offset for segment in bench.log.segments] == [0, WIDE, 2 * WIDE]
        check_consistent(bench.log)
        bench.restart()
        assert bench.values(5) == [b"b", b"c", b"d"]
        bench.reopen(clean=False, recovery_point=0)
        assert bench.values() == [b"a", b"b", b"c", b"d"]

    def test_an_empty_log_takes_a_batch_from_far_behind_its_end(self) -> None:
        bench = LogWorkbench(LogSettings(index_interval_bytes=0))
        for offset in (WIDE, WIDE + 1, WIDE + 2):
            bench.append_fetched(batch(b"b", base_offset=offset, leader_epoch=0))
        assert bench.values() == [b"b"] * 3
        check_consistent(bench.log)

    def test_an_empty_segment_is_not_closed(self, bench: LogWorkbench) -> None:
        assert bench.log.roll(NOW) is bench.log.segments[0]
        assert len(bench.log.segments) == 1

    def test_new_settings_count_from_the_next_batch_on(self, bench: LogWorkbench) -> None:
        for _ in range(20):
            bench.append()
        before = len(bench.log.segments)
        bench.log.settings = replace(bench.log.settings, segment_bytes=1 << 20)
        for _ in range(50):
            bench.append()
        assert len(bench.log.segments) == before
        bench.log.settings = replace(bench.log.settings, segment_ms=10)
        bench.append(batch(b"a", timestamps=NOW + 11))
        assert len(bench.log.segments) == before + 1


class TestFollower:
    def test_offsets_and_epochs_are_the_leaders(self, bench: LogWorkbench) -> None:
        bench.append_fetched(
            batch(b"a", b"b", base_offset=4, leader_epoch=2), batch(b"c", base_offset=9, leader_epoch=3)
        )
        assert bench.values() == [b"a", b"b", b"c"]
        assert bench.log.log_end_offset == 10
        assert list(bench.log.epochs.entries) == [(2, 4), (3, 9)]
        check_consistent(bench.log)

    @pytest.mark.parametrize("tail", [1, 20, 61, 80])
    def test_an_incomplete_batch_is_left_for_the_next_fetch(self, bench: LogWorkbench, tail: int) -> None:
        whole, more = batch(b"a", base_offset=0, leader_epoch=0), batch(bytes(30), base_offset=1, leader_epoch=0)
        assert bench.append_fetched(whole, more[:tail]) == len(whole)
        assert bench.append_fetched(more) == len(more)
        assert bench.log.log_end_offset == 2
        assert bench.append_fetched(b"") == 0

    @pytest.mark.parametrize(("offset", "epoch"), [(1, 5), (3, 4)], ids=["offset", "epoch"])
    def test_descending_offsets_or_epochs_are_rejected_as_a_whole(
        self, bench: LogWorkbench, offset: int, epoch: int
    ) -> None:
        bench.append_fetched(batch(b"a", base_offset=1, leader_epoch=5))
        good = batch(b"b", base_offset=2, leader_epoch=5)
        with pytest.raises(CorruptBatch):
            bench.append_fetched(good, batch(b"c", base_offset=offset, leader_epoch=epoch))
        assert bench.log.log_end_offset == 2
        bench.append_fetched(good)
        check_consistent(bench.log)

    def test_a_flipped_bit_rejects_the_whole_file(self, bench: LogWorkbench) -> None:
        bad = batch(b"a", base_offset=1, leader_epoch=0)
        bad[-2] ^= 1
        with pytest.raises(CorruptBatch):
            bench.append_fetched(batch(b"a", base_offset=0, leader_epoch=0), bad)
        assert bench.log.size == 0

    def test_more_than_a_segment_holds_is_spread_over_several(self, bench: LogWorkbench) -> None:
        many = [batch(bytes(200), base_offset=offset, leader_epoch=0) for offset in range(20)]
        assert bench.append_fetched(*many) == sum(map(len, many))
        assert len(bench.log.segments) == 7
        assert all(segment.size <= 1000 for segment in bench.log.segments)
        check_consistent(bench.log)

    def test_a_batch_that_a_leader_with_larger_segments_took_is_taken(self, bench: LogWorkbench) -> None:
        bench.append()
        bench.append_fetched(batch(bytes(2000), base_offset=1, leader_epoch=0))
        bench.append_fetched(batch(b"a", base_offset=2, leader_epoch=0))
        assert [segment.base_offset for segment in bench.log.segments] == [0, 1, 2]

    def test_markers_end_transactions_as_on_the_leader(self, bench: LogWorkbench) -> None:
        leader = LogWorkbench()
        for producer_id in (1, 2):
            leader.append(batch(b"a", producer=Producer(producer_id, 0, transactional=True)))
        leader.mark(2, commit=False)
        leader.mark(1, commit=True)
        bench.append_fetched(*[data for _, _, _, data in stored_batches(leader.log)])
        assert producers_of(bench.log) == producers_of(leader.log)
        assert aborted_of(bench.log) == aborted_of(leader.log)

    def test_a_batch_that_does_not_fit_its_producer_leaves_the_log_as_it_was(self, bench: LogWorkbench) -> None:
        bench.append_fetched(batch(b"a", base_offset=0, leader_epoch=0, producer=Producer(1, 0, transactional=True)))
        outside = batch(b"b", base_offset=2, leader_epoch=0, producer=Producer(1, 1))
        with pytest.raises(InvalidTxnState):
            bench.append_fetched(batch(b"c", base_offset=1, leader_epoch=0), outside)
        assert bench.log.log_end_offset == 2, "the good batch before it stays"
        check_consistent(bench.log)
        bench.append_fetched(batch(b"d", base_offset=2, leader_epoch=0))
        check_consistent(bench.log)


class TestFlushing:
    @pytest.mark.parametrize("messages", [1, 3])
    def test_flush_messages_starts_a_sync(self, messages: int) -> None:
        bench = LogWorkbench(LogSettings(flush_messages=messages))
        for number in range(1, 10):
            bench.append()
            assert bench.log.recovery_point == number // messages * messages

    def test_followers_and_markers_count_too(self) -> None:
        bench = LogWorkbench(LogSettings(flush_messages=1))
        bench.append_fetched(batch(b"a", b"b", base_offset=0, leader_epoch=0))
        assert bench.log.recovery_point == 2
        bench.mark(1, commit=True)
        assert bench.log.recovery_point == 3

    def test_waiting_actions_run_after_the_sync(self) -> None:
        slow, log = slow_log()
        reported: list[str] = []
        log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
        log.flusher.when_durable(1, lambda: reported.append("first"))
        log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
        log.flusher.when_durable(2, lambda: reported.append("second"))
        slow.work.pop(0)()
        assert reported == ["first"]
        slow.finish()
        assert reported == ["first", "second"]
        log.flusher.when_durable(2, lambda: reported.append("at once"))
        assert reported[-1] == "at once"

    def test_a_roll_during_a_sync_is_synced_after_it(self) -> None:
        slow, log = slow_log()
        log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
        log.flusher.start()
        log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
        log.roll(NOW)
        slow.work.pop(0)()
        assert log.recovery_point in (1, 2)
        slow.finish()
        assert log.recovery_point == 2

    def test_names_are_synced_for_each_segment_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slow, log = slow_log()
        synced: list[str] = []
        monkeypatch.setattr(log.environment.disk, "sync_dir", synced.append)

        def flush() -> list[str]:
            synced.clear()
            log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
            log.epochs.is_dirty = False  # their file is replaced, which takes a name of its own
            log.flusher.start()
            slow.finish()
            assert log.recovery_point == log.log_end_offset
            return synced.copy()

        assert flush() == ["/d", "/"]
        assert flush() == []
        log.roll(NOW)
        assert flush() == ["/d", "/"]
        assert flush() == []
        truncate_to(log, 1, now_ms=NOW, producer_expiration_ms=FOREVER)
        assert flush() == ["/d", "/"]

    def test_a_failed_sync_is_reported_and_never_retried(self, bench: LogWorkbench) -> None:
        bench.append()
        bench.simulated.fail_after(2)
        bench.log.flusher.start()
        assert len(bench.failures) == 1
        bench.log.flusher.start()
        assert bench.log.recovery_point == 0
        with pytest.raises(OSError, match="error"):
            bench.log.close()


def slow_log() -> tuple[ManualBackground, PartitionLog]:
    slow = ManualBackground()
    environment = LogEnvironment(disk=SimulatedDisk(1), background=slow)
    return slow, create_log(environment, "/d", "t", 0, LogSettings(), now_ms=NOW)


def append_plain(bench: LogWorkbench) -> None:
    bench.append(batch(b"new", producer=Producer(5, 1)))


def append_marker(bench: LogWorkbench) -> None:
    bench.mark(6, commit=False)


def append_block(bench: LogWorkbench) -> None:
    end = bench.log.log_end_offset
    marker = transaction_marker(
        commit=False,
        producer_id=6,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOW,
        base_offset=end,
        leader_epoch=3,
    )
    bench.append_fetched(marker, batch(bytes(400), base_offset=end + 1, leader_epoch=3))


def roll(bench: LogWorkbench) -> None:
    bench.log.roll(NOW)


class TestFailingDisk:
    @pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
    @pytest.mark.parametrize("act", [append_plain, append_marker, append_block, roll])
    @pytest.mark.parametrize("full", [False, True], ids=["same segment", "next segment"])
    def test_a_failed_append_leaves_the_log_unchanged_and_is_reported(
        self, act: Callable[[LogWorkbench], None], full: bool, error: int
    ) -> None:
        for calls in range(1, 25):
            bench = LogWorkbench(LogSettings(segment_bytes=900, index_interval_bytes=0))
            bench.append(batch(bytes(500 if full else 10), producer=Producer(5, 0)))
            bench.append(batch(bytes(210 if full else 10), producer=Producer(6, 0, transactional=True)))
            before = bench.log.log_end_offset, producers_of(bench.log), aborted_of(bench.log)
            bench.simulated.fail_after(calls, error)
            try:
                act(bench)
            except OSError:
                after = bench.log.log_end_offset, producers_of(bench.log), aborted_of(bench.log)
                assert after == before
                assert bench.failures
            bench.simulated.fail_after(FOREVER)
            check_consistent(bench.log)
            if bench.log.log_end_offset == before[0]:
                act(bench)
            check_consistent(bench.log)
            found = [header.base_offset for _, _, header, _ in stored_batches(bench.log)]
            bench.reopen(clean=False)
            assert [header.base_offset for _, _, header, _ in stored_batches(bench.log)] == found

    def test_no_file_stays_open(self, bench: LogWorkbench) -> None:
        for _ in range(30):
            bench.append()
        bench.log.close()
        assert bench.simulated.open_files == 0


def test_headers_are_read_back(bench: LogWorkbench) -> None:
    bench.append(batch(b"a", producer=Producer(3, 0)))
    (found,) = stored_batches(bench.log)
    assert read_header(found.data).producer_id == 3
