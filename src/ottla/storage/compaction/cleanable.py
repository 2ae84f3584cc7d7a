"""The cleanable range of a log: what compaction could clean now, and whether it is due, by the rules of Kafka 4.3.1.

Only whole segments are cleaned. The active segment, segments beyond the last stable offset, and segments with records
younger than `min.compaction.lag.ms` are not.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.segment import Segment
from ottla.storage.log.settings import LogSettings

logger = logging.getLogger(__name__)


class CleanableRange(NamedTuple):
    """The part of a log that can be cleaned, and its size."""

    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that may not be cleaned yet."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How long the oldest dirty records have exceeded `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The cleanable share of the bytes that a pass would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, settings: LogSettings) -> bool:
        """Return whether the log is dirty enough, or overdue."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.ratio > settings.min_cleanable_dirty_ratio)


def find_cleanable_range(log: PartitionLog, checkpoint: int | None, now_ms: int) -> CleanableRange:
    """Return the cleanable range of a log. The checkpoint is the end of its last pass, if there was one."""
    first_dirty = _first_dirty_offset(log, checkpoint)
    segments, active = log.segments, log.active
    # Segments with dirty records, except for the active one.
    dirty = segments[log.segment_at(first_dirty) : -1] if first_dirty < active.base_offset else []
    limit = min(log.last_stable_offset, active.base_offset)
    lag = log.settings.min_compaction_lag_ms
    if lag > 0:
        limit = min([limit, *(s.base_offset for s in dirty if s.max_timestamp > now_ms - lag)])
    limit = max(limit, first_dirty)
    end = active.base_offset if limit >= active.base_offset else segments[log.segment_at(limit)].base_offset
    return CleanableRange(
        first_dirty,
        end,
        sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < end),
        _overdue_ms(dirty, log.settings.max_compaction_lag_ms, now_ms),
    )


def _first_dirty_offset(log: PartitionLog, checkpoint: int | None) -> int:
    start = log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint < start:
        if not log.settings.delete:
            logger.warning(
                "%s: the cleaner checkpoint %d is before the log start; cleaning from there", log, checkpoint
            )
        return start
    if checkpoint > log.log_end_offset:
        # The log end was lost, so the rest may have changed too.
        logger.warning("%s: the cleaner checkpoint %d is beyond the log end; cleaning the whole log", log, checkpoint)
        return start
    return checkpoint


def _overdue_ms(dirty: Sequence[Segment], max_lag_ms: int, now_ms: int) -> int:
    until = now_ms - max(max_lag_ms, 0)
    if until <= 0:
        return 0
    return max((until - first for segment in dirty if 0 < (first := segment.first_timestamp) < until), default=0)
