"""The scheduler of compaction: the choice of the next log, and the handling of passes."""

from dataclasses import replace

from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.records import read_records
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.checkpoints import read_checkpoint
from ottla.storage.directories.logs import Logs
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import LogSettings
from tests.support.logs_in_memory import NOW_MS, TOPIC_ID, ManualBackground, batch, make_logs
from tests.support.simulated_disk import SimulatedDisk

COMPACTED = LogSettings(segment_bytes=400, compact=True, delete=False)


def node() -> tuple[Logs, Compaction, ManualBackground, SimulatedDisk]:
    disk, background = SimulatedDisk(1), ManualBackground()
    logs = make_logs(disk, "/d", background=background)
    return logs, Compaction(logs, memory_bytes=1 << 20), background, disk


def compacted_log(logs: Logs, topic: str, *, keys: int, count: int = 40) -> PartitionLog:
    log = logs.create(topic, 0, COMPACTED, topic_id=TOPIC_ID, now_ms=NOW_MS)
    for number in range(count):
        log.append(batch(b"%d" % number, key=b"%d" % (number % keys)), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def contents(log: PartitionLog, disk: SimulatedDisk) -> dict[bytes | None, bytes | None]:
    found: dict[bytes | None, bytes | None] = {}
    offset = log.log_start_offset
    while (part := read(log, offset, 1 << 20, Isolation.HIGH_WATERMARK).records) is not None:
        data = disk.pread(part.file.number, part.size, part.position)
        for pos, header in read_batches(data):
            found.update((record.key, record.value) for record in read_records(data, pos, header))
            offset = header.next_offset
    return found


def test_the_dirtiest_log_goes_first_and_each_is_cleaned_once() -> None:
    logs, compaction, background, disk = node()
    small, large = compacted_log(logs, "small", keys=3, count=40), compacted_log(logs, "large", keys=3, count=400)
    before = {log.topic: (contents(log, disk), log.size) for log in (small, large)}
    # Half of the small one has been cleaned before.
    logs.directories[0].cleaned_to["small", 0] = 15
    assert compaction.start_next(NOW_MS)
    assert not compaction.start_next(NOW_MS)
    background.finish()
    assert logs.directories[0].cleaned_to["large", 0] == large.active.base_offset
    assert compaction.start_next(NOW_MS)
    background.finish()
    assert not compaction.start_next(NOW_MS)
    assert compaction.passes == 2
    for log in (small, large):
        assert contents(log, disk) == before[log.topic][0]
        assert log.size < before[log.topic][1] / 2
    assert read_checkpoint(disk, "/d/cleaner-offset-checkpoint") == logs.directories[0].cleaned_to


def test_logs_that_are_not_to_be_compacted_or_not_dirty_enough_are_left_alone() -> None:
    logs, compaction, _, _ = node()
    plain = compacted_log(logs, "plain", keys=3)
    plain.settings = replace(COMPACTED, compact=False)
    patient = compacted_log(logs, "patient", keys=3)
    patient.settings = replace(COMPACTED, min_compaction_lag_ms=1000)
    assert not compaction.start_next(NOW_MS)
    assert compaction.start_next(NOW_MS + 2000)


def test_a_pass_over_a_truncated_log_changes_nothing() -> None:
    logs, compaction, background, disk = node()
    log = compacted_log(logs, "t", keys=3)
    compaction.start_next(NOW_MS)
    logs.truncate({("t", 0): 10}, now_ms=NOW_MS)
    before = contents(log, disk)
    background.finish()
    assert not compaction.is_running
    assert compaction.passes == 0
    assert contents(log, disk) == before
    assert not [name for name in disk.listing() if name.endswith((".cleaned", ".swap"))]


def test_a_log_deleted_meanwhile_stays_deleted() -> None:
    logs, compaction, background, disk = node()
    compacted_log(logs, "t", keys=3)
    compaction.start_next(NOW_MS)
    logs.delete("t", 0)
    background.finish()
    background.pass_time(60_000)
    assert not compaction.is_running
    assert [name for name in disk.names("/d") if name.startswith("t-")] == []


def test_a_corrupt_log_is_reported_and_not_compacted() -> None:
    logs, compaction, background, disk = node()
    log = compacted_log(logs, "t", keys=3)
    file = log.segments[1].file.number
    disk.pwrite(file, b"\xff" * 4, 70)
    assert compaction.start_next(NOW_MS)
    background.finish()
    assert "corrupt at byte" in compaction.uncleanable["t", 0]
    assert not compaction.start_next(NOW_MS)
    assert len(log.segments) > 3


def test_a_log_that_could_not_be_compacted_is_forgotten_with_its_topic() -> None:
    logs, compaction, background, disk = node()
    log = compacted_log(logs, "t", keys=3)
    disk.pwrite(log.segments[1].file.number, b"\xff" * 4, 70)
    compaction.start_next(NOW_MS)
    background.finish()
    assert compaction.uncleanable
    logs.delete("t", 0)
    assert not compaction.start_next(NOW_MS)
    assert not compaction.uncleanable
    compacted_log(logs, "t", keys=3)
    assert compaction.start_next(NOW_MS)


def test_a_disk_that_fails_during_a_pass_takes_the_directory_offline() -> None:
    logs, compaction, background, disk = node()
    compacted_log(logs, "t", keys=3)
    compaction.start_next(NOW_MS)
    background.work, pending = [background.work[-1]], background.work[:-1]
    disk.fail_after(3)
    background.finish()
    assert not logs.directories[0].is_online
    assert not compaction.is_running
    assert not compaction.start_next(NOW_MS)
    del pending
