"""Opening: the same state after a clean stop, missing or wrong files rebuilt, leftovers removed."""

import pytest

from ottla.storage.log.aborted import ABORTED_SUFFIX
from ottla.storage.log.epochs import EPOCHS_FILE
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import (
    CLEANED,
    DELETED,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SUFFIXES,
    SWAP,
    TIME_INDEX_SUFFIX,
    Segment,
)
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import remove_segments
from tests.support.log_workbench import (
    DIRECTORY,
    NOW,
    LogWorkbench,
    Producer,
    aborted_of,
    batch,
    check_consistent,
    producers_of,
    stored_batches,
)
from tests.support.simulated_disk import SimulatedDisk

INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def state(bench: LogWorkbench) -> dict[str, object]:
    log = bench.log
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "producers": producers_of(log),
        "open": [(first, producer.producer_id) for first, producer in log.producers.open_transactions()],
        "epochs": log.epochs.entries,
        "aborted": aborted_of(log),
        "times": [(segment.max_timestamp, segment.offset_of_max_timestamp) for segment in log.segments],
        "bases": [segment.base_offset for segment in log.segments],
        "batches": [data for _, _, _, data in stored_batches(log)],
    }


@pytest.fixture
def bench() -> LogWorkbench:
    """Three segments with everything in them: producers, epochs, transactions that are open, committed and aborted."""
    bench = LogWorkbench(LogSettings(segment_bytes=1500, index_interval_bytes=100, file_delete_delay_ms=0))
    for number in range(9):
        epoch = number // 2
        bench.append(batch(b"a", b"b", timestamps=NOW + number % 4 * 10, producer=Producer(1, number * 2)), epoch=epoch)
        bench.append(batch(bytes(150), producer=Producer(2, number, transactional=True)), epoch=epoch)
        bench.mark(2, commit=number % 3 == 0, epoch=epoch)
    bench.append(batch(b"open", producer=Producer(3, 0, transactional=True)), epoch=8)
    assert len(bench.log.segments) == 3
    return bench


def path_of(bench: LogWorkbench, number: int, suffix: str) -> str:
    return bench.log.segments[number].path(suffix)


def put(disk: SimulatedDisk, path: str, content: bytes) -> None:
    file = disk.create(path)
    disk.pwrite(file, content, 0)
    disk.close(file)


class TestCleanStop:
    def test_everything_is_as_it_was(self, bench: LogWorkbench) -> None:
        before = state(bench)
        bench.log.close()
        files = bench.simulated.listing()
        bench.reopen()
        assert state(bench) == before
        check_consistent(bench.log)
        bench.log.close()
        assert bench.simulated.listing() == files

    def test_all_is_durable(self, bench: LogWorkbench) -> None:
        before = state(bench)
        bench.log.close()
        bench.disk = bench.simulated.crash()
        bench.reopen()
        assert state(bench) == before

    def test_nothing_is_read_but_the_end(self, bench: LogWorkbench) -> None:
        bench.log.close()
        bench.simulated.remove(path_of(bench, 0, LOG_SUFFIX))
        put(bench.simulated, path_of(bench, 0, LOG_SUFFIX), b"not looked at")
        bench.reopen()

    def test_an_empty_log_is_opened_again(self) -> None:
        bench = LogWorkbench(start_offset=5)
        bench.restart()
        assert bench.log.log_end_offset == 5
        bench.restart()
        bench.append()
        bench.restart()
        assert bench.log.log_end_offset == 6

    def test_an_empty_directory_becomes_an_empty_log(self) -> None:
        bench = LogWorkbench()
        bench.simulated.remove(path_of(bench, 0, LOG_SUFFIX))
        for clean in (True, False):
            bench.reopen(clean=clean, log_start=7)
            assert (bench.log.log_start_offset, bench.log.log_end_offset) == (7, 7)

    def test_stops_leave_no_trail_of_snapshots(self, bench: LogWorkbench) -> None:
        for _ in range(5):
            bench.append(epoch=8)
            bench.restart()
        offsets = {int(name[:20]) for name in bench.disk.names(DIRECTORY) if name.endswith(".snapshot")}
        bases = {segment.base_offset for segment in bench.log.segments}
        assert offsets <= bases | {bench.log.log_end_offset}

    def test_appending_continues(self, bench: LogWorkbench) -> None:
        end = bench.log.log_end_offset
        bench.restart()
        assert bench.append(batch(b"a", producer=Producer(1, 18)), epoch=8).base_offset == end
        assert bench.append(batch(b"a", producer=Producer(1, 18)), epoch=8).duplicate
        bench.mark(3, commit=False, epoch=8)
        assert aborted_of(bench.log)[-1][:3] == (3, end - 1, end + 1)
        check_consistent(bench.log)

    def test_producers_that_expired_meanwhile_are_forgotten(self) -> None:
        bench = LogWorkbench()
        bench.append(batch(b"a", producer=Producer(1, 0)))
        bench.append(batch(b"a", producer=Producer(2, 0, transactional=True)))
        bench.log.close()
        bench.now_ms = NOW + (1 << 61)
        bench.reopen()
        assert list(producers_of(bench.log)) == [2], "but not those in a transaction"


class TestDamage:
    @pytest.mark.parametrize("suffix", INDEXES)
    @pytest.mark.parametrize("number", range(3))
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_missing_index_is_rebuilt(self, bench: LogWorkbench, number: int, suffix: str, clean: bool) -> None:
        before = state(bench)
        bench.log.close()
        files = bench.simulated.listing()
        bench.simulated.remove(path_of(bench, number, suffix))
        bench.reopen(clean=clean, recovery_point=0 if not clean else None)
        assert state(bench) == before
        check_consistent(bench.log)
        assert list(bench.log.segments[number].offsets.entries())
        bench.log.close()
        assert bench.simulated.listing() == files

    @pytest.mark.parametrize("suffix", [*INDEXES, ABORTED_SUFFIX])
    @pytest.mark.parametrize("content", [b"\xff" * 7, b"\xff" * 34 * 6])
    def test_a_corrupt_index_of_the_active_segment_is_rebuilt(
        self, bench: LogWorkbench, suffix: str, content: bytes
    ) -> None:
        before = state(bench)
        bench.log.close()
        put(bench.simulated, path_of(bench, 2, suffix), content)
        if suffix == TIME_INDEX_SUFFIX and len(content) % 12 == 0:
            return  # a whole number of entries is taken on trust
        if suffix == ABORTED_SUFFIX and len(content) < 34:
            bench.simulated.remove(path_of(bench, 2, suffix))
            return  # no whole entry, and so none
        bench.reopen()
        assert state(bench) == before
        check_consistent(bench.log)

    @pytest.mark.parametrize("content", [b"", b"\0\1garbage", b"\xff" * 100])
    def test_a_corrupt_snapshot_is_ignored(self, bench: LogWorkbench, content: bytes) -> None:
        before = state(bench)
        bench.log.close()
        for name in bench.disk.names(DIRECTORY):
            if name.endswith(".snapshot"):
                put(bench.simulated, f"{DIRECTORY}/{name}", content)
        for clean in (True, False):
            bench.reopen(clean=clean)
            assert state(bench) == before

    def test_without_snapshots_the_log_itself_tells(self, bench: LogWorkbench) -> None:
        before = state(bench)
        bench.log.close()
        for name in bench.disk.names(DIRECTORY):
            if name.endswith(".snapshot"):
                bench.simulated.remove(f"{DIRECTORY}/{name}")
        bench.reopen()
        assert state(bench) == before

    @pytest.mark.parametrize("content", [b"", b"0\n1\n", b"\xff\xfe"])
    def test_corrupt_epochs_are_taken_from_the_log(self, bench: LogWorkbench, content: bytes) -> None:
        before = state(bench)
        put(bench.simulated, f"{DIRECTORY}/{EPOCHS_FILE}", content)
        bench.reopen(clean=False, recovery_point=0)
        assert state(bench) == before

    def test_epochs_of_truncated_batches_do_not_come_back(self) -> None:
        bench = LogWorkbench()
        bench.append_fetched(batch(b"a", base_offset=0, leader_epoch=1))
        bench.append(epoch=5)
        bench.log.flusher.start()
        bench.truncate(1)
        # Two unclean elections later: the new leader has more records of the old epoch.
        bench.append_fetched(batch(b"b", base_offset=1, leader_epoch=1), batch(b"c", base_offset=2, leader_epoch=6))
        bench.reopen(clean=False, recovery_point=1)
        assert list(bench.log.epochs.entries) == [(1, 0), (6, 2)]

    @pytest.mark.parametrize("where", [0, 8, 16, 20, 30, 70])
    def test_bytes_behind_the_recovery_point_that_are_wrong_end_the_log(self, bench: LogWorkbench, where: int) -> None:
        found = list(stored_batches(bench.log))[-3]
        disk = bench.simulated
        file = disk.open(found.segment.path(LOG_SUFFIX))
        disk.pwrite(file, b"\xff\xff\xff\xff", found.position + where)
        disk.close(file)
        bench.reopen(clean=False, recovery_point=found.header.base_offset)
        assert bench.log.log_end_offset == found.header.base_offset
        check_consistent(bench.log)
        bench.append(epoch=9)
        bench.restart()
        check_consistent(bench.log)

    def test_a_batch_of_an_older_leader_behind_one_of_a_newer_ends_the_log(self, bench: LogWorkbench) -> None:
        end = bench.log.log_end_offset
        bench.log.active.append(batch(b"stale", base_offset=end, leader_epoch=7), end, end, NOW, 100)
        bench.reopen(clean=False, recovery_point=end)
        assert bench.log.log_end_offset == end
        check_consistent(bench.log)

    def test_a_batch_with_a_misplaced_epoch_ends_the_log(self, bench: LogWorkbench) -> None:
        # The epoch is not in the checksum: a sector that was torn in the header may hold anything there.
        end = bench.log.log_end_offset
        for number, epoch in enumerate((9, 1_952_710_658, 9)):
            made = batch(b"x", base_offset=end + number, leader_epoch=epoch)
            bench.log.active.append(made, end + number, end + number, NOW, 100)
        bench.reopen(clean=False, recovery_point=end)
        assert bench.log.log_end_offset == end + 1
        assert bench.log.epochs.latest == 9
        check_consistent(bench.log)
        bench.restart()
        assert bench.log.log_end_offset == end + 1

    @pytest.mark.parametrize("where", [0, 8, 16])
    @pytest.mark.parametrize("clean", [True, False])
    def test_bytes_before_the_recovery_point_that_are_wrong_are_never_dropped(
        self, bench: LogWorkbench, where: int, clean: bool
    ) -> None:
        found = list(stored_batches(bench.log))[-3]
        bench.log.close()
        size = bench.log.size
        disk = bench.simulated
        file = disk.open(found.segment.path(LOG_SUFFIX))
        disk.pwrite(file, b"\xff" * 4, found.position + where)
        disk.close(file)
        if clean:
            disk.remove(found.segment.path(OFFSET_INDEX_SUFFIX))
        with pytest.raises(CorruptLog):
            bench.reopen(clean=clean)
        assert bench.log.size == size

    def test_an_incomplete_batch_ends_the_log(self, bench: LogWorkbench) -> None:
        found = list(stored_batches(bench.log))[-1]
        for size in range(found.position + 1, found.position + found.header.size_bytes, 7):
            bench.log.segments[-1].cut(size)
            bench.reopen(clean=False, recovery_point=0)
            assert bench.log.log_end_offset == found.header.base_offset
            check_consistent(bench.log)

    def test_zeros_at_the_end_are_cut(self, bench: LogWorkbench) -> None:
        before = state(bench)
        disk = bench.simulated
        disk.truncate(bench.log.active.file.number, bench.log.active.size + 5000)
        bench.reopen(clean=False, recovery_point=0)
        assert state(bench) == before
        check_consistent(bench.log)

    def test_segments_behind_a_torn_one_are_dropped(self, bench: LogWorkbench) -> None:
        first = bench.log.segments[0]
        first.cut(first.size - 1)
        bench.reopen(clean=False, recovery_point=0)
        assert len(bench.log.segments) == 1
        check_consistent(bench.log)
        names = bench.disk.names(DIRECTORY)
        assert all(name.startswith("0" * 20) for name in names if name.endswith(SUFFIXES))

    def test_a_segment_that_overlaps_the_one_before_is_dropped(self, bench: LogWorkbench) -> None:
        end = bench.log.log_end_offset
        stale = Segment.create(bench.disk, DIRECTORY, end - 2, now_ms=NOW)
        stale.append(batch(b"stale", base_offset=end - 2, leader_epoch=8), end - 2, end - 2, NOW, 100)
        bench.reopen(clean=False, recovery_point=0)
        assert bench.log.log_end_offset == end
        assert len(bench.log.segments) == 3
        check_consistent(bench.log)

    def test_gaps_that_compaction_left_are_no_damage_where_they_are_synced(self, bench: LogWorkbench) -> None:
        bench.log.close()
        first, second = bench.log.segments[:2]
        first.truncate(list(stored_batches(bench.log))[2].position, 3)
        first.finish()
        end = bench.log.log_end_offset
        bench.reopen(clean=False, recovery_point=second.base_offset)
        assert bench.log.log_end_offset == end
        bench.reopen(clean=False, recovery_point=1)
        assert bench.log.log_end_offset == 3


class TestLeftovers:
    def test_deleted_cleaned_and_temporary_files_go(self, bench: LogWorkbench) -> None:
        before = state(bench)
        bench.log.close()
        files = bench.simulated.listing()
        for suffix in SUFFIXES:
            put(bench.simulated, f"{DIRECTORY}/{77:020d}{suffix}{DELETED}", b"x")
            put(bench.simulated, f"{DIRECTORY}/{0:020d}{suffix}{CLEANED}", b"x")
        put(bench.simulated, f"{DIRECTORY}/{EPOCHS_FILE}.tmp", b"x")
        put(bench.simulated, f"{DIRECTORY}/{5:020d}{OFFSET_INDEX_SUFFIX}", b"x")
        put(bench.simulated, f"{DIRECTORY}/{0:020d}{OFFSET_INDEX_SUFFIX}{SWAP}", b"x")
        bench.reopen()
        assert state(bench) == before
        assert bench.simulated.listing() == files

    def swapped(self, bench: LogWorkbench) -> Segment:
        """A cleaned segment in place of the first two: one batch of them is left."""
        end = bench.log.segments[2].base_offset
        cleaned = Segment.create(bench.disk, DIRECTORY, 0, now_ms=NOW, suffix=SWAP)
        data = batch(b"kept", base_offset=end - 1, leader_epoch=0)
        cleaned.append(data, end - 1, end - 1, NOW, 100)
        cleaned.finish()
        return cleaned

    def test_an_exchange_that_was_interrupted_is_completed(self, bench: LogWorkbench) -> None:
        steps = 0
        while True:
            again = LogWorkbench(disk=SimulatedDisk(1))
            self_made = rebuild(again, bench)
            cleaned = self.swapped(again)
            old = [segment.path(suffix) for segment in again.log.segments[:2] for suffix in SUFFIXES]
            renames = [(path, path + DELETED) for path in old if again.disk.exists(path)]
            order = sorted(renames, key=lambda names: (names[0][:35], SUFFIXES.index(names[0][names[0].rindex(".") :])))
            for path, new_path in order[:steps]:
                again.disk.rename(path, new_path)
            if steps > len(order):
                cleaned.rename("")
            again.reopen(clean=False)
            assert [segment.base_offset for segment in again.log.segments] == [0, self_made]
            assert again.log.segments[0].aborted.read() == []
            assert again.values(0)[0] == b"kept"
            if steps > len(order):
                break
            steps += 1

    def test_an_exchange_that_was_not_decided_is_given_up(self, bench: LogWorkbench) -> None:
        before = state(bench)
        bench.log.close()
        self.swapped(bench)
        put(bench.simulated, f"{DIRECTORY}/{0:020d}{LOG_SUFFIX}{CLEANED}", b"x")
        bench.reopen()
        assert state(bench) == before

    def test_power_loss_while_segments_are_removed_keeps_the_aborted_transactions_of_the_others(
        self, bench: LogWorkbench
    ) -> None:
        bench.log.close()
        whole = aborted_of(bench.log)
        bench.simulated.sync_dir(DIRECTORY)
        remove_segments(bench.log, bench.log.segments[:2])
        for _ in range(30):
            bench.disk = bench.simulated.imagine_crash()
            found = bench.reopen(clean=False)
            first = found.segments[0].base_offset
            assert aborted_of(found) == [entry for entry in whole if entry.last_offset >= first]
            bench.disk = bench.simulated


def rebuild(again: LogWorkbench, bench: LogWorkbench) -> int:
    """The same batches in the same segments; returns where the third begins."""
    for segment in bench.log.segments:
        if segment.base_offset:
            again.log.settings = LogSettings()
            again.log.roll(NOW)
        again.log.settings = LogSettings()
        for _, _, block, at in segment.batches():
            again.append_fetched(block[at:][: int.from_bytes(block[at + 8 : at + 12]) + 12])
    again.log.close()
    return again.log.segments[2].base_offset


class TestPreallocation:
    SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=100, preallocate=True)

    def filled(self) -> LogWorkbench:
        bench = LogWorkbench(self.SETTINGS)
        for _ in range(12):
            bench.append(batch(bytes(150)))
        return bench

    def test_a_segment_is_as_large_as_it_may_become_and_cut_when_it_is_complete(self) -> None:
        bench = self.filled()
        sizes = [bench.disk.size_of(path_of(bench, number, LOG_SUFFIX)) for number in range(2)]
        assert sizes == [bench.log.segments[0].size, 1500]
        assert bench.log.active.size < 1500
        bench.log.close()
        assert bench.disk.size_of(path_of(bench, 1, LOG_SUFFIX)) == bench.log.active.size

    def test_after_a_crash_the_torn_tail_is_truncated(self) -> None:
        bench = self.filled()
        before = state(bench)
        bench.reopen(clean=False)
        assert state(bench) == before
        check_consistent(bench.log)
