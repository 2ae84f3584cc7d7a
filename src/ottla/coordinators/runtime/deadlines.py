"""Deadlines by key. Setting the deadline of a key replaces the previous one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_SWEEP_AT: Final = 64


class Deadlines:
    """A heap of deadlines. Replaced entries stay in it until they are due or outnumber the others."""

    def __init__(self) -> None:
        self._due_ms: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: object) -> bool:
        return key in self._due_ms

    def set(self, key: Hashable, at_ms: int | None) -> None:
        """Set the deadline of a key; None removes it."""
        if at_ms is None:
            self._due_ms.pop(key, None)
            return
        if self._due_ms.get(key) == at_ms:
            return
        self._due_ms[key] = at_ms
        self._number += 1
        heappush(self._heap, (at_ms, self._number, key))
        if len(self._heap) > max(_SWEEP_AT, 4 * len(self._due_ms)):
            self._heap = [(due_ms, number, key) for number, (key, due_ms) in enumerate(self._due_ms.items())]
            self._number = len(self._heap)
            heapify(self._heap)

    def next_ms(self) -> int | None:
        """Return the earliest deadline; None without deadlines."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[Hashable]:
        """Remove and yield the keys that are due, earliest first."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            key = heappop(self._heap)[2]
            del self._due_ms[key]
            yield key
