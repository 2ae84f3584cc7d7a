"""Creating a log, and opening an existing one: immediately after a clean stop, with recovery after a crash.

After a clean stop nothing is scanned: the log end is read from the last index entry on, and the producer state is in a
snapshot. After a crash, the segments from the recovery point on are scanned: headers only up to the recovery point,
whole batches after it. What a crash may leave (a torn tail, files of an unfinished deletion or compaction) is dropped
or completed. Synced bytes that are no longer valid raise CorruptLog.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator

from ottla.protocol.wire.batch import NO_LEADER_EPOCH, NO_PRODUCER_ID, BatchHeader
from ottla.storage.directories.node_files import write_topic_id
from ottla.storage.disk import Disk
from ottla.storage.log.epochs import CorruptEpochs, LeaderEpochs
from ottla.storage.log.index import CorruptIndex
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.producer_snapshot import snapshot_offset
from ottla.storage.log.producers import Producers
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
from ottla.storage.log.truncation import load_snapshot, rebuild_producers, truncate_fully, truncate_to
from ottla.storage.log_environment import LogEnvironment

logger = logging.getLogger(__name__)

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


def create_log(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    settings: LogSettings,
    *,
    now_ms: int,
    start_offset: int = 0,
    topic_id: bytes | None = None,
) -> PartitionLog:
    """Create an empty log in a directory of its own."""
    log = plan_log(
        environment, directory, topic, partition, settings, now_ms=now_ms, start_offset=start_offset, topic_id=topic_id
    )
    create_files(log)
    return log


def plan_log(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    settings: LogSettings,
    *,
    now_ms: int,
    start_offset: int = 0,
    topic_id: bytes | None = None,
) -> PartitionLog:
    """Return an empty log without files; `create_files` creates its directory."""
    segment = Segment.plan(environment.disk, directory, start_offset, now_ms=now_ms)
    return _log(environment, directory, topic, partition, settings, [segment], LeaderEpochs(), start_offset, topic_id)


def create_files(log: PartitionLog) -> None:
    """Create the directory and files of a planned log. Its topic id is durable when this returns.

    The log file is not kept open: many logs may be created at once, and few of them are used soon.
    """
    log.environment.disk.make_dir(log.directory)
    log.active.create_files(log.settings.preallocated_bytes)
    if log.topic_id is not None:
        write_topic_id(log.environment.disk, log.directory, log.topic_id)


def open_log(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    settings: LogSettings,
    *,
    clean: bool,
    now_ms: int,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    topic_id: bytes | None = None,
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
) -> PartitionLog:
    """Open the log in a directory. `clean` means that its last writer shut down cleanly."""
    disk = environment.disk
    names = set(disk.names(directory))
    if any(name.endswith((DELETED, CLEANED, SWAP, ".tmp")) for name in names):
        _finish_interrupted_changes(disk, directory, names)
        names = set(disk.names(directory))
    segments = _segments(disk, directory, names, now_ms)
    is_new = not segments
    segments = segments or [Segment.create(disk, directory, log_start_offset, now_ms=now_ms)]
    start = max(log_start_offset, segments[0].base_offset)
    epochs = _read_epochs(disk, directory)
    log = _log(environment, directory, topic, partition, settings, segments, epochs, start, topic_id)
    log.recovery_point = recovery_point
    clean = is_new or (clean and _find_end(log, names))
    if not clean:
        _recover(log, names, now_ms=now_ms, expiration_ms=producer_expiration_ms)
    if start > log.log_end_offset:
        logger.warning(
            "%s ends at %d, before its start %d; it is emptied and starts there", log, log.log_end_offset, start
        )
        truncate_fully(log, start, now_ms=now_ms)
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    if clean:
        log.recovery_point = log.log_end_offset
        rebuild_producers(log, now_ms=now_ms, expiration_ms=producer_expiration_ms, names=names)
    _remove_stray_snapshots(log)
    log.high_watermark = log.log_start_offset
    return log


def _log(
    environment: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    settings: LogSettings,
    segments: list[Segment],
    epochs: LeaderEpochs,
    start_offset: int,
    topic_id: bytes | None,
) -> PartitionLog:
    return PartitionLog(
        environment,
        directory,
        topic,
        partition,
        settings,
        segments=segments,
        producers=Producers(start_offset),
        epochs=epochs,
        log_start_offset=start_offset,
        log_end_offset=segments[-1].base_offset,
        recovery_point=start_offset,
        topic_id=topic_id,
    )


def _segments(disk: Disk, directory: str, names: set[str], now_ms: int) -> list[Segment]:
    """Return the segments, one for each log file. Index files without a log file are removed."""
    bases = sorted(int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
    prefixes = {f"{base:020d}" for base in bases}
    for name in names:
        if name.endswith(SUFFIXES) and name[:20].isdigit() and name[:20] not in prefixes:
            logger.warning("Removed %s/%s, which belongs to no segment", directory, name)
            disk.remove(f"{directory}/{name}")
    return [Segment(disk, directory, base, created_ms=now_ms) for base in bases]


def _read_epochs(disk: Disk, directory: str) -> LeaderEpochs:
    try:
        return LeaderEpochs.read(disk, directory)
    except CorruptEpochs as error:
        # Every batch has its epoch, so only epochs without a batch are lost.
        logger.warning("%s: %s; they are read from the log instead", directory, error)
        return LeaderEpochs()


def _find_end(log: PartitionLog, names: set[str]) -> bool:
    """Find the log end; return False if the log is not what a clean stop leaves."""
    interval = log.settings.index_interval_bytes
    try:
        for segment in log.segments[:-1]:
            prefix = f"{segment.base_offset:020d}"
            if prefix + OFFSET_INDEX_SUFFIX not in names or prefix + TIME_INDEX_SUFFIX not in names:
                logger.warning("%s has no index; it is rebuilt", segment)
                segment.reindex(interval)
                segment.sync()  # recovery after a crash skips this segment
        log.active.check()
        log.log_end_offset = log.active.next_offset()
    except (CorruptIndex, CorruptLog) as error:
        logger.warning("%s, in spite of a clean shutdown; recovering the log", error)
        return False
    return True


def _recover(log: PartitionLog, names: set[str], *, now_ms: int, expiration_ms: int) -> None:
    """Scan the segments from the recovery point on, keep what is valid and drop the rest."""
    # If the recovery point is a segment's base offset, the indexes of the segment before it may not have been synced.
    first = log.segment_at(log.recovery_point - 1)
    segments = log.segments
    log.log_end_offset = segments[first].base_offset
    # Later entries may be of truncated batches. The remaining batches have their epochs.
    log.epochs.truncate_from_end(log.recovery_point)
    # Newer snapshots were not synced with the log. They are written again segment by segment.
    taken_at = load_snapshot(log, names, log.log_end_offset, now_ms=now_ms, expiration_ms=expiration_ms)
    if taken_at < log.log_end_offset:
        rebuild_producers(log, now_ms=now_ms, expiration_ms=expiration_ms)
    epoch = fallen_to = NO_LEADER_EPOCH
    for number in range(first, len(segments)):
        log.segments = segments[: number + 1]  # later segments may be wrong
        try:
            epoch = _recover_segment(log, segments[number], epoch)
        except _TornLog as torn:
            logger.warning("%s; the log is truncated there", torn)
            log.segments = segments
            _cut(log, number, torn.position)
            fallen_to = torn.epoch
            break
        if number + 1 < len(segments):
            segments[number].finish()
            log.write_snapshot()
    log.producers.map_end_offset = log.log_end_offset
    log.recovery_point = min(log.recovery_point, log.log_end_offset)
    if fallen_to != NO_LEADER_EPOCH:
        _drop_misplaced_epoch(log, fallen_to, now_ms=now_ms, expiration_ms=expiration_ms)


class _TornLog(Exception):
    """A segment, and everything that was synced, is valid up to a position; the rest was lost in a crash.

    `epoch` is the epoch of the next batch if it is lower than the last one's.
    """

    def __init__(self, why: str, position: int, epoch: int) -> None:
        super().__init__(why)
        self.position, self.epoch = position, epoch


def _drop_misplaced_epoch(log: PartitionLog, epoch: int, *, now_ms: int, expiration_ms: int) -> None:
    """Truncate the log before a batch whose epoch is too high for the batches after it.

    The epoch is not in the checksum. If the epochs before and after a batch are in order without it, the batch is the
    wrong one: its header is damaged, or it had been truncated before the crash.
    """
    entries = log.epochs.entries
    misplaced = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
    if 0 < misplaced < len(entries) and entries[misplaced].start_offset >= log.recovery_point:
        start = entries[misplaced].start_offset
        logger.warning(
            "%s: epoch %d at offset %d is out of order; the log is truncated there", log, *entries[misplaced]
        )
        truncate_to(log, start, now_ms=now_ms, producer_expiration_ms=expiration_ms)


def _cut(log: PartitionLog, number: int, position: int) -> None:
    """Drop the end of a segment and all later segments, last one first, so that another crash leaves no gap."""
    disk, segment = log.environment.disk, log.segments[number]
    # A segment that does not begin where the previous one ends is dropped as a whole.
    keep = number + 1 if segment.base_offset == log.log_end_offset or position else number
    for lost in reversed(log.segments[keep:]):
        lost.remove()
    disk.sync_dir(log.directory)
    if keep > number:
        segment.cut(position)
        disk.sync(segment.file.number)
    del log.segments[keep:]


def _recover_segment(log: PartitionLog, segment: Segment, epoch: int) -> int:
    """Replay the batches of a segment and rebuild its indexes; return the last epoch. Raise _TornLog at a torn end."""
    interval = log.settings.index_interval_bytes
    segment.clear_indexes()
    segment.aborted.reset()
    expected = log.log_end_offset
    position = end = 0
    fallen_to = NO_LEADER_EPOCH
    try:
        if segment.base_offset != expected and not _may_follow(log, segment):
            raise CorruptLog(segment.path(LOG_SUFFIX), 0, f"the segment before it ends at {expected}")
        expected = log.log_end_offset = segment.base_offset
        for position, header, block, pos in _verified_batches(segment, log.recovery_point):
            # Base offset and leader epoch are not in the checksum: after a crash they may be anything. Offsets must
            # rise, and epochs must not fall, unless a crash has undone a truncation.
            if (
                header.base_offset < expected
                or not segment.fits(header.last_offset)
                or epoch > header.leader_epoch >= 0
            ):
                fallen_to = header.leader_epoch if epoch > header.leader_epoch else NO_LEADER_EPOCH
                what = f"offset {header.base_offset} of epoch {header.leader_epoch} follows {expected - 1} of {epoch}"
                raise CorruptLog(segment.path(LOG_SUFFIX), position, what)
            segment.index_batch(position, header.size_bytes, header.last_offset, header.max_timestamp, interval)
            if header.last_offset < log.log_start_offset:
                header = header._replace(producer_id=NO_PRODUCER_ID)  # forgotten, as in `rebuild_producers`
            log.replay(block, pos, header)
            expected, epoch = header.next_offset, header.leader_epoch
            end = position + header.size_bytes
    except CorruptLog as error:
        if expected < log.recovery_point:
            raise
        raise _TornLog(str(error), end, fallen_to) from error
    return epoch


def _may_follow(log: PartitionLog, segment: Segment) -> bool:
    """Return whether a segment may begin after the end of the one before it.

    Kafka's compaction leaves such gaps, even after the recovery point, which Kafka writes once a minute. Otherwise the
    end of the segment before was lost in the crash, unless the offsets are too far apart for one segment.
    """
    synced = segment.base_offset <= log.recovery_point
    gap = log.settings.compact or synced or not log.segments[-2].fits(segment.base_offset)
    return segment.base_offset > log.log_end_offset and gap


def _verified_batches(segment: Segment, verified_to: int) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Yield the batches of a segment. Checksums are verified from offset `verified_to` on."""
    position = 0
    for position, header in segment.headers():
        if header.base_offset >= verified_to:
            break
        yield position, header, segment.bytes_at(position, header.size_bytes) if header.is_control else b"", 0
        position += header.size_bytes
    yield from segment.batches(position)


def _remove_stray_snapshots(log: PartitionLog) -> None:
    """Remove the snapshots of earlier stops: those that belong neither to a segment nor to the log end."""
    kept = {log.log_end_offset, *(segment.base_offset for segment in log.segments)}
    for name in log.environment.disk.names(log.directory):
        offset = snapshot_offset(name)
        if offset is not None and offset not in kept:
            log.environment.disk.remove(f"{log.directory}/{name}")


def _finish_interrupted_changes(disk: Disk, directory: str, names: set[str]) -> None:
    """Finish what a crash interrupted: deletions, and the replacement of segments with cleaned ones."""
    unfinished = [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX + CLEANED)]
    # Void swap files are removed before the `.cleaned` files that make them void: another crash may happen here.
    for name in sorted(names, key=lambda name: not name.endswith(SWAP)):
        base = name[:20]
        # If one of several cleaned segments was not finished, no later one counts.
        useless_swap = name.endswith(SWAP) and (
            f"{base}{LOG_SUFFIX}{SWAP}" not in names or any(int(base) >= least for least in unfinished)
        )
        if useless_swap or name.endswith((DELETED, CLEANED, ".tmp")):
            disk.remove(f"{directory}/{name}")
    left = set(disk.names(directory))
    for name in sorted(left):
        if name.endswith(LOG_SUFFIX + SWAP):
            _complete_swap(disk, directory, int(name[:20]), left)
    # Recovery rebuilds the indexes: after another crash the old ones must not reappear.
    disk.sync_dir(directory)


def _complete_swap(disk: Disk, directory: str, base_offset: int, names: set[str]) -> None:
    segment = Segment(disk, directory, base_offset, suffix=SWAP)
    end = segment.next_offset()
    for name in names:
        if name.endswith(LOG_SUFFIX) and base_offset <= int(name[:20]) < end:
            Segment(disk, directory, int(name[:20])).remove()
    if f"{base_offset:020d}{OFFSET_INDEX_SUFFIX}{SWAP}" in names:
        # No new file has its final name yet: files of that name are left from the old segment.
        Segment(disk, directory, base_offset).remove()
    segment.rename("")
    logger.info("%s was cleaned before the last stop; it now replaces its old segments", segment)
