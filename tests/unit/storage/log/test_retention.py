"""Retention removes the segments that are due, and no others."""

from dataclasses import replace

import pytest

from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start
from tests.support.logs_in_memory import NOW_MS, TOPIC_ID, ManualBackground, batch, make_logs
from tests.support.simulated_disk import SimulatedDisk

HOUR_MS = 3_600_000


def log_of_hours(hours: int, **settings: int | bool) -> tuple[PartitionLog, SimulatedDisk, ManualBackground]:
    """A log with a segment of one batch for each hour up to now, all of it below the high watermark."""
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/d", background=background)
    given = replace(LogSettings(segment_bytes=200, retention_ms=-1), **settings)  # type: ignore[arg-type]
    log = logs.create("t", 0, given, topic_id=TOPIC_ID, now_ms=NOW_MS)
    for hour in range(hours):
        log.append(batch(b"x" * 100, timestamp=NOW_MS - (hours - hour) * HOUR_MS), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) == hours
    return log, disk, background


def test_segments_whose_newest_record_is_too_old_are_removed() -> None:
    log, _, _ = log_of_hours(10, retention_ms=4 * HOUR_MS)
    assert remove_expired(log, NOW_MS) == 6
    assert (log.log_start_offset, log.segments[0].base_offset, log.log_end_offset) == (6, 6, 10)


def test_the_oldest_segments_are_removed_while_there_are_more_bytes_than_wanted() -> None:
    log, _, _ = log_of_hours(10)
    each = log.segments[0].size
    log.settings = replace(log.settings, retention_bytes=3 * each + 10)
    assert remove_expired(log, NOW_MS) == 6
    assert log.size == 4 * each


def test_a_fully_expired_log_is_empty_and_keeps_its_offsets() -> None:
    log, _, _ = log_of_hours(3, retention_ms=1000)
    assert remove_expired(log, NOW_MS) == 3
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size) == (3, 3, 1, 0)
    assert log.append(batch(b"y"), leader_epoch=0, now_ms=NOW_MS).base_offset == 3
    assert remove_expired(log, NOW_MS) == 0


def test_segments_above_the_high_watermark_are_kept() -> None:
    log, _, _ = log_of_hours(5, retention_ms=1000)
    log.high_watermark = 2
    assert remove_expired(log, NOW_MS) == 2
    assert log.log_start_offset == 2


def test_a_log_that_is_only_compacted_loses_no_segment_by_age_but_those_before_its_start() -> None:
    log, _, _ = log_of_hours(5, retention_ms=1000, compact=True, delete=False)
    assert remove_expired(log, NOW_MS) == 0
    advance_log_start(log, 3)
    assert remove_expired(log, NOW_MS) == 3
    assert [segment.base_offset for segment in log.segments] == [3, 4]


def test_files_are_deleted_only_after_the_delay() -> None:
    log, disk, background = log_of_hours(4, retention_ms=2 * HOUR_MS, file_delete_delay_ms=60_000)
    remove_expired(log, NOW_MS)
    deleted = [name for name in disk.listing() if name.endswith(".deleted")]
    assert any(name.endswith("00000000000000000000.log.deleted") for name in deleted)
    background.pass_time(59_999)
    assert [name for name in disk.listing() if name.endswith(".deleted")] == deleted
    background.pass_time(1)
    assert not [name for name in disk.listing() if name.endswith(".deleted")]


@pytest.mark.parametrize("hours", [1, 4])
def test_settings_that_change_while_running_are_followed(hours: int) -> None:
    log, _, _ = log_of_hours(6)
    assert remove_expired(log, NOW_MS) == 0
    log.settings = replace(log.settings, retention_ms=hours * HOUR_MS)
    assert remove_expired(log, NOW_MS) == 6 - hours
