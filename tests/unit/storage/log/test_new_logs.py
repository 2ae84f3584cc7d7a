"""New logs get their files in the background or on first use, with the same result."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.protocol.errors import StorageFailed
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.node_files import NodeMeta, read_topic_id
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import truncate_fully
from ottla.storage.threads import Threads
from tests.support.logs_in_memory import NOW_MS, TOPIC_ID, ManualBackground, batch, make_logs
from tests.support.simulated_disk import PowerLoss, SimulatedDisk, Survival

FILES = ["00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex"]
SOON_MS = 100


def create(logs: Logs, partition: int = 0, settings: LogSettings | None = None) -> PartitionLog:
    return logs.create("t", partition, settings or LogSettings(), topic_id=TOPIC_ID, now_ms=NOW_MS)


def append(log: PartitionLog, value: bytes = b"v") -> None:
    log.append(batch(value), leader_epoch=0, now_ms=NOW_MS)


def test_files_are_made_in_the_background_and_none_is_kept_open() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    log = create(logs, settings=LogSettings(segment_bytes=4096, preallocate=True))
    assert disk.names("/a") == []
    assert (log.size, log.log_end_offset) == (0, 0)
    background.pass_time(SOON_MS)
    assert sorted(disk.names("/a/t-0")) == [*FILES, "partition.metadata"]
    assert disk.size_of("/a/t-0/00000000000000000000.log") == 4096
    assert disk.open_files == 0


@pytest.mark.parametrize("survival", Survival)
def test_whatever_a_crash_leaves_of_the_first_append_its_topics_id_is_there(survival: Survival) -> None:
    seen = 0
    for calls in range(1, 40):
        disk = SimulatedDisk(calls)
        log = create(make_logs(disk, "/a", background=ManualBackground()))
        disk.crash_after(calls)
        with suppress(PowerLoss):
            append(log)
        found = disk.crash(survival)
        if found.exists("/a/t-0/00000000000000000000.log") and found.size_of("/a/t-0/00000000000000000000.log"):
            seen += 1
            assert read_topic_id(found, "/a/t-0") == TOPIC_ID
    assert seen or survival is Survival.NONE


def test_a_crash_before_creation_leaves_nothing_and_the_log_is_created_again() -> None:
    disk = SimulatedDisk(1)
    create(make_logs(disk, "/a", background=ManualBackground()))
    logs = make_logs(disk.crash(), "/a", background=ManualBackground())
    assert logs.get("t", 0) is None
    log = create(logs)
    append(log)
    assert log.log_end_offset == 1


def test_a_planned_log_that_is_deleted_leaves_nothing() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    create(logs)
    logs.delete("t", 0)
    append(create(logs), b"of the next topic of that name")
    background.pass_time(60_000)
    assert disk.names("/a") == ["t-0"]
    log = logs.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 1


def test_closing_rolling_and_truncating_create_the_files() -> None:
    disk = SimulatedDisk(1)
    logs = make_logs(disk, "/a", background=ManualBackground())
    stopped, rolled, emptied = (create(logs, partition) for partition in range(3))
    rolled.roll(NOW_MS, 7)
    truncate_fully(emptied, 5, now_ms=NOW_MS)
    logs.close(broker_epoch=1)
    assert stopped.log_end_offset == 0
    again = make_logs(disk, "/a")
    assert [(log.partition, log.log_end_offset) for log in again] == [(0, 0), (1, 7), (2, 5)]


def test_a_directory_in_which_logs_cannot_be_created_goes_offline() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    create(logs)
    disk.fail_after(2, errno.ENOSPC)
    background.pass_time(SOON_MS)
    with pytest.raises(StorageFailed, match="/a is offline"):
        logs.get("t", 0)


def test_renames_of_deleted_logs_are_synced_together() -> None:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/a", background=background)
    for partition in range(10):
        append(create(logs, partition))
    before = disk.synced("/a")
    for partition in range(10):
        logs.delete("t", partition)
    background.pass_time(SOON_MS)
    assert disk.synced("/a") == before + 1


def test_a_log_used_during_its_creation_is_complete(tmp_path: Path) -> None:
    later: list[Callable[[], None]] = []
    background = Threads(later.append, lambda _, action: later.append(action))
    directory = LogDirectory(str(tmp_path), NodeMeta("cluster", 1, directory_id=bytes(16)), background=background)
    logs = Logs([directory])
    made = [create(logs, partition) for partition in range(100)]
    later.pop(0)()  # a thread begins with the first of them
    for log in reversed(made):
        append(log, b"%d" % log.partition)
    background.close()
    assert directory.is_online
    for log in made:
        files = {path.name: path.stat().st_size for path in Path(log.directory).iterdir()}
        assert sorted(files) == [*FILES, "partition.metadata"]
        assert files[FILES[1]] == log.size > 0
