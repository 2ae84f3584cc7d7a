"""State batches: ranges of records in the same state, as the share coordinator stores and merges them.

Where two batches overlap, the one with the higher delivery count, and then the higher state, wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class StateBatch(NamedTuple):
    """A range of records in the same state."""

    first: int
    last: int
    state: int
    delivery_count: int
    """The number of deliveries."""


def combine(batches: Iterable[StateBatch], start: int) -> tuple[StateBatch, ...]:
    """Merge batches into sorted ones without overlaps, without the offsets before `start` (-1 for no limit)."""
    kept = [
        batch if batch.first >= start else batch._replace(first=start)
        for batch in batches
        if start == -1 or batch.last >= start
    ]
    if len(kept) < 2:
        return tuple(kept)
    kept.sort()
    return tuple(_merge(_split(kept)))


def _split(batches: Sequence[StateBatch]) -> Iterable[StateBatch]:
    """Split the batches at all boundaries, and take the winning batch of each piece."""
    edges = sorted({edge for batch in batches for edge in (batch.first, batch.last + 1)})
    covering: list[tuple[int, int, int]] = []
    next_batch = 0
    for first, end in pairwise(edges):
        while next_batch < len(batches) and batches[next_batch].first <= first:
            batch = batches[next_batch]
            heappush(covering, (-batch.delivery_count, -batch.state, batch.last))
            next_batch += 1
        while covering and covering[0][2] < first:
            heappop(covering)
        if covering:
            delivery_count, state, _ = covering[0]
            yield StateBatch(first, end - 1, -state, -delivery_count)


def _merge(pieces: Iterable[StateBatch]) -> Iterable[StateBatch]:
    last: StateBatch | None = None
    for piece in pieces:
        if last is not None and last.last + 1 == piece.first and last[2:] == piece[2:]:
            last = last._replace(last=piece.last)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
