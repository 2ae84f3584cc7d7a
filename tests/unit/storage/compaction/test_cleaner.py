"""Compaction keeps what it must, removes what it may, and survives a crash at any moment."""

import errno
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.compaction.cleanable import find_cleanable_range
from ottla.storage.compaction.cleaner import Cleaned, CleaningAborted, clean, group_segments, install, plan
from ottla.storage.compaction.offset_map import capacity_of
from ottla.storage.disk import SystemDisk
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.producers import Origin
from ottla.storage.log.reading import read
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import CLEANED, DELETED, SWAP, Segment
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import truncate_to
from ottla.storage.log_environment import LogEnvironment
from tests.support.simulated_disk import PowerLoss, SimulatedDisk
from tests.unit.storage.compaction.histories import (
    DELETE_RETENTION_MS,
    DIRECTORY,
    NEVER_MS,
    SETTINGS,
    START_MS,
    History,
    consume_committed,
    producer_states,
    reopened,
)
from tests.unit.storage.compaction.naive_compaction import Pass, batches_of, committed_state, compact, without_ends

MEMORY_BYTES = 1 << 20
TINY_BYTES = 1_000
"""Room for four or five keys."""


def compacted(
    log: PartitionLog, first_dirty: int | None = None, *, now_ms: int = START_MS, memory_bytes: int = MEMORY_BYTES
) -> int | None:
    """One whole pass; None if there was nothing to do."""
    planned = plan(log, first_dirty_offset=first_dirty, now_ms=now_ms)
    if planned is None:
        return None
    cleaned = clean(planned, memory_bytes=memory_bytes)
    end = install(log, cleaned)
    cleaned.settle()
    assert end is not None
    return end


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], at_ms: int = START_MS, **options: int | bool) -> int:
    """Append one batch; returns its base offset."""
    made = [Record(number, at_ms, key, value) for number, (key, value) in enumerate(pairs)]
    appended = log.append(build_batch(made, **options), leader_epoch=0, now_ms=at_ms)  # type: ignore[arg-type]
    return appended.base_offset


def mark(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    log.append_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=0,
        transaction_version=0,
        leader_epoch=0,
        now_ms=START_MS,
    )


def seal(log: PartitionLog) -> None:
    """Let everything so far be cleanable."""
    log.advance_high_watermark(log.log_end_offset)
    log.roll(START_MS)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for b in batches_of(log) if not b.control for r in b.records]


def new_log(**changes: float) -> PartitionLog:
    log = History(1).log
    log.settings = replace(SETTINGS, segment_bytes=1 << 20, **changes)  # type: ignore[arg-type]
    return log


def leftovers(log: PartitionLog) -> list[str]:
    return [name for name in log.environment.disk.names(log.directory) if name.endswith((CLEANED, SWAP, DELETED))]


# What stays


def test_the_newest_record_of_a_key_stays_where_it_was() -> None:
    log = new_log()
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", b"3"))
    seal(log)
    put(log, (b"b", b"4"))
    assert compacted(log) == 3
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"3"), (3, b"b", b"4")]
    assert put(log, (b"c", b"5")) == 4


def test_an_older_clean_record_goes_when_a_dirty_one_comes() -> None:
    log = new_log()
    put(log, (b"a", b"1"), (b"b", b"2"))
    seal(log)
    first_dirty = compacted(log)
    put(log, (b"a", b"3"))
    seal(log)
    assert compacted(log, first_dirty) == 3
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"3")]


def test_a_tombstone_is_removed_after_its_delete_horizon() -> None:
    log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"2"))
    seal(log)
    first_dirty = compacted(log, now_ms=START_MS)
    assert batches_of(log)[0].horizon == START_MS + DELETE_RETENTION_MS
    for wait_ms, expected in ((DELETE_RETENTION_MS - 1, [1, 2]), (DELETE_RETENTION_MS, [2])):
        put(log, (b"c", b"%d" % wait_ms))
        seal(log)
        first_dirty = compacted(log, first_dirty, now_ms=START_MS + wait_ms)
        assert [offset for offset, *_ in contents(log)][: len(expected)] == expected
    assert committed_state(batches_of(log), log.log_end_offset)[b"b"] == b"2"


def test_an_aborted_record_does_not_shadow_a_committed_one() -> None:
    log = new_log()
    put(log, (b"a", b"kept"))
    put(log, (b"a", b"aborted"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    seal(log)
    mark(log, 9, commit=False)
    seal(log)
    compacted(log)
    assert contents(log) == [(0, b"a", b"kept")]
    assert consume_committed(log) == [(0, b"a", b"kept")]


def test_nothing_from_the_first_open_transaction_on_is_touched() -> None:
    log = new_log()
    put(log, (b"a", b"1"))
    seal(log)
    put(log, (b"a", b"2"))
    put(log, (b"x", b"?"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    seal(log)
    put(log, (b"a", b"3"))
    seal(log)
    before = batches_of(log)
    assert compacted(log) == 1
    assert batches_of(log) == before


def test_a_marker_outlives_the_records_of_its_transaction_by_the_retention_of_deletes() -> None:
    log = new_log()
    put(log, (b"a", b"1"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    mark(log, 9, commit=True)
    put(log, (b"a", b"2"), producer_id=9, producer_epoch=0, base_sequence=1, transactional=True)
    mark(log, 9, commit=False)
    put(log, (b"a", b"3"), producer_id=9, producer_epoch=0, base_sequence=2)
    seal(log)
    first_dirty, now_ms = compacted(log), START_MS
    assert [batch.base_offset for batch in batches_of(log)] == [1, 3, 4]
    assert [entry.last_offset for entry in log.segments[0].aborted.read()] == [3]
    for expected in ([1, 3, 4], [4]):
        put(log, (b"z", b"1"))
        seal(log)
        now_ms += DELETE_RETENTION_MS
        first_dirty = compacted(log, first_dirty, now_ms=now_ms)
        assert [b.base_offset for b in batches_of(log)][: len(expected)] == expected
        assert log.segments[0].aborted.read() == []


def test_a_key_like_that_of_a_marker_does_not_remove_the_marker() -> None:
    log = new_log()
    put(log, (b"a", b"1"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    mark(log, 9, commit=True)
    put(log, (b"\0\0\0\1", b"not a marker"))
    seal(log)
    compacted(log)
    assert [batch.control for batch in batches_of(log)] == [False, True, False]


def test_a_producer_continues_after_its_last_batch_was_emptied() -> None:
    log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=3, base_sequence=40)
    put(log, (b"a", b"3"))
    seal(log)
    compacted(log)
    empty = batches_of(log)[0]
    assert (empty.base_offset, empty.last_offset, empty.producer, empty.records) == (0, 1, (7, 3, 40), ())
    disk = log.environment.disk
    for name in disk.names(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    log = reopened(log.environment, DIRECTORY, clean=False, recovery_point=0)
    assert producer_states(log) == {7: (3, 41, 1, None)}
    repeated = [Record(0, START_MS, b"a", b"1"), Record(1, START_MS, b"a", b"2")]
    again = build_batch(repeated, producer_id=7, producer_epoch=3, base_sequence=40)
    assert log.append(again, leader_epoch=0, now_ms=START_MS).duplicate
    assert put(log, (b"b", b"4"), producer_id=7, producer_epoch=3, base_sequence=42) == 3


def test_records_without_a_key_go() -> None:
    log = new_log()
    log.settings = replace(log.settings, compact=False)
    log.append(build_batch([Record(0, START_MS, None, b"?")]), leader_epoch=0, now_ms=START_MS)
    log.settings = replace(log.settings, compact=True)
    put(log, (b"a", b"1"))
    seal(log)
    compacted(log)
    assert contents(log) == [(1, b"a", b"1")]


def test_small_neighbours_become_one_segment() -> None:
    log = new_log()
    for number in range(6):
        put(log, (b"%d" % number, bytes(100)))
        seal(log)
    size = log.segments[0].size
    log.settings = replace(log.settings, segment_bytes=3 * size)
    compacted(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert [offset for offset, *_ in contents(log)] == list(range(6))
    assert sorted(name for name in log.environment.disk.names(DIRECTORY) if name.endswith(".snapshot")) == [
        "00000000000000000003.snapshot",
        "00000000000000000006.snapshot",
    ]


def test_groups_stay_within_31_bits_of_offsets_and_the_size_of_an_index() -> None:
    disk = SimulatedDisk(1)
    disk.make_dir("/d")

    def segment(base: int, size: int) -> Segment:
        return Segment(disk, "/d", base, size=size)

    def bases(*segments: Segment, **changes: int) -> list[list[int]]:
        settings = LogSettings(**changes)  # type: ignore[arg-type]
        return [[s.base_offset for s in group] for group in group_segments(segments, settings, 1 << 33)]

    far = [segment(0, 10), segment(10, 10), segment(1 << 31, 10), segment((1 << 31) + 5, 0)]
    assert bases(*far) == [[0, 10], [1 << 31, (1 << 31) + 5]]
    assert bases(segment(0, 10), segment(1 << 32, 0)) == [[0, 1 << 32]]
    indexed = [segment(base, 10) for base in (0, 1, 2)]
    for each in indexed:
        each.offsets.append(0, 0)
        each.times.append(5, 0)
    assert bases(*indexed, segment_index_bytes=24) == [[0, 1], [2]]


# How far a pass goes


def test_a_full_map_ends_the_pass_and_the_next_one_continues_there() -> None:
    log = new_log()
    for number in range(40):
        put(log, (b"%d" % (number % 20), b"v%d" % number))
    seal(log)
    first_dirty, ends = None, list[int]()
    while (end := compacted(log, first_dirty, memory_bytes=TINY_BYTES)) is not None:
        ends.append(end)
        first_dirty = end
        assert find_cleanable_range(log, end, START_MS).ratio > 0 or end == 40
    capacity = int(capacity_of(TINY_BYTES) * 0.9)
    assert ends == [*range(capacity, 40, capacity), 40]
    # A key that returns behind the end of a map is found by the pass whose map has it.
    assert contents(log) == [(number, b"%d" % (number % 20), b"v%d" % number) for number in range(20, 40)]


def test_a_batch_with_more_keys_than_the_map_holds_is_cleaned_in_parts() -> None:
    log = new_log()
    put(log, *((b"%d" % (number % 12), b"%d" % number) for number in range(24)))
    seal(log)
    first_dirty: int | None = None
    for _ in range(24):
        end = compacted(log, first_dirty, memory_bytes=TINY_BYTES)
        if end is None:
            break
        assert first_dirty is None or end > first_dirty
        first_dirty = end
    assert first_dirty == 24
    assert [offset for offset, *_ in contents(log)] == list(range(12, 24))


def test_segments_with_young_records_wait() -> None:
    log = new_log(min_compaction_lag_ms=1_000)
    for at_ms in (START_MS, START_MS + 500, START_MS + 2_000):
        put(log, (b"a", b"1"), at_ms=at_ms)
        seal(log)
    assert find_cleanable_range(log, None, START_MS + 900).end_offset == 0
    assert plan(log, first_dirty_offset=None, now_ms=START_MS + 900) is None
    assert find_cleanable_range(log, None, START_MS + 1_000).end_offset == 1
    assert find_cleanable_range(log, None, START_MS + 2_999).end_offset == 2
    assert find_cleanable_range(log, None, START_MS + 3_000).end_offset == 3


def test_a_log_is_due_when_it_is_dirty_enough_or_has_waited_too_long() -> None:
    log = new_log(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=10_000)
    for _ in range(4):
        put(log, (b"a", b"1"))
        seal(log)
    size = log.segments[0].size
    assert find_cleanable_range(log, None, START_MS)[:4] == (0, 4, 0, 4 * size)
    assert find_cleanable_range(log, 3, START_MS).ratio == 0.25
    assert not find_cleanable_range(log, 3, START_MS + 10_000).is_due(log.settings)
    assert find_cleanable_range(log, 3, START_MS + 10_001).overdue_ms == 1
    assert find_cleanable_range(log, 3, START_MS + 10_001).is_due(log.settings)
    assert not find_cleanable_range(log, 2, START_MS).is_due(log.settings)
    assert find_cleanable_range(log, 1, START_MS).is_due(log.settings)
    assert find_cleanable_range(log, 4, START_MS + 99_999).ratio == 0
    assert not find_cleanable_range(log, 4, START_MS + 99_999).is_due(log.settings)


def test_a_checkpoint_outside_the_log_counts_for_nothing() -> None:
    log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"))
    seal(log)
    put(log, (b"a", b"3"))
    log.log_start_offset = 1
    for checkpoint, first_dirty in ((None, 1), (0, 1), (2, 2), (3, 3), (4, 1)):
        assert find_cleanable_range(log, checkpoint, START_MS).first_dirty_offset == first_dirty


def test_an_empty_log_has_nothing_to_clean() -> None:
    log = new_log()
    assert plan(log, first_dirty_offset=None, now_ms=START_MS) is None
    assert find_cleanable_range(log, None, START_MS).ratio == 0.0


# What may come between


def started(log: PartitionLog) -> Cleaned:
    planned = plan(log, first_dirty_offset=None, now_ms=START_MS)
    assert planned is not None
    return clean(planned, memory_bytes=MEMORY_BYTES)


def filled(segments: int = 4) -> PartitionLog:
    log = new_log()
    for number in range(segments):
        put(log, (b"a", b"%d" % number), (b"%d" % number, b""))
        seal(log)
    return log


def test_a_log_that_was_cut_meanwhile_stays_as_it_is() -> None:
    log = filled()
    cleaned = started(log)
    truncate_to(log, 5, now_ms=START_MS, producer_expiration_ms=NEVER_MS)
    before = batches_of(log)
    assert install(log, cleaned) is None
    assert batches_of(log) == before
    assert leftovers(log) == []


def test_a_log_whose_old_segments_expired_is_not_replaced() -> None:
    log = filled()
    cleaned = started(log)
    log.settings = replace(log.settings, delete=True, retention_bytes=log.segments[0].size * 3)
    assert remove_expired(log, START_MS) == 1
    assert install(log, cleaned) is None
    assert leftovers(log) == []
    assert compacted(log, cleaned.first_dirty_offset - 1) == 8


def test_records_appended_during_a_pass_are_kept() -> None:
    log = filled()
    cleaned = started(log)
    put(log, (b"a", b"new"))
    seal(log)
    put(log, (b"a", b"newer"))
    assert install(log, cleaned) == 8
    assert contents(log)[-3:] == [(7, b"3", b""), (8, b"a", b"new"), (9, b"a", b"newer")]


def test_a_reader_under_way_keeps_the_bytes_that_it_was_promised() -> None:
    log = filled()
    fetched = read(log, 0, 1 << 20, Isolation.HIGH_WATERMARK).records
    assert fetched is not None
    disk = log.environment.disk
    before = disk.pread(fetched.file.number, fetched.size, fetched.position)
    compacted(log)
    assert disk.pread(fetched.file.number, fetched.size, fetched.position) == before


def test_a_pass_can_be_cancelled() -> None:
    log = filled()
    planned = plan(log, first_dirty_offset=None, now_ms=START_MS)
    assert planned is not None
    with pytest.raises(CleaningAborted):
        clean(planned, memory_bytes=MEMORY_BYTES, throttle=lambda _: planned.cancel())
    assert leftovers(log) == []
    cleaned = started(log)
    cleaned.plan.cancel()
    assert install(log, cleaned) is None
    assert leftovers(log) == []


def test_a_removed_directory_ends_the_pass() -> None:
    log = filled()
    planned = plan(log, first_dirty_offset=None, now_ms=START_MS)
    assert planned is not None
    disk = log.environment.disk
    disk.rename(DIRECTORY, f"{DIRECTORY}-delete")
    with pytest.raises(CleaningAborted):
        clean(planned, memory_bytes=MEMORY_BYTES)


@pytest.mark.parametrize("position", [30, 70])
def test_corrupt_bytes_are_reported_and_leave_no_files(position: int) -> None:
    log = filled()
    log.environment.disk.pwrite(log.segments[1].file.number, b"\xff", position)
    with pytest.raises(CorruptLog):
        started(log)
    assert leftovers(log) == []


def test_a_full_disk_leaves_no_files() -> None:
    for calls in range(1, 60):
        log = filled()
        disk = log.environment.disk
        assert isinstance(disk, SimulatedDisk)
        planned = plan(log, first_dirty_offset=None, now_ms=START_MS)
        assert planned is not None
        disk.fail_after(calls, errno.ENOSPC)
        try:
            cleaned = clean(planned, memory_bytes=MEMORY_BYTES)
        except OSError:
            assert leftovers(log) == []
            disk.fail_after(1 << 30)
            assert compacted(log) == 8
            continue
        disk.fail_after(1 << 30)
        assert install(log, cleaned) == 8
        return
    pytest.fail("the pass made more calls than expected")


def test_the_throttle_hears_of_all_bytes_read_and_written() -> None:
    log = filled()
    counted: list[int] = []
    planned = plan(log, first_dirty_offset=None, now_ms=START_MS)
    assert planned is not None
    cleaned = clean(planned, memory_bytes=MEMORY_BYTES, throttle=counted.append)
    assert sum(counted) == cleaned.mapped_bytes + cleaned.read_bytes + cleaned.written_bytes
    assert cleaned.mapped_bytes == cleaned.read_bytes == sum(segment.size for segment in log.segments)
    assert cleaned.written_bytes == sum(segment.size for segment in cleaned.segments)


def test_a_log_is_cleaned_in_a_thread_while_it_grows(tmp_path: Path) -> None:
    history = History(
        5, environment=LogEnvironment(disk=SystemDisk(), random=Random(5)), directory=str(tmp_path / "topic-0")
    )
    history.live(300)
    log = history.log
    planned = plan(log, first_dirty_offset=None, now_ms=history.now_ms)
    assert planned is not None
    results: list[Cleaned] = []
    thread = threading.Thread(target=lambda: results.append(clean(planned, memory_bytes=MEMORY_BYTES)))
    thread.start()
    history.live(200)
    thread.join()
    before = consume_committed(log)
    end = install(log, results[0])
    assert end == planned.cleanable.end_offset
    after = consume_committed(log)
    assert {key: value for _, key, value in after if value} == {key: value for _, key, value in before if value}
    history.reopen(clean=True)
    assert consume_committed(history.log) == after


# Random histories, compared with the book


def check_pass(history: History, first_dirty: int | None, memory_bytes: int) -> int | None:
    """One pass; what it leaves is what the book says, and readers see no difference."""
    log, now_ms = history.log, history.now_ms
    before, stable = batches_of(log), log.last_stable_offset
    cleanable = find_cleanable_range(log, first_dirty, now_ms)
    circumstances = Pass(
        first_dirty=cleanable.first_dirty_offset,
        end=cleanable.end_offset,
        bases=[segment.base_offset for segment in log.segments],
        capacity=int(capacity_of(memory_bytes) * 0.9),
        now_ms=now_ms,
        delete_retention_ms=DELETE_RETENTION_MS,
        last_entries=log.producers.last_entries(),
    )
    end = compacted(log, first_dirty, now_ms=now_ms, memory_bytes=memory_bytes)
    if end is None:
        return first_dirty
    after = batches_of(log)
    expected, covered = compact(before, circumstances)
    assert end == covered
    assert without_ends(after, cleanable.end_offset) == without_ends(expected, cleanable.end_offset)
    assert committed_state(after, stable) == committed_state(before, stable)
    assert [b for b in after if b.last_offset >= cleanable.end_offset] == [
        b for b in before if b.last_offset >= cleanable.end_offset
    ]
    assert end <= cleanable.end_offset <= stable
    read_back = {key: value for _, key, value in consume_committed(log)}
    assert {key: value for key, value in read_back.items() if value is not None} == committed_state(before, stable)
    for segment in log.segments[:-1]:
        segment.check()
        assert segment.size <= history.settings.segment_bytes * 2
    return end


@pytest.mark.parametrize("seed", range(50))
def test_a_pass_keeps_what_the_rules_say(seed: int) -> None:
    history = History(seed)
    first_dirty: int | None = None
    for round_number in range(6):
        history.live(history.random.randint(5, 40))
        if round_number == 5:
            history.finish()
        memory_bytes = history.random.choice((TINY_BYTES, 3_000, MEMORY_BYTES))
        first_dirty = check_pass(history, first_dirty, memory_bytes)
        states, left = producer_states(history.log), batches_of(history.log)
        log = history.reopen(clean=history.random.random() < 0.5)
        assert batches_of(log) == left
        assert producer_states(log) == states
        history.now_ms += history.random.choice((0, 300, 1_500))
    # With no cleanable left all keys are unique, and what is deleted is gone in the end.
    for _ in range(3):
        history.now_ms += 2 * DELETE_RETENTION_MS
        put(history.log, (b"the last", b""), at_ms=history.now_ms)
        history.finish()
        while (end := check_pass(history, first_dirty, MEMORY_BYTES)) != first_dirty:
            first_dirty = end
    keys = [key for _, key, _ in contents(history.log)]
    assert sorted(map(str, keys)) == sorted({str(key) for key in keys})
    assert all(value is not None for _, _, value in contents(history.log))


@pytest.mark.parametrize("seed", range(15))
def test_producers_are_the_same_when_the_log_is_all_there_is(seed: int) -> None:
    history = History(seed)
    history.live(80)
    history.finish()
    check_pass(history, None, MEMORY_BYTES)
    log, states = history.log, producer_states(history.log)
    disk = history.environment.disk
    for name in disk.names(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    found = producer_states(
        reopened(history.environment, DIRECTORY, clean=False, recovery_point=0, now_ms=history.now_ms)
    )
    with_data = {key: state for key, state in states.items() if state[2] is not None}
    assert {key: state for key, state in found.items() if key in with_data} == with_data
    assert log.log_end_offset > 0


# Crashes


def grown(seed: int, fate: int) -> History:
    """The same log for a seed, in several segments, all of it durable; what a crash does to it is the fate's matter."""
    history = History(seed, environment=LogEnvironment(disk=SimulatedDisk(fate), random=Random(seed)))
    history.live(30)
    history.finish()
    history.log.settings = history.settings = replace(SETTINGS, segment_bytes=400)
    disk = history.environment.disk
    for name in disk.names(DIRECTORY):
        file = disk.open(f"{DIRECTORY}/{name}")
        disk.sync(file)
        disk.close(file)
    for directory in ("/", "/logs", DIRECTORY):
        disk.sync_dir(directory)
    history.now_ms += 10 * DELETE_RETENTION_MS
    return history


def everything_in(log: PartitionLog) -> object:
    """What the segments hold, and what readers of committed records get of it."""
    log.advance_high_watermark(log.log_end_offset)
    return batches_of(log), consume_committed(log)


def crashed(disk: SimulatedDisk, *, by_power: bool) -> SimulatedDisk:
    return disk.crash() if by_power else disk.process_crash()


def check_either(disk: SimulatedDisk, history: History, outcomes: Sequence[object], *, recovery_point: int) -> int:
    """Open what a crash left: it is one of the outcomes, and goes on from there. Returns which."""
    environment = LogEnvironment(disk=disk, random=Random(1))
    log = reopened(environment, DIRECTORY, clean=False, recovery_point=recovery_point, now_ms=history.now_ms)
    assert leftovers(log) == []
    found = outcomes.index(everything_in(log))
    assert producer_states(log) == producer_states(history.log)
    assert put(log, (b"next", b"")) == history.log.log_end_offset
    seal(log)
    assert compacted(log, now_ms=history.now_ms) == log.log_end_offset
    return found


@pytest.mark.parametrize("by_power", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_leaves_the_log_as_it_was_or_cleaned(seed: int, by_power: bool) -> None:
    history = grown(seed, 0)
    outcomes = [everything_in(history.log)]
    assert compacted(history.log, now_ms=history.now_ms) == history.log.log_end_offset
    outcomes.append(everything_in(history.log))
    seen = set()
    for calls in range(1, 500):
        history = grown(seed, calls)
        disk, log = history.environment.disk, history.log
        assert isinstance(disk, SimulatedDisk)
        end = log.log_end_offset
        assert log.recovery_point == end
        disk.crash_after(calls)
        try:
            compacted(log, now_ms=history.now_ms)
        except PowerLoss:
            left = crashed(disk, by_power=by_power)
            again = Random(calls).randint(1, 40)
            left.crash_after(again)
            try:
                reopened(LogEnvironment(disk=left), DIRECTORY, clean=False, recovery_point=end, now_ms=history.now_ms)
                left.crash_after(1 << 40)
            except PowerLoss:
                left = crashed(left, by_power=by_power)
            seen.add(check_either(left, history, outcomes, recovery_point=end))
            continue
        assert seen == {0, 1}
        return
    pytest.fail("the pass made more calls than expected")


def test_a_settled_pass_is_durable() -> None:
    history = grown(3, 3)
    compacted(history.log, now_ms=history.now_ms)
    expected = batches_of(history.log)
    disk = history.environment.disk
    assert isinstance(disk, SimulatedDisk)
    environment = LogEnvironment(disk=disk.crash())
    log = reopened(
        environment, DIRECTORY, clean=False, recovery_point=history.log.log_end_offset, now_ms=history.now_ms
    )
    assert batches_of(log) == expected


def test_coordinators_may_append_to_a_cleaned_log() -> None:
    log = filled()
    compacted(log)
    made = build_batch([Record(0, START_MS, b"group", b"offset")])
    assert log.append(made, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR).base_offset == 8
