"""The log of one partition: segments, producer state and leader epochs, kept consistent by one thread.

A leader appends one batch at a time and assigns its offsets. A follower appends what it fetched, offsets included. Both
write the bytes as they came. The offsets of a log always have this order:

    log start <= last stable <= high watermark <= log end        recovery point <= log end

Everything here runs in the thread that owns the log and never waits for a sync: the background syncs, and then raises
the recovery point. After an OSError the log is as before the call, and its directory goes offline.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ottla.protocol.errors import RecordListTooLarge
from ottla.protocol.wire.batch import (
    CONTROL_BIT,
    MAX_INT32,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    check_crc,
    check_stored,
    read_batches,
    read_header,
    write_start,
)
from ottla.protocol.wire.control import ControlType, control_type, coordinator_epoch, transaction_marker
from ottla.protocol.wire.records import read_records
from ottla.storage.disk import write_all
from ottla.storage.log.aborted import Aborted
from ottla.storage.log.epochs import LeaderEpochs
from ottla.storage.log.flushing import Flush, Flusher, sync_path
from ottla.storage.log.producer_snapshot import encode, snapshot_name
from ottla.storage.log.producers import Completed, Origin, ProducerChanges, Producers
from ottla.storage.log.scan import in_segments
from ottla.storage.log.segment import SUFFIXES, Segment
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.validation import Data, unchanged_rules, validate_batch, validate_unchanged
from ottla.storage.log_environment import LogEnvironment

ROLL_TIME_UNKNOWN = -1
"""The roll time of a log before it was computed; every batch has a later timestamp."""
_new_tuple = tuple.__new__
"""Makes a named tuple from a tuple in 81 ns; the class itself takes 121."""


class Isolation(Enum):
    """The offset up to which a reader may read."""

    LOG_END = 0
    """Followers read everything."""
    HIGH_WATERMARK = 1
    """Consumers read what all in-sync replicas have."""
    LAST_STABLE = 2
    """Consumers with read_committed read up to the first open transaction."""


class Appended(NamedTuple):
    """The result of an append. A duplicate was not written again and has the offsets of the first copy."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool = False


class PartitionLog:
    """One partition's log. `opening.open_log` opens it, `opening.create_log` creates it."""

    __slots__ = (
        "_flusher",
        "_has_append_time",
        "_rules",
        "_segment_bytes",
        "_settings",
        "directory",
        "environment",
        "epochs",
        "flush_messages",
        "high_watermark",
        "last_flush_ms",
        "limit_position",
        "log_end_offset",
        "log_start_offset",
        "on_start_moved",
        "partition",
        "producers",
        "recovery_point",
        "roll_above_ms",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        segments: list[Segment],
        producers: Producers,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None = None,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.on_start_moved: Callable[[], None] | None = None
        """Called when retention, DeleteRecords or the leader moved the log start."""
        self.last_flush_ms = 0
        self._flusher: Flusher | None = None
        self.limit_position: tuple[int, Segment, int] | None = None
        """The last limit of readers: its offset, segment and position."""
        self.roll_above_ms = ROLL_TIME_UNKNOWN
        """A batch with a later timestamp begins a new segment."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def flusher(self) -> Flusher:
        """Syncs the log. Created on first use, so that idle logs have none."""
        if self._flusher is None:
            self._flusher = Flusher(self)
        return self._flusher

    @property
    def settings(self) -> LogSettings:
        """The settings for future appends; they may be replaced at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._rules = unchanged_rules(settings)
        self._has_append_time = settings.message_timestamp_type is TimestampType.LOG_APPEND
        self.flush_messages = settings.flush_messages
        entries = settings.segment_bytes // max(settings.index_interval_bytes, 1) + 1
        index_may_fill = entries * 12 >= settings.segment_index_bytes
        self._segment_bytes = 0 if index_may_fill else settings.segment_bytes
        """Up to this size a segment takes batches without further checks."""
        self.roll_above_ms = ROLL_TIME_UNKNOWN

    @property
    def active(self) -> Segment:
        """The segment that batches are appended to."""
        return self.segments[-1]

    def ensure_files(self) -> None:
        """Create the files of a planned log."""
        if self.active.create_planned_files is not None:
            self.active.create_planned_files()

    @property
    def size(self) -> int:
        """The total size of all segments in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which all transactions have ended and their markers are replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def limit(self, isolation: Isolation) -> int:
        """Return the offset before which a reader must stop."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.log_end_offset if isolation is Isolation.LOG_END else self.last_stable_offset

    def segment_at(self, offset: int) -> int:
        """Return the index of the segment whose range includes the offset."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def append(
        self,
        data: Data,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        is_validated: bool = False,
    ) -> Appended:
        """Validate one batch, assign its offsets and write it, as the leader. This writes into the buffer's header.

        `is_validated` means that a thread has already called `validate_batch`.
        """
        if is_validated:
            header = read_header(data, 0)
        else:
            data, header = validate_batch(data, self._settings, origin, now_ms)
        return self._append(data, tuple(header), leader_epoch, now_ms, origin)

    def append_unless_heavy(self, data: Data, leader_epoch: int, now_ms: int) -> Appended:
        """Append a producer's batch like `append`, but raise TooHeavy if validating it would hold up an event loop."""
        rules = self._rules
        header = None if rules is None else validate_unchanged(data, rules, now_ms)
        if header is None:
            data, validated = validate_batch(data, self._settings, Origin.CLIENT, now_ms, brief=True)
            header = tuple(validated)
        return self._append(data, header, leader_epoch, now_ms, Origin.CLIENT)

    def _append(self, data: Data, header: tuple[int, ...], leader_epoch: int, now_ms: int, origin: Origin) -> Appended:
        """Append a validated batch, given its header's fields."""
        # By position in 49 ns; a BatchHeader with names takes 117, operator.itemgetter 76.
        _, length, _, _, _, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        epochs, producers = self.epochs, self.producers
        if producer_id >= 0:
            named = _new_tuple(BatchHeader, header)
            seen = producers.check(named, origin)
            if seen is not None:
                # As in Kafka, the append time of a duplicate is the first copy's timestamp, whatever its type.
                return Appended(seen.base_offset, seen.last_offset, seen.timestamp, duplicate=True)
        assert leader_epoch >= epochs.latest, f"{self}: epoch {leader_epoch} after {epochs.latest}"
        write_start(data, 0, base_offset, length, leader_epoch)
        self._write(data, last_offset, max_timestamp, now_ms)
        if leader_epoch != epochs.latest:
            epochs.assign(leader_epoch, base_offset)
        if producer_id >= 0:
            producers.apply(named, base_offset)
        producers.map_end_offset = end = self.log_end_offset = last_offset + 1
        if end - self.recovery_point >= self.flush_messages:
            self.flusher.start()
        append_time = max_timestamp if self._has_append_time else NO_TIMESTAMP
        return _new_tuple(Appended, (base_offset, last_offset, append_time, False))

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """Append the marker with which the transaction coordinator ends a transaction on this partition."""
        offset = self.log_end_offset
        data = transaction_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        changes = self.producers.begin(Origin.COORDINATOR)
        ended = changes.add_marker(
            read_header(data, 0),
            offset,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
            transaction_version=transaction_version,
        )
        self._write(data, offset, now_ms, now_ms)
        try:
            self._end_transaction(changes, ended)
        except OSError as error:
            self.active.truncate(self.active.size - len(data), offset)
            self.environment.on_failure(error)
            raise
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        self.producers.map_end_offset = self.log_end_offset = offset + 1
        self._flush_if_due()
        return Appended(offset, offset, now_ms)

    def append_fetched(self, data: bytes | bytearray | memoryview, *, now_ms: int) -> int:
        """Append batches fetched from the leader with their offsets; return the size of the whole batches.

        An incomplete batch at the end is left out: the next fetch returns it again. After an error, the log ends with
        the last valid batch.
        """
        taken: list[tuple[int, BatchHeader]] = []
        expected, epoch = self.log_end_offset, self.epochs.latest
        for pos, header in read_batches(data, partial_tail=True):
            check_crc(data, pos, header)
            check_stored(header)
            if header.base_offset < expected or header.leader_epoch < epoch:
                raise CorruptBatch(
                    f"{self}: fetched a batch at offset {header.base_offset} of epoch {header.leader_epoch}, "
                    f"expected offset {expected} or later of epoch {epoch} or later"
                )
            expected, epoch = header.next_offset, header.leader_epoch
            taken.append((pos, header))
        size = 0
        for group in in_segments(taken, self._settings.segment_bytes):
            self._append_group(data, group, now_ms)
            size = group[-1][0] + group[-1][1].size_bytes
        self._flush_if_due()
        return size

    def _append_group(
        self, data: bytes | bytearray | memoryview, taken: list[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        """Write consecutive batches, which fit into one segment, and replay them."""
        (start, first), (end, last) = taken[0], taken[-1]
        end += last.size_bytes
        shapes = [(header.size_bytes, header.last_offset, header.max_timestamp) for _, header in taken]
        latest = max(header.max_timestamp for _, header in taken)
        segment = self._segment_for(end - start, first.base_offset, last.last_offset, latest, now_ms)
        before, pos = segment.size, start
        try:
            segment.append_block(memoryview(data)[start:end], shapes, self._settings.index_interval_bytes)
            for pos, header in taken:
                self.replay(data, pos, header)
        except Exception as error:
            # Batches that were not replayed must not stay in the file, where the next batch will be written.
            if segment.size > before:
                segment.truncate(before + pos - start, self.log_end_offset)
                self.epochs.truncate_from_end(self.log_end_offset)
            if isinstance(error, OSError):
                self.environment.on_failure(error)
            raise

    def replay(
        self, data: bytes | bytearray | memoryview, pos: int, header: BatchHeader, *, index_aborted: bool = True
    ) -> None:
        """Apply a batch in the file to epochs, producer state and log end: as a follower, and in recovery.

        Only control batches need their bytes.
        """
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                self._replay_marker(data, pos, header, index_aborted)
            else:
                self.producers.check(header, Origin.REPLICATION)
                self.producers.apply(header, header.base_offset)
        self.producers.map_end_offset = self.log_end_offset = header.next_offset

    def _replay_marker(
        self, data: bytes | bytearray | memoryview, pos: int, header: BatchHeader, index_aborted: bool
    ) -> None:
        # Compaction may have left the header alone, for the sake of the producer's epoch.
        for record in read_records(data, pos, header):
            kind = control_type(record)
            if kind is ControlType.COMMIT or kind is ControlType.ABORT:
                changes = self.producers.begin(Origin.REPLICATION)
                ended = changes.add_marker(
                    header,
                    record.offset,
                    commit=kind is ControlType.COMMIT,
                    coordinator_epoch=coordinator_epoch(record),
                    timestamp=record.timestamp,
                )
                self._end_transaction(changes, ended, index_aborted)

    def _end_transaction(self, changes: ProducerChanges, ended: Completed | None, index_aborted: bool = True) -> None:
        """Apply a marker. The index comes first, so that nothing has changed if the disk fails."""
        if ended is not None and ended.aborted and index_aborted:
            stable = self.producers.last_stable_offset_of(ended)
            segment = self.segments[self.segment_at(ended.last_offset)]
            segment.aborted.append(Aborted(ended.producer_id, ended.first_offset, ended.last_offset, stable))
        for completed in changes.commit():
            self.producers.complete(completed)

    def _flush_if_due(self) -> None:
        if self.log_end_offset - self.recovery_point >= self.flush_messages:
            self.flusher.start()

    def _write(self, data: Data, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Append one batch to the active segment, or to a new one."""
        segment = self.segments[-1]
        if (
            segment.known_size + len(data) > self._segment_bytes
            or not 0 <= max_timestamp <= self.roll_above_ms
            or last_offset - segment.base_offset > MAX_INT32
        ):
            if len(data) > self._settings.segment_bytes:
                raise RecordListTooLarge(
                    f"a batch of {len(data)} bytes exceeds segment.bytes, {self._settings.segment_bytes}"
                )
            segment = self._segment_for(len(data), self.log_end_offset, last_offset, max_timestamp, now_ms)
        try:
            segment.append(data, self.log_end_offset, last_offset, max_timestamp, self._settings.index_interval_bytes)
        except OSError as error:
            self.environment.on_failure(error)
            raise

    def _segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """Return the segment to append to: the active one, or a new one if it is full or too old."""
        settings, segment = self._settings, self.segments[-1]
        if not segment.fits(last_offset):
            # If compaction left a gap wider than a segment's offsets, the new segment begins after the gap.
            wide = not segment.size or last_offset - self.log_end_offset > MAX_INT32
            segment = self.roll(now_ms, first_offset if wide else None)
        elif segment.size and (
            segment.size + size > settings.segment_bytes
            or segment.is_full(settings.segment_index_bytes)
            or self._is_old(segment, max_timestamp, now_ms)
        ):
            segment = self.roll(now_ms)
        if not segment.size:
            # The roll time counts from this batch, with jitter so that not all logs roll at once.
            self.roll_above_ms = ROLL_TIME_UNKNOWN
        return segment

    def _is_old(self, segment: Segment, max_timestamp: int, now_ms: int) -> bool:
        """Return whether the segment's first batch is more than `segment.ms` older than the new one."""
        settings = self._settings
        if self.roll_above_ms == ROLL_TIME_UNKNOWN:
            jitter = self.environment.random.randrange(min(settings.segment_jitter_ms, settings.max_segment_ms) + 1)
            first = segment.first_timestamp
            start = first if first >= 0 else segment.created_ms
            self.roll_above_ms = start + settings.max_segment_ms - jitter
        # As in Kafka, a batch without a timestamp never rolls a segment whose first batch has one.
        reached = max_timestamp if segment.first_timestamp >= 0 else now_ms
        return reached > self.roll_above_ms

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end, unless the active one is empty, or at the given later offset.

        The old segment is finished here and synced in the background.
        """
        old = self.segments[-1]
        if base_offset is None:
            if not old.size:
                return old
            base_offset = self.log_end_offset
        try:
            old.finish()
            self.write_snapshot()
            segment = Segment.create(
                self.environment.disk,
                self.directory,
                base_offset,
                now_ms=now_ms,
                preallocated=self._settings.preallocated_bytes,
            )
        except OSError as error:
            self.environment.on_failure(error)
            raise
        self.segments.append(segment)
        self.roll_above_ms = ROLL_TIME_UNKNOWN
        self.flusher.start()
        return segment

    def write_snapshot(self) -> None:
        """Write a snapshot of the producer state at the log end, without a sync: the checksum reveals a torn one."""
        disk = self.environment.disk
        path = f"{self.directory}/{snapshot_name(self.log_end_offset)}"
        file = disk.create(path)
        try:
            write_all(disk, file, encode(self.producers.snapshot()), 0)
        finally:
            disk.close(file)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to an offset, at most to the log end; return whether it rose."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ended:
            self.producers.on_high_watermark(offset)
        return True

    def close(self) -> None:
        """Finish and sync everything, so that the next start needs no recovery. May run in a thread."""
        if self._flusher is not None and self._flusher.failure is not None:
            # The pages that the sync failed to write may be lost, even if another sync succeeds.
            raise self._flusher.failure
        active = self.segments[-1]
        active.finish()
        if self.log_end_offset > self.log_start_offset or len(self.producers):
            self.write_snapshot()
        flush = Flush(self).run()
        for suffix in SUFFIXES[1:]:
            sync_path(self.environment.disk, active.path(suffix))
        sync_path(self.environment.disk, f"{self.directory}/{snapshot_name(self.log_end_offset)}")
        self.recovery_point = flush.end_offset
        self.release()

    def release(self) -> None:
        """Release the open files of a log that is out of service. Responses and syncs in flight keep theirs open."""
        self.flusher.close()
        for segment in self.segments:
            segment.release()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
