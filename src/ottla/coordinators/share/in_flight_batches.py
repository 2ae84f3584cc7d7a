"""The in-flight batches of a share partition, sorted by offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from ottla.coordinators.share.delivery import InFlightBatch


class InFlightBatches:
    """In-flight batches by first offset. They do not overlap, but may have gaps between them."""

    __slots__ = ("_by_first", "_firsts")

    def __init__(self) -> None:
        self._by_first: dict[int, InFlightBatch] = {}
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        by_first = self._by_first
        return iter([by_first[first] for first in self._firsts])

    @property
    def first(self) -> InFlightBatch:
        return self._by_first[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        return self._by_first[self._firsts[-1]]

    def add(self, batch: InFlightBatch) -> None:
        assert batch.first not in self._by_first
        self._by_first[batch.first] = batch
        insort(self._firsts, batch.first)

    def clear(self) -> None:
        self._by_first.clear()
        self._firsts.clear()

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before an offset."""
        index = bisect_right(self._firsts, offset)
        return self._by_first[self._firsts[index - 1]] if index else None

    def higher(self, offset: int) -> InFlightBatch | None:
        """Return the first batch that begins after an offset."""
        index = bisect_right(self._firsts, offset)
        return self._by_first[self._firsts[index]] if index < len(self._firsts) else None

    def beginning_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches whose first offset lies between two offsets, inclusive."""
        firsts = self._firsts[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]
        return [self._by_first[first] for first in firsts]

    def touching(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that contain any offset of a range."""
        floor = self.floor(first)
        begin = floor.first if floor is not None and floor.last >= first else first
        return self.beginning_in(begin, last)

    def remove_up_to(self, offset: int) -> None:
        """Remove the batches that end at or before an offset."""
        count = 0
        for first in self._firsts:
            if self._by_first[first].last > offset:
                break
            count += 1
        for first in self._firsts[:count]:
            del self._by_first[first]
        del self._firsts[:count]
