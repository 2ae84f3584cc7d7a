"""A node's logs in several directories: create, find, move, delete, close, and failing disks."""

import errno
from dataclasses import replace

import pytest

from ottla.protocol.errors import LogDirNotFound, StorageFailed
from ottla.storage.directories.checkpoints import read_checkpoint
from ottla.storage.directories.logs import DuplicateLog, Logs
from ottla.storage.disk import write_all
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import advance_log_start, truncate_to
from tests.support.logs_in_memory import NOW_MS, TOPIC_ID, ManualBackground, batch, make_logs
from tests.support.simulated_disk import SimulatedDisk

SETTINGS = LogSettings(segment_bytes=2000)


def create(logs: Logs, topic: str, partition: int, *, directory_id: bytes | None = None) -> PartitionLog:
    return logs.create(topic, partition, SETTINGS, topic_id=TOPIC_ID, now_ms=NOW_MS, directory_id=directory_id)


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append(batch(b"%d" % number * 20), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


def test_a_new_log_goes_to_the_directory_with_the_fewest() -> None:
    logs = make_logs(SimulatedDisk(1), "/a", "/b", "/c")
    for partition in range(6):
        create(logs, "t", partition)
    assert [len(directory.logs) for directory in logs.directories] == [2, 2, 2]


def test_a_cordoned_directory_takes_new_logs_only_if_all_are() -> None:
    logs = make_logs(SimulatedDisk(1), "/a", "/b", "/c")
    one, other, third = logs.directories
    one.is_cordoned = other.is_cordoned = True
    for partition in range(3):
        create(logs, "t", partition)
    assert len(third.logs) == 3
    third.is_cordoned = True
    assert create(logs, "t", 3).directory == "/a/t-3"


def test_a_new_log_uses_the_given_directory() -> None:
    logs = make_logs(SimulatedDisk(1), "/a", "/b")
    log = create(logs, "t", 0, directory_id=bytes(15) + b"\x02")
    assert log.directory == "/b/t-0"
    with pytest.raises(LogDirNotFound, match=r"id 0{30}07"):
        create(logs, "t", 1, directory_id=bytes(15) + b"\x07")


def test_after_a_clean_stop_everything_is_as_it_was() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", "/b")
    for partition in range(4):
        log = create(logs, "t", partition)
        fill(log, 30 + partition)
        advance_log_start(log, 5)
    logs.close(broker_epoch=17)

    again = make_logs(disk, "/a", "/b", settings=SETTINGS)
    assert [directory.broker_epoch for directory in again.directories] == [17, 17]
    for partition in range(4):
        found = again.get("t", partition)
        assert found is not None
        assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (
            5,
            30 + partition,
            30 + partition,
        )
        assert found.recovery_point == 30 + partition
        assert found.topic_id == TOPIC_ID


def test_the_mark_of_a_clean_stop_is_gone_once_the_node_runs_again() -> None:
    disk = SimulatedDisk(1)
    make_logs(disk, "/a").close(broker_epoch=1)
    make_logs(disk, "/a")
    assert make_logs(disk, "/a").directories[0].broker_epoch is None


def test_a_deleted_log_is_removed_immediately_and_its_files_after_the_delay() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, "t", 0)
    fill(log, 3)
    logs.delete("t", 0)
    assert logs.get("t", 0) is None
    assert log.directory.endswith("-delete")
    assert disk.exists(log.directory)
    again = create(logs, "t", 0)
    assert again.log_end_offset == 0
    background.pass_time(60_000)
    assert disk.names("/a") == ["t-0"]


@pytest.mark.parametrize("is_flushed", [False, True], ids=["idle", "while it is synced"])
def test_a_deleted_log_has_no_file_open(is_flushed: bool) -> None:
    """A file that somebody has open takes room on the disk, whatever it is called."""
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, "t", 0)  # referred to until the end, as others may do for long
    fill(log, 300)
    assert len(log.segments) > 1
    if is_flushed:
        log.flusher.start()
        log.flusher.start()
    logs.delete("t", 0)
    assert disk.open_files > 0
    background.pass_time(60_000)
    background.finish()
    assert disk.open_files == 0
    assert log.log_end_offset == 300


def test_a_stray_log_has_no_open_files() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, "t", 0)
    fill(log, 3)
    logs.directories[0].mark_stray(log)
    background.finish()
    assert disk.open_files == 0
    assert disk.names(log.directory)


def test_deletions_that_a_stop_interrupted_are_finished_at_the_next_start() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", background=ManualBackground())
    fill(create(logs, "t", 0), 3)
    logs.delete("t", 0)
    assert len(disk.names("/a")) == 1
    background = ManualBackground()
    make_logs(disk, "/a", background=background)
    background.pass_time(0)
    assert disk.names("/a") == []


def test_a_log_moves_to_another_directory_by_a_future_log() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", "/b", background=background)
    log = create(logs, "t", 0, directory_id=bytes(15) + b"\x01")
    fill(log, 10)
    future = logs.create_future(log, bytes(15) + b"\x02", now_ms=NOW_MS)
    assert future.directory.startswith("/b/t-0.")
    assert future.directory.endswith("-future")
    found = read(log, 0, 1 << 20, Isolation.LOG_END).records
    assert found is not None
    future.append_fetched(disk.pread(found.file.number, found.size, found.position), now_ms=NOW_MS)
    moved = logs.promote_future("t", 0)
    assert (moved.directory, moved.log_end_offset, moved.high_watermark) == ("/b/t-0", 10, 10)
    assert logs.get("t", 0) is moved
    background.pass_time(60_000)
    assert disk.names("/a") == []
    fill(moved, 100)
    assert len(moved.segments) > 1


def test_a_failing_disk_takes_only_its_directory_offline() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", "/b")
    first, second = create(logs, "t", 0), create(logs, "t", 1)
    fill(first, 1)
    disk.fail_after(1, errno.EIO)
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        first.append(batch(b"lost"), leader_epoch=0, now_ms=NOW_MS)
    assert first.log_end_offset == 1
    with pytest.raises(StorageFailed, match="/a is offline"):
        logs.get("t", 0)
    assert list(logs) == [second]
    fill(second, 2)
    assert create(logs, "t", 2).directory == "/b/t-2"
    logs.close(broker_epoch=1)
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert disk.exists("/b/.kafka_cleanshutdown")


def test_without_any_directory_that_works_nothing_can_be_made() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a")
    logs.directories[0].fail(OSError(errno.EIO, "broken"))
    with pytest.raises(StorageFailed, match="all log directories"):
        create(logs, "t", 0)


def test_a_directory_that_cannot_be_read_is_offline_from_the_start() -> None:
    disk = SimulatedDisk(1)
    fill(create(make_logs(disk, "/a"), "t", 0), 3)
    logs = make_logs(disk, "/a", "/b", load=False)
    disk.fail_after(1, errno.EIO)
    logs.load(lambda _: SETTINGS, NOW_MS)
    assert [directory.is_online for directory in logs.directories] == [False, True]


def test_a_partition_in_two_directories_is_an_error_that_names_both() -> None:
    disk = SimulatedDisk(1)
    create(make_logs(disk, "/a"), "t", 0)
    create(make_logs(disk, "/b"), "t", 0)
    with pytest.raises(DuplicateLog, match="t-0 is in both /a and /b"):
        make_logs(disk, "/a", "/b")


def test_a_log_with_corrupt_synced_bytes_is_offline_and_others_are_served() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a")
    fill(create(logs, "bad", 0), 10)
    fill(create(logs, "good", 0), 10)
    for log in logs:
        log.flusher.start()
    logs.directories[0].checkpoint_recovery_points(wait=True)
    file = disk.open("/a/bad-0/00000000000000000000.log")
    write_all(disk, file, b"\xff" * 16, 200)
    again = make_logs(disk, "/a")
    with pytest.raises(StorageFailed, match="corrupt at byte"):
        again.get("bad", 0)
    good = again.get("good", 0)
    assert good is not None
    assert good.log_end_offset == 10


def test_a_truncation_lowers_the_recovery_point_on_disk_before_anything_else_is_written() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a")
    log = create(logs, "t", 0)
    fill(log, 50)
    log.flusher.start()
    logs.checkpoint()
    assert read_checkpoint(disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 50}
    logs.truncate({("t", 0): 20}, now_ms=NOW_MS)
    assert log.log_end_offset == 20
    assert read_checkpoint(disk.imagine_crash(), "/a/recovery-point-offset-checkpoint") == {("t", 0): 20}


def test_a_checkpoint_made_before_a_truncation_does_not_overwrite_the_one_after_it() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, "t", 0)
    fill(log, 20)
    log.flusher.start()
    background.finish()
    logs.checkpoint()
    logs.truncate({("t", 0): 5}, now_ms=NOW_MS)
    background.finish()
    assert read_checkpoint(disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 5}


def test_a_sync_under_way_during_a_truncation_proves_nothing() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    log = create(make_logs(disk, "/a", background=background), "t", 0)
    fill(log, 20)
    log.flusher.start()
    sync = background.work.pop()
    truncate_to(log, 5, now_ms=NOW_MS, producer_expiration_ms=1 << 40)
    sync()
    fill(log, 20)
    assert log.recovery_point <= 5


def test_logs_are_synced_by_time_and_by_number_of_records() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, "t", 0)
    log.settings = replace(SETTINGS, flush_ms=1000)
    fill(log, 3)
    logs.flush_by_time(NOW_MS)
    background.finish()
    assert log.recovery_point == 3
    fill(log, 1)
    logs.flush_by_time(NOW_MS + 999)
    background.finish()
    assert log.recovery_point == 3
    logs.flush_by_time(NOW_MS + 1000)
    background.finish()
    assert log.recovery_point == 4
    log.settings = replace(SETTINGS, flush_messages=5)
    fill(log, 4)
    background.finish()
    assert log.recovery_point == 4
    fill(log, 1)
    background.finish()
    assert log.recovery_point == 9


def test_actions_run_once_their_offset_is_durable() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    log = create(make_logs(disk, "/a", background=background), "t", 0)
    called: list[str] = []
    fill(log, 2)
    log.flusher.when_durable(2, lambda: called.append("first"))
    fill(log, 2)
    log.flusher.when_durable(4, lambda: called.append("second"))
    background.work.pop(0)()
    assert called == ["first"]
    background.finish()
    assert called == ["first", "second"]
    log.flusher.when_durable(3, lambda: called.append("third"))
    assert called == ["first", "second", "third"]
