"""A priority queue that breaks ties as `java.util.PriorityQueue` does.

Kafka's assignor for streams distributes tasks by load. Many loads are equal, so ties decide which member gets a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """A binary heap that moves its items as java.util.PriorityQueue does. The rank of a queued item must not change."""

    def __init__(self, rank: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._rank = rank
        self._items: list[T] = []
        for item in items:
            self.add(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: T) -> None:
        items, rank = self._items, self._rank
        item_rank = rank(item)
        place = len(items)
        items.append(item)
        while place:
            parent = (place - 1) >> 1
            if item_rank >= rank(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def poll(self) -> T:
        """Remove and return the item with the lowest rank."""
        items, rank = self._items, self._rank
        least, last = items[0], items.pop()
        size = len(items)
        if not size:
            return least
        last_rank, place, half = rank(last), 0, size >> 1
        while place < half:
            child = 2 * place + 1
            if child + 1 < size and rank(items[child]) > rank(items[child + 1]):
                child += 1
            if last_rank <= rank(items[child]):
                break
            items[place] = items[child]
            place = child
        items[place] = last
        return least
