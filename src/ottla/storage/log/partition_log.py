"""The log of one partition: segments, producer state and epochs, kept in step by one thread.

A leader appends one batch at a time and gives it its offsets; a follower appends what it fetched, offsets included.
Both write the bytes as they came. Offsets of a log, in the order in which they never cross:

    log start <= last stable <= high watermark <= log end        recovery point <= log end

Everything here runs in the thread that owns the log and never waits for a disk to sync: that is the background's work,
and the recovery point rises when it is done. After an OSError the log is as before the call; its directory is told.
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
from ottla.storage.log.producers import Changes, Completed, Origin, Producers
from ottla.storage.log.scan import in_segments
from ottla.storage.log.segment import SUFFIXES, Segment
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.validate import Data, accept, confirm, rules_of
from ottla.storage.log_environment import LogEnvironment

NEVER_ASKED = -1
"""The time from which on a log rolls, while nobody has asked for it: no batch is so early."""
_new_tuple = tuple.__new__
"""Makes a named tuple of a tuple in half the time that its own constructor takes."""


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = 0
    """Followers: everything."""
    HIGH_WATERMARK = 1
    """Consumers: what all in-sync replicas have."""
    LAST_STABLE = 2
    """read_committed: what lies before the first open transaction."""


class Appended(NamedTuple):
    """What became of a batch. A duplicate was not written again; the offsets are those it got the first time."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool = False


class PartitionLog:
    """One partition's log. Opened by `opening.open_log`, made by `opening.create_log`."""

    __slots__ = (
        "_flusher",
        "_has_append_time",
        "_rules",
        "_segment_bytes",
        "_settings",
        "directory",
        "epochs",
        "flush_messages",
        "high_watermark",
        "home",
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
        home: LogEnvironment,
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
        self.home = home
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
        self.on_start_moved: Callable[[], None] | None = None  # by retention, a deletion, or the leader
        self.last_flush_ms = 0
        self._flusher: Flusher | None = None
        self.limit_position: tuple[int, Segment, int] | None = None
        """Where readers last had to stop: an offset, its segment and the position in it."""
        self.roll_above_ms = NEVER_ASKED  # batches that are later than this begin a new segment
        self.settings = settings

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def flusher(self) -> Flusher:
        """What syncs the log; a log that nobody writes to has none."""
        if self._flusher is None:
            self._flusher = Flusher(self)
        return self._flusher

    @property
    def settings(self) -> LogSettings:
        """What is written from now on follows these; they may be replaced at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._rules = rules_of(settings)
        self._has_append_time = settings.message_timestamp_type is TimestampType.LOG_APPEND
        self.flush_messages = settings.flush_messages
        entries = settings.segment_bytes // max(settings.index_interval_bytes, 1) + 1
        index_may_fill = entries * 12 >= settings.segment_index_bytes
        self._segment_bytes = 0 if index_may_fill else settings.segment_bytes
        """Up to this size a segment takes batches without a closer look."""
        self.roll_above_ms = NEVER_ASKED

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    def make(self) -> None:
        """See that a new log has its files, which it may be given only when somebody needs them."""
        if self.active.make is not None:
            self.active.make()

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The end of what is decided: all transactions below have been committed or aborted, and replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def limit(self, isolation: Isolation) -> int:
        """The offset before which a reader must stop."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.log_end_offset if isolation is Isolation.LOG_END else self.last_stable_offset

    def segment_at(self, offset: int) -> int:
        """The number of the segment whose range holds the offset."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def append(
        self,
        data: Data,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        accepted: bool = False,
    ) -> Appended:
        """Append one batch as the leader: check it, give it offsets, write it. The buffer's header is written to.

        `accepted` says that `validate.accept` has been at work on it already, in a thread.
        """
        if accepted:
            header = read_header(data, 0)
        else:
            data, header = accept(data, self._settings, origin, now_ms)
        return self._append(data, tuple(header), leader_epoch, now_ms, origin)

    def append_produced(self, data: Data, leader_epoch: int, now_ms: int) -> Appended:
        """Append one batch of a producer as the leader, in fewer steps; TooHeavy if it would hold up an event loop."""
        rules = self._rules
        header = None if rules is None else confirm(data, rules, now_ms)
        if header is None:
            data, accepted = accept(data, self._settings, Origin.CLIENT, now_ms, brief=True)
            header = tuple(accepted)
        return self._append(data, header, leader_epoch, now_ms, Origin.CLIENT)

    def _append(self, data: Data, header: tuple[int, ...], leader_epoch: int, now_ms: int, origin: Origin) -> Appended:
        """Append a batch that was looked at; its header is given as fields, as they are read fastest."""
        _, length, _, _, _, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        epochs, producers = self.epochs, self.producers
        if producer_id >= 0:
            named = _new_tuple(BatchHeader, header)
            seen = producers.check(named, origin)
            if seen is not None:
                # Whosever clock it is from: Kafka tells the first copy's timestamp as its time of appending.
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
        """End a producer's transaction on this partition, as the transaction coordinator asked."""
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
            self.home.on_failure(error)
            raise
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        self.producers.map_end_offset = self.log_end_offset = offset + 1
        self._flush_if_due()
        return Appended(offset, offset, now_ms)

    def append_fetched(self, data: bytes | bytearray | memoryview, *, now_ms: int) -> int:
        """Append what was fetched from the leader, offsets kept; return how many bytes were whole batches.

        A batch that is cut off at the end is left out: the next fetch brings it again. After an error the log ends with
        the last batch that went well.
        """
        taken: list[tuple[int, BatchHeader]] = []
        expected, epoch = self.log_end_offset, self.epochs.latest
        for pos, header in read_batches(data, partial_tail=True):
            check_crc(data, pos, header)
            check_stored(header)
            if header.base_offset < expected or header.leader_epoch < epoch:
                raise CorruptBatch(
                    f"{self}: fetched a batch at offset {header.base_offset} of epoch {header.leader_epoch} "
                    f"where offset {expected} of epoch {epoch} or later was due"
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
        """Write neighbouring batches, which fit into one segment, and take them in."""
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
            # What was not taken in must not stay in the file, where the next batch gets its place.
            if segment.size > before:
                segment.truncate(before + pos - start, self.log_end_offset)
                self.epochs.truncate_from_end(self.log_end_offset)
            if isinstance(error, OSError):
                self.home.on_failure(error)
            raise

    def replay(
        self, data: bytes | bytearray | memoryview, pos: int, header: BatchHeader, *, index_aborted: bool = True
    ) -> None:
        """Take a batch that is in the file into epochs, producer state and log end: as a follower, and in recovery.

        Bytes are needed of control batches only.
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

    def _end_transaction(self, changes: Changes, ended: Completed | None, index_aborted: bool = True) -> None:
        """Take in a marker. The index comes first: when the disk fails, nothing has changed."""
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
        """Append one batch to the file of the segment that takes it."""
        segment = self.segments[-1]
        if (
            segment.known_size + len(data) > self._segment_bytes
            or not 0 <= max_timestamp <= self.roll_above_ms
            or last_offset - segment.base_offset > MAX_INT32
        ):
            if len(data) > self._settings.segment_bytes:
                raise RecordListTooLarge(f"{len(data)} bytes are more than a segment's {self._settings.segment_bytes}")
            segment = self._segment_for(len(data), self.log_end_offset, last_offset, max_timestamp, now_ms)
        try:
            segment.append(data, self.log_end_offset, last_offset, max_timestamp, self._settings.index_interval_bytes)
        except OSError as error:
            self.home.on_failure(error)
            raise

    def _segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment to append to: the active one, or a new one when that is full or old."""
        settings, segment = self._settings, self.segments[-1]
        if not segment.fits(last_offset):
            # Compaction may have left a gap that is as wide: then the new segment begins behind it.
            wide = not segment.size or last_offset - self.log_end_offset > MAX_INT32
            segment = self.roll(now_ms, first_offset if wide else None)
        elif segment.size and (
            segment.size + size > settings.segment_bytes
            or segment.is_full(settings.segment_index_bytes)
            or self._is_old(segment, max_timestamp, now_ms)
        ):
            segment = self.roll(now_ms)
        if not segment.size:
            # The roll time counts from this batch, with a spread so that not all logs roll at once.
            self.roll_above_ms = NEVER_ASKED
        return segment

    def _is_old(self, segment: Segment, max_timestamp: int, now_ms: int) -> bool:
        """Whether the segment's first batch is older than a new one by more than `segment.ms`."""
        settings = self._settings
        if self.roll_above_ms == NEVER_ASKED:
            jitter = self.home.random.randrange(min(settings.segment_jitter_ms, settings.max_segment_ms) + 1)
            first = segment.first_timestamp
            start = first if first >= 0 else segment.created_ms
            self.roll_above_ms = start + settings.max_segment_ms - jitter
        reached = max_timestamp if segment.first_timestamp >= 0 and max_timestamp >= 0 else now_ms
        return reached > self.roll_above_ms

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log's end, unless the active one is empty, or at an offset behind it.

        The old one is completed and becomes durable in the background.
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
                self.home.disk,
                self.directory,
                base_offset,
                now_ms=now_ms,
                preallocated=self._settings.preallocated_bytes,
            )
        except OSError as error:
            self.home.on_failure(error)
            raise
        self.segments.append(segment)
        self.roll_above_ms = NEVER_ASKED
        self.flusher.start()
        return segment

    def write_snapshot(self) -> None:
        """Write the producers' state at the log's end, unsynced: one that a crash cuts short fails its checksum."""
        disk = self.home.disk
        path = f"{self.directory}/{snapshot_name(self.log_end_offset)}"
        file = disk.create(path)
        try:
            write_all(disk, file, encode(self.producers.snapshot()), 0)
        finally:
            disk.close(file)

    def advance_high_watermark(self, offset: int) -> bool:
        """Let consumers see what lies below an offset; False if they could already."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ended:
            self.producers.on_high_watermark(offset)
        return True

    def close(self) -> None:
        """Make everything durable and complete, so that the next start need not look at it. May run in a thread."""
        if self._flusher is not None and self._flusher.failure is not None:
            raise self._flusher.failure  # what it did not write may be lost, though another sync would succeed
        active = self.segments[-1]
        active.finish()
        if self.log_end_offset > self.log_start_offset or len(self.producers):
            self.write_snapshot()
        flush = Flush(self).run()
        for suffix in SUFFIXES[1:]:
            sync_path(self.home.disk, active.path(suffix))
        sync_path(self.home.disk, f"{self.directory}/{snapshot_name(self.log_end_offset)}")
        self.recovery_point = flush.end_offset
        self.release()

    def release(self) -> None:
        """Let go of the open files: the log is out of service. Answers and syncs under way keep theirs open."""
        self.flusher.end()
        for segment in self.segments:
            segment.release()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
