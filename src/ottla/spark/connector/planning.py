"""How the offsets of a query become tasks, and how many of them one micro-batch takes. Pure arithmetic."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ottla.spark.connector.fetching import Range
from ottla.spark.connector.positions import Offsets

_SMALL: Final = 1000
"""Offsets that one task reads sooner than Spark starts a second one."""


def ranges_between(start: Offsets, stop: Offsets) -> list[Range]:
    """What lies between two offsets of each partition, where there is anything."""
    return [Range(*key, start[key], stop[key]) for key in sorted(stop) if key in start and stop[key] > start[key]]


def split(ranges: Iterable[Range], *, least: int | None = None, most_records: int | None = None) -> list[Range]:
    """Ranges of at most so many offsets, and at least so many ranges if there are as many offsets."""
    parts = list(ranges)
    if most_records is not None:
        parts = [piece for each in parts for piece in _cut(each, math.ceil(each.size / most_records))]
    if least is not None and least > len(parts) > 0:
        total = sum(each.size for each in parts)
        parts = [piece for each in parts for piece in _cut(each, math.ceil(each.size / total * least))]
    return parts


def bundle(ranges: Iterable[Range]) -> list[tuple[Range, ...]]:
    """What each task reads: a range, or several small ones."""
    found: list[tuple[Range, ...]] = []
    room = 0
    for each in ranges:
        if each.size <= room:
            found[-1] += (each,)
        else:
            found.append((each,))
            room = _SMALL
        room -= each.size
    return found


def _cut(whole: Range, parts: int) -> list[Range]:
    count = max(min(parts, whole.size), 1)
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, stop=stop) for start, stop in pairwise(edges)]


def limit(start: Offsets, stop: Offsets, most: int) -> Offsets:
    """Where a micro-batch of at most so many offsets ends: each partition gets its share of what it has."""
    sizes = {key: stop[key] - start[key] for key in stop if stop[key] > start[key]}
    total = sum(sizes.values())
    if total <= most:
        return stop
    admitted = dict(stop)
    for key, size in sizes.items():
        share = most * size / total
        # A partition with little to read gets its turn as well; that may be a few offsets more than the limit.
        admitted[key] = min(start[key] + (math.ceil(share) if share < 1 else math.floor(share)), stop[key])
    return admitted
