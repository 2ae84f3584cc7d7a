"""Runs of records of a share partition that are in the same state: what is written down, and how runs are put together.

Where two runs overlap, the record was delivered more often, or has come further, in the later one: that one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class StateBatch(NamedTuple):
    """A run of records."""

    first: int
    last: int
    state: int
    delivery_count: int
    """How often they were delivered."""


def combine(batches: Iterable[StateBatch], start: int) -> tuple[StateBatch, ...]:
    """Runs that do not overlap, in order, without what lies before a start offset (-1: nothing does)."""
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
    """The runs cut wherever one begins or ends; of those that cover a piece the furthest is taken."""
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
