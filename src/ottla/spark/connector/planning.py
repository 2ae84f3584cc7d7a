"""Splits the offsets of a query into tasks and limits the size of a micro-batch. Pure arithmetic."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ottla.spark.connector.positions import Offsets
from ottla.spark.connector.range_reader import Range

_MIN_TASK_OFFSETS: Final = 1000
"""One task reads this many offsets in less time than Spark needs to start a second task."""


def ranges_between(start: Offsets, stop: Offsets) -> list[Range]:
    """Return the non-empty ranges between two offsets of each partition."""
    return [Range(*key, start[key], stop[key]) for key in sorted(stop) if key in start and stop[key] > start[key]]


def split_ranges(
    ranges: Iterable[Range], *, min_ranges: int | None = None, max_records: int | None = None
) -> list[Range]:
    """Split ranges to at most `max_records` offsets, and into at least `min_ranges` if there are enough offsets."""
    parts = list(ranges)
    if max_records is not None:
        parts = [part for whole in parts for part in _cut(whole, math.ceil(whole.size / max_records))]
    if min_ranges is not None and min_ranges > len(parts) > 0:
        total = sum(part.size for part in parts)
        parts = [part for whole in parts for part in _cut(whole, math.ceil(whole.size / total * min_ranges))]
    return parts


def bundle_ranges(ranges: Iterable[Range]) -> list[tuple[Range, ...]]:
    """Group small ranges, so that each task reads one large range or several small ones."""
    bundles: list[tuple[Range, ...]] = []
    room = 0
    for part in ranges:
        if part.size <= room:
            bundles[-1] += (part,)
        else:
            bundles.append((part,))
            room = _MIN_TASK_OFFSETS
        room -= part.size
    return bundles


def _cut(whole: Range, parts: int) -> list[Range]:
    count = max(min(parts, whole.size), 1)
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, stop=stop) for start, stop in pairwise(edges)]


def limit_batch(start: Offsets, stop: Offsets, max_offsets: int) -> Offsets:
    """Return where a micro-batch of at most `max_offsets` ends; partitions share the limit by their lag."""
    sizes = {key: stop[key] - start[key] for key in stop if stop[key] > start[key]}
    total = sum(sizes.values())
    if total <= max_offsets:
        return stop
    limited = dict(stop)
    for key, size in sizes.items():
        share = max_offsets * size / total
        # A partition with little lag advances by one offset at least, so the sum may exceed the limit a little.
        limited[key] = min(start[key] + (math.ceil(share) if share < 1 else math.floor(share)), stop[key])
    return limited
