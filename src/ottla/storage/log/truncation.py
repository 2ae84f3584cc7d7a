"""Truncation of a log: at its end, when a follower's records diverge from its leader's, and at its start.

Segments that leave the log are renamed first and deleted later (`file.delete.delay.ms`), so that readers can finish.

Truncated records must not come back after a crash, between or after what is written in their place. So the last segment
goes first, and the truncation is synced before anything is appended: the only time that a log waits for its disk.
"""

import logging
from collections.abc import Collection, Sequence

from ottla.protocol.errors import OffsetOutOfRange
from ottla.storage.log.partition_log import ROLL_TIME_UNKNOWN, PartitionLog
from ottla.storage.log.producer_snapshot import CorruptSnapshot, read, snapshot_name, snapshot_offset
from ottla.storage.log.segment import DELETED, Segment

logger = logging.getLogger(__name__)


def truncate_to(log: PartitionLog, offset: int, *, now_ms: int, producer_expiration_ms: int) -> bool:
    """Drop everything from an offset on; return False if there was nothing.

    A batch that includes the offset is dropped whole. The caller must checkpoint the lower recovery point before
    anything is appended. After an OSError the log must not be used any more.
    """
    if offset >= log.log_end_offset:
        # An epoch that began here without a record must not conflict with what the new leader sends.
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
    """Remove the batches from an offset on, durably; return the new log end."""
    disk = log.environment.disk
    later = log.segments[log.segment_at(offset) + 1 :]
    if later:
        remove_segments(log, later[::-1])
        disk.sync_dir(log.directory)
    active = log.active
    batch = active.find(offset)
    if batch is not None:
        active.truncate(batch.position, min(offset, batch.base_offset))
        disk.sync(active.file.number)
    # If compaction left a gap, the log ends before the offset, as the next start will find it.
    return active.next_offset()


def truncate_fully(log: PartitionLog, offset: int, *, now_ms: int) -> None:
    """Drop everything and start an empty log at an offset."""
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
    """Raise the log start, for retention, DeleteRecords or as the leader did; return False if it did not rise."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(f"log start {offset} is beyond the high watermark {log.high_watermark}")
    if offset <= log.log_start_offset:
        return False
    log.log_start_offset = offset
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start(offset)
    if log.on_start_moved is not None:
        log.on_start_moved()
    return True


def remove_segments(log: PartitionLog, segments: Sequence[Segment]) -> None:
    """Remove segments from the log; at least one must remain."""
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
    """Restore the producer state at the log end from the last snapshot and the batches after it."""
    if names is None:
        names = log.environment.disk.names(log.directory)
    end = log.log_end_offset
    # A snapshot does not include ended transactions whose markers are not replicated yet.
    ended = {first: marker for first, marker in log.producers.ended.items() if marker < end}
    start = load_snapshot(log, names, end, now_ms=now_ms, expiration_ms=expiration_ms)
    log.producers.ended.update(ended)
    for segment in log.segments[log.segment_at(start) :]:
        if segment.base_offset >= end or start >= end:
            break
        first = segment.find(start)
        if first is None:
            continue
        # Aborted transactions are already in the segment's index.
        for _, header, block, pos in segment.batches(first.position):
            log.replay(block, pos, header, index_aborted=False)
    log.log_end_offset = log.producers.map_end_offset = end
    log.producers.on_high_watermark(log.high_watermark)


def load_snapshot(log: PartitionLog, names: Collection[str], upto: int, *, now_ms: int, expiration_ms: int) -> int:
    """Load the newest valid snapshot up to an offset and remove later ones; return the offset of the snapshot.

    Without a snapshot the state is empty, at the log start.
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
            logger.warning("Removed %s, using an older snapshot or the log instead: %s", path, error)
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
    # Deleting a large file takes time.
    environment.background.later(
        log.settings.file_delete_delay_ms,
        lambda: environment.background.run(lambda: _remove(segments), _nothing, environment.on_failure),
    )


def _remove(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.remove()


def _nothing(_: None) -> None:
    """Do nothing after files were deleted."""
