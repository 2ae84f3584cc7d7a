"""Compaction of a log in three steps, so that the thread that owns it never waits.

    plan      the owner's thread    decides what to clean: cheap, and changes nothing
    clean     any thread            reads the old segments twice and writes new ones, `.cleaned`, with their indexes
    install   the owner's thread    replaces the old segments with the new ones, if the log still has them

The rules are those of Kafka 4.3.1; `rules` decides what remains of a batch. A pass first maps the keys of the dirty
part to their newest offsets, as far as memory allows. Then it rewrites everything from the log start up to there.

A crash leaves the log either as it was or cleaned. New segments count once all of them are named `.swap`. The last one
is renamed first, so a remaining `.cleaned` file makes all of them void (`log/opening`). From then on they replace the
segments whose offsets they cover. So that recovery can tell these offsets, each new segment ends with the header of its
last batch, even if all records of that batch are gone.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.protocol.wire.batch import MAX_INT32, BatchHeader, read_header
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import read_keys
from ottla.storage.compaction.cleanable import CleanableRange, find_cleanable_range
from ottla.storage.compaction.offset_map import DEFAULT_LOAD_FACTOR, OffsetMap, give_way
from ottla.storage.compaction.rules import CompactionFilter, Transactions, kind_of
from ottla.storage.disk import Disk
from ottla.storage.log.aborted import Aborted
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.producer_snapshot import snapshot_name
from ottla.storage.log.producers import LastEntry
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import CLEANED, DELETED, LOG_SUFFIX, SWAP, Segment
from ottla.storage.log.settings import LogSettings

logger = logging.getLogger(__name__)

_WRITE_BYTES: Final = 1 << 20


class CleaningAborted(Exception):
    """The log was deleted, moved or truncated while it was cleaned. The log is unchanged, and no files are left."""


@dataclass(slots=True, kw_only=True, eq=False)
class Plan:
    """The input of a pass: names, sizes and numbers that the log no longer changes."""

    disk: Disk
    directory: str
    settings: LogSettings
    cleanable: CleanableRange
    now_ms: int
    last_entries: dict[int, LastEntry]
    segments: tuple[Segment, ...]
    """The log's own segments, to recognize them later. Another thread may not use them."""
    sources: tuple[Segment, ...]
    """The same files, opened separately."""
    later: tuple[Segment, ...]
    """The segments after the cleanable ones, which may have the abort markers of earlier records."""
    cancelled: bool = False

    def cancel(self) -> None:
        """Stop the pass at its next batch, or at `install`. Any thread may call this."""
        self.cancelled = True


@dataclass(slots=True, kw_only=True, eq=False)
class Cleaned:
    """The output of a pass: new segments, and what they replace."""

    plan: Plan
    segments: list[Segment] = field(default_factory=list)
    replaced: int = 0
    """The number of segments that are replaced, from the first one on."""
    first_dirty_offset: int = 0
    """The offset at which the next pass begins."""
    mapped_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    map_utilization: float = 0.0

    def discard(self) -> None:
        """Remove the files that exist. Not allowed after a successful `install`."""
        for segment in self.segments:
            segment.remove()

    def settle(self) -> None:
        """Make the replacement durable. This waits for the disk.

        The new first dirty offset must not be checkpointed before: after a crash the old segments might be back, and
        their tombstones would be removed before the records that they delete.
        """
        self.plan.disk.sync_dir(self.plan.directory)


def plan(log: PartitionLog, *, first_dirty_offset: int | None, now_ms: int) -> Plan | None:
    """Return the plan of a pass; None if there is nothing to clean. Its `cleanable` says whether it is due."""
    cleanable = find_cleanable_range(log, first_dirty_offset, now_ms)
    if cleanable.cleanable_bytes == 0 or cleanable.first_dirty_offset >= cleanable.end_offset:
        return None
    disk, directory = log.environment.disk, log.directory
    count = sum(segment.base_offset < cleanable.end_offset for segment in log.segments)
    segments = tuple(log.segments[:count])
    return Plan(
        disk=disk,
        directory=directory,
        settings=log.settings,
        cleanable=cleanable,
        now_ms=now_ms,
        last_entries=log.producers.last_entries(),
        segments=segments,
        sources=tuple(Segment(disk, directory, segment.base_offset, size=segment.size) for segment in segments),
        later=tuple(Segment(disk, directory, segment.base_offset) for segment in log.segments[count:]),
    )


def clean(
    plan: Plan,
    *,
    memory_bytes: int,
    load_factor: float = DEFAULT_LOAD_FACTOR,
    throttle: Callable[[int], None] | None = None,
) -> Cleaned:
    """Write the cleaned segments and sync them. Runs in a thread, one pass at a time for each log.

    `throttle` is called with the bytes that were read or written, and may wait. Raise CleaningAborted, CorruptLog or
    OSError; then no files are left.
    """
    cleaned = Cleaned(plan=plan)
    try:
        _Pass(plan, cleaned, throttle or _at_full_speed).run(memory_bytes, load_factor)
    except Exception as error:
        with suppress(FileNotFoundError):
            _remove_cleaned(plan)
        # A truncation cancels the plan first. Missing bytes are then not a corruption.
        if isinstance(error, FileNotFoundError) or (isinstance(error, CorruptLog) and plan.cancelled):
            raise CleaningAborted(f"{plan.directory}: {error}") from error
        raise
    return cleaned


def install(log: PartitionLog, cleaned: Cleaned) -> int | None:
    """Replace the old segments with the cleaned ones; return the new first dirty offset, valid after `settle`.

    If the old segments have changed, discard the new files and return None.
    """
    plan, new = cleaned.plan, cleaned.segments
    old, rest = log.segments[: cleaned.replaced], log.segments[cleaned.replaced :]
    if plan.cancelled or log.directory != plan.directory or not rest or not _unchanged(plan, old, cleaned.replaced):
        for segment in new:
            segment.move(log.directory)
        cleaned.discard()
        return None
    disk = log.environment.disk
    try:
        for segment in reversed(new):
            segment.rename(SWAP)
        for segment in old:
            segment.rename(DELETED)
        for segment in new:
            segment.rename("")
        for base_offset in {segment.base_offset for segment in old} - {segment.base_offset for segment in new}:
            snapshot = f"{log.directory}/{snapshot_name(base_offset)}"
            if disk.exists(snapshot):
                disk.remove(snapshot)
    except OSError as error:
        log.environment.on_failure(error)
        raise
    log.segments = [*new, *rest]
    log.limit_position = None
    _remove_later(log, old)
    logger.info(
        "%s: cleaned up to offset %d, from %d bytes in %d segments to %d bytes in %d",
        log, cleaned.first_dirty_offset, cleaned.read_bytes, len(old), cleaned.written_bytes, len(new),
    )  # fmt: skip
    return cleaned.first_dirty_offset


class _Pass:
    """One run of `clean`."""

    def __init__(self, plan: Plan, cleaned: Cleaned, throttle: Callable[[int], None]) -> None:
        self._plan = plan
        self._cleaned = cleaned
        self._throttle = throttle

    def run(self, memory_bytes: int, load_factor: float) -> None:
        plan, cleaned = self._plan, self._cleaned
        cleanable = plan.cleanable
        # A file left by a failed pass would make the segments of this pass void after a crash.
        _remove_cleaned(plan)
        aborted = self._aborted()
        latest = OffsetMap(memory_bytes, cleanable.first_dirty_offset, load_factor)
        self._map(latest, aborted)
        cleaned.first_dirty_offset = latest.end_offset
        cleaned.map_utilization = latest.utilization
        sources = [source for source in plan.sources if source.base_offset < latest.end_offset]
        cleaned.replaced = len(sources)
        batch_filter = CompactionFilter(
            latest,
            aborted,
            plan.last_entries,
            end_offset=cleanable.end_offset,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.settings.delete_retention_ms,
        )
        for group in group_segments(sources, plan.settings, cleanable.end_offset):
            self._clean_group(group, batch_filter)
        plan.disk.sync_dir(plan.directory)

    def _aborted(self) -> list[Aborted]:
        """Return the aborted transactions with records in the cleaned segments. Their markers may be in later ones."""
        aborted: list[Aborted] = []
        end = self._plan.cleanable.end_offset
        for segment in (*self._plan.sources, *self._plan.later):
            entries, complete = segment.aborted.collect(0, end)
            segment.aborted.close()
            aborted += entries
            if complete:
                break
        return aborted

    def _map(self, latest: OffsetMap, aborted: Sequence[Aborted]) -> None:
        """Map the keys of the dirty records, as many as fit."""
        start = self._plan.cleanable.first_dirty_offset
        transactions = Transactions(entry for entry in aborted if entry.last_offset >= start)
        sources = self._plan.sources
        ends = [*(source.base_offset for source in sources[1:]), self._plan.cleanable.end_offset]
        for source, end in zip(sources, ends, strict=True):
            if end <= start:
                continue
            first_batch = source.find(start) if source.base_offset < start else None
            first = first_batch.position if first_batch else 0 if source.base_offset >= start else source.size
            for position, header, block, pos in self._batches(source, first):
                self._cleaned.mapped_bytes += header.size_bytes
                try:
                    if header.is_control:
                        transactions.end(header, kind_of(block, pos, header))
                    elif not transactions.is_aborted(header) and not latest.add(read_keys(block, pos, header), start):
                        return
                except ProtocolError as error:
                    raise CorruptLog(source.path(LOG_SUFFIX), position, str(error)) from error
                latest.end_offset = max(latest.end_offset, header.next_offset)
            latest.end_offset = max(latest.end_offset, end)

    def _clean_group(self, group: Sequence[Segment], batch_filter: CompactionFilter) -> None:
        """Write what remains of consecutive segments into one."""
        plan = self._plan
        interval = plan.settings.index_interval_bytes
        target = Segment.create(plan.disk, plan.directory, group[0].base_offset, now_ms=plan.now_ms, suffix=CLEANED)
        self._cleaned.segments.append(target)
        last = next((source for source in reversed(group) if source.size), None)
        written, shapes = bytearray(), list[tuple[int, int, int]]()
        for source in group:
            for position, header, block, pos in self._batches(source, 0):
                self._cleaned.read_bytes += header.size_bytes
                is_end = source is last and position + header.size_bytes == source.size
                try:
                    kept = batch_filter.filter_batch(header, block, pos, keep_end=is_end)
                except ProtocolError as error:
                    raise CorruptLog(source.path(LOG_SUFFIX), position, str(error)) from error
                if batch_filter.ended is not None:
                    target.aborted.append(batch_filter.ended)
                if kept is None:
                    continue
                written += kept
                shapes.append((len(kept), header.last_offset, read_header(kept).max_timestamp))
                if len(written) >= _WRITE_BYTES:
                    self._write(target, written, shapes, interval)
                    written, shapes = bytearray(), []
        self._write(target, written, shapes, interval)
        target.finish()
        target.sync()
        target.aborted.close()
        target.release()

    def _write(
        self, target: Segment, data: bytearray, shapes: list[tuple[int, int, int]], index_interval_bytes: int
    ) -> None:
        if data:
            target.append_block(data, shapes, index_interval_bytes)
            self._cleaned.written_bytes += len(data)
            self._throttle(len(data))

    def _batches(self, source: Segment, start: int) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Yield the batches of an old segment. Other threads may run between them."""
        for batch in source.batches(start):
            if self._plan.cancelled:
                raise CleaningAborted(f"{self._plan.directory}: cancelled")
            give_way()
            self._throttle(batch[1].size_bytes)
            yield batch
        source.release()


def group_segments(segments: Sequence[Segment], settings: LogSettings, end_offset: int) -> list[list[Segment]]:
    """Group consecutive segments that become one: within the configured sizes, and within 31 bits of offsets."""
    groups: list[list[Segment]] = []
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    size = offset_index = time_index = 0
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size
        offset_index += segment.offsets.size_bytes
        time_index += segment.times.size_bytes
        if (
            groups
            and size <= settings.segment_bytes
            and max(offset_index, time_index) <= settings.segment_index_bytes
            and (not segment.size or end - 1 - groups[-1][0].base_offset <= MAX_INT32)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            offset_index, time_index = segment.offsets.size_bytes, segment.times.size_bytes
    return groups


def _unchanged(plan: Plan, segments: Sequence[Segment], count: int) -> bool:
    """Return whether these are the planned segments, unchanged."""
    planned = zip(plan.segments, plan.sources, strict=True)
    return len(segments) == count and all(
        segment is own and segment.size == source.size
        for segment, (own, source) in zip(segments, planned, strict=False)
    )


def _remove_cleaned(plan: Plan) -> None:
    for name in plan.disk.names(plan.directory):
        if name.endswith(CLEANED):
            plan.disk.remove(f"{plan.directory}/{name}")


def _remove_later(log: PartitionLog, segments: Sequence[Segment]) -> None:
    """Delete files in a thread after `file.delete.delay.ms`, when no reader needs them."""
    environment = log.environment

    def remove() -> None:
        for segment in segments:
            segment.remove()

    environment.background.later(
        log.settings.file_delete_delay_ms,
        lambda: environment.background.run(remove, lambda _: None, environment.on_failure),
    )


def _at_full_speed(_: int) -> None:
    """Do not limit the pass."""
