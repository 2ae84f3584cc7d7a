"""Cutting a log: at its end, when a follower's records turn out not to be the leader's, and at its start.

Segments that leave the log are renamed first and deleted later (`file.delete.delay.ms`), so that readers can finish.

What is cut off at the end must not come back after a crash, between or behind what is written in its place. Segments go
from the last one on, and the cut is synced before anything is appended: the one time that a log waits for its disk.
"""

import logging
from collections.abc import Collection, Sequence

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.log.partition_log import ROLL_TIME_UNKNOWN, PartitionLog
from ottla.storage.log.producer_snapshot import CorruptSnapshot, read, snapshot_name, snapshot_offset
from ottla.storage.log.segment import DELETED, Segment

logger = logging.getLogger(__name__)


def truncate_to(log: PartitionLog, offset: int, *, now_ms: int, producer_expiration_ms: int) -> bool:
    """Drop everything from an offset on; False if there is nothing there.

    A batch that holds the offset goes as a whole: the log then ends where that batch began. The caller must write the
    lowered recovery point down before anything is appended. After an OSError the log is of no use any more.
    """
    if offset >= log.log_end_offset:
        # An epoch that was begun here, without a record, must not stand in the way of what the new leader sends.
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset <= log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms=now_ms)
        return True
    try:
        _end_at(log, _cut(log, offset))
        rebuild_producers(log, now_ms=now_ms, expiration_ms=producer_expiration_ms)
    except OSError as error:
        log.environment.on_failure(error)
        raise
    return True


def _cut(log: PartitionLog, offset: int) -> int:
    """Remove the batches from an offset on, and see that it lasts; returns where the log ends now."""
    disk = log.environment.disk
    later = log.segments[log.segment_at(offset) + 1 :]
    if later:
        remove_segments(log, later[::-1])
        disk.sync_dir(log.directory)
    active = log.active
    found = active.find(offset)
    if found is not None:
        active.truncate(found.position, min(offset, found.base_offset))
        disk.sync(active.file.number)
    # Where compaction left a gap, the log ends before the offset: that is what the next start will find.
    return active.next_offset()


def truncate_fully(log: PartitionLog, offset: int, *, now_ms: int) -> None:
    """Drop everything and begin again at an offset."""
    disk = log.environment.disk
    try:
        log.ensure_files()
        _discard(log, log.segments[::-1])
        for name in disk.names(log.directory):
            if snapshot_offset(name) is not None:
                disk.remove(f"{log.directory}/{name}")
        log.segments = [Segment.create(disk, log.directory, offset, now_ms=now_ms)]
        disk.sync_dir(log.directory)
    except OSError as error:
        log.environment.on_failure(error)
        raise
    log.log_start_offset = offset
    _end_at(log, offset)
    log.high_watermark = offset
    log.epochs.clear()
    log.producers.clear(offset)


def advance_log_start(log: PartitionLog, offset: int) -> bool:
    """Let the log begin at an offset, for DeleteRecords or because the leader's does; False if it did already."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(f"log start {offset} lies beyond the high watermark {log.high_watermark}")
    if offset <= log.log_start_offset:
        return False
    log.log_start_offset = offset
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start(offset)
    if log.on_start_moved is not None:
        log.on_start_moved()
    return True


def remove_segments(log: PartitionLog, segments: Sequence[Segment]) -> None:
    """Take segments out of the log; at least one must stay."""
    if not segments:
        return
    gone = set(map(id, segments))
    log.segments = [segment for segment in log.segments if id(segment) not in gone]
    assert log.segments, "a log has at least one segment"
    log.limit_position = None
    _discard(log, segments)


def rebuild_producers(
    log: PartitionLog, *, now_ms: int, expiration_ms: int, names: Collection[str] | None = None
) -> None:
    """Restore the producers' state at the log's end from the last snapshot and the batches behind it."""
    if names is None:
        names = log.environment.disk.names(log.directory)
    end = log.log_end_offset
    # A snapshot does not have the transactions that have ended while their markers are not replicated yet.
    ended = {first: marker for first, marker in log.producers.ended.items() if marker < end}
    start = load_snapshot(log, names, end, now_ms=now_ms, expiration_ms=expiration_ms)
    log.producers.ended.update(ended)
    for segment in log.segments[log.segment_at(start) :]:
        if segment.base_offset >= end or start >= end:
            break
        first = segment.find(start)
        if first is None:
            continue
        # Aborted transactions are in the segment's index already.
        for _, header, block, at in segment.batches(first.position):
            log.replay(block, at, header, index_aborted=False)
    log.log_end_offset = log.producers.map_end_offset = end
    log.producers.on_high_watermark(log.high_watermark)


def load_snapshot(log: PartitionLog, names: Collection[str], upto: int, *, now_ms: int, expiration_ms: int) -> int:
    """Load the newest usable snapshot not beyond an offset; remove those beyond it. Returns where it was taken.

    Without one the state is empty, at the log's start.
    """
    disk = log.environment.disk
    offsets = sorted((offset for name in names if (offset := snapshot_offset(name)) is not None), reverse=True)
    for offset in offsets:
        path = f"{log.directory}/{snapshot_name(offset)}"
        if offset > upto:
            disk.remove(path)
            continue
        if offset < log.log_start_offset:
            break
        try:
            log.producers.load(read(disk, path), offset, now_ms=now_ms, expiration_ms=expiration_ms)
        except CorruptSnapshot as error:
            logger.warning("%s is not usable, an older one or the log itself must do: %s", path, error)
            disk.remove(path)
            continue
        return offset
    log.producers.clear(log.log_start_offset)
    return log.log_start_offset


def _end_at(log: PartitionLog, offset: int) -> None:
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.limit_position = None
    log.roll_above_ms = ROLL_TIME_UNKNOWN
    log.recovery_point = min(log.recovery_point, offset)
    log.flusher.on_truncated()
    log.high_watermark = min(log.high_watermark, offset)
    log.epochs.truncate_from_end(offset)


def _discard(log: PartitionLog, segments: Sequence[Segment]) -> None:
    disk = log.environment.disk
    try:
        for segment in segments:
            segment.rename(DELETED)
            snapshot = f"{log.directory}/{snapshot_name(segment.base_offset)}"
            if disk.exists(snapshot):
                disk.remove(snapshot)
    except OSError as error:
        log.environment.on_failure(error)
        raise
    environment = log.environment
    # Deleting a large file takes its time.
    environment.background.later(
        log.settings.file_delete_delay_ms,
        lambda: environment.background.run(lambda: _remove(segments), _nothing, environment.on_failure),
    )


def _remove(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.remove()


def _nothing(_: None) -> None:
    """What is left to do after files have been deleted."""
