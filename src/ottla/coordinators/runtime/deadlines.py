"""Times at which something must be looked at again, each under a key; setting one anew replaces it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_SWEEP_AT: Final = 64


class Deadlines:
    """A heap of times. What was replaced stays in the heap until its time, or until there is too much of it."""

    def __init__(self) -> None:
        self._at: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: object) -> bool:
        return key in self._at

    def set(self, key: Hashable, at_ms: int | None) -> None:
        """Let a key be due at a time, instead of when it was due before; None for never."""
        if at_ms is None:
            self._at.pop(key, None)
            return
        if self._at.get(key) == at_ms:
            return
        self._at[key] = at_ms
        self._number += 1
        heappush(self._heap, (at_ms, self._number, key))
        if len(self._heap) > max(_SWEEP_AT, 4 * len(self._at)):
            self._heap = [(at, number, key) for number, (key, at) in enumerate(self._at.items())]
            self._number = len(self._heap)
            heapify(self._heap)

    def next_ms(self) -> int | None:
        """When the next one is due; None if none ever is."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[Hashable]:
        """Take out what is due, the earliest first."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            key = heappop(self._heap)[2]
            del self._at[key]
            yield key
