"""Retention: removes segments that are too old, exceed `retention.bytes`, or are before the log start.

Only whole segments below the high watermark are removed, oldest first. If the active segment is due too, the log is
rolled first.
"""

import logging
from collections.abc import Callable

from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.segment import Segment
from ottla.storage.log.truncation import advance_log_start, remove_segments

logger = logging.getLogger(__name__)


def remove_expired(log: PartitionLog, now_ms: int) -> int:
    """Remove the segments that are due; return how many."""
    settings, removed = log.settings, 0
    if settings.delete:
        if settings.retention_ms >= 0:
            removed += _remove_while(
                log,
                lambda segment, _: now_ms - segment.latest_ms() > settings.retention_ms,
                now_ms,
                "older than retention.ms",
            )
        if 0 <= settings.retention_bytes < log.size:
            surplus = log.size - settings.retention_bytes

            def is_surplus(segment: Segment, _: int) -> bool:
                nonlocal surplus
                surplus -= segment.size
                return surplus >= 0

            removed += _remove_while(log, is_surplus, now_ms, "in excess of retention.bytes")
    start = log.log_start_offset
    if len(log.segments) > 1 and log.segments[1].base_offset <= start:
        removed += _remove_while(
            log, lambda segment, end: segment is not log.active and end <= start, now_ms, "before the log start"
        )
    return removed


def _remove_while(log: PartitionLog, is_due: Callable[[Segment, int], bool], now_ms: int, why: str) -> int:
    due: list[Segment] = []
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    for segment, end in zip(log.segments, ends, strict=True):
        if end > log.high_watermark or (not segment.size and segment is log.active) or not is_due(segment, end):
            break
        due.append(segment)
    if not due:
        return 0
    if due[-1] is log.active:
        log.roll(now_ms)
    remove_segments(log, due)
    advance_log_start(log, log.segments[0].base_offset)
    logger.info("%s: removed %d segments %s", log, len(due), why)
    return len(due)
