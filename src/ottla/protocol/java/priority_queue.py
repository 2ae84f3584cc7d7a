"""A queue that gives back what is least, and of equals the one that Java's gives back.

Kafka's assignor deals tasks out by load, and many loads are equal: who comes first decides who gets a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """A binary heap with the moves of java.util.PriorityQueue. What is in it must not change its rank."""

    def __init__(self, rank: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._rank = rank
        self._items: list[T] = []
        for item in items:
            self.add(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: T) -> None:
        items, rank = self._items, self._rank
        mine = rank(item)
        place = len(items)
        items.append(item)
        while place:
            parent = (place - 1) >> 1
            if mine >= rank(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def poll(self) -> T:
        """Take out the least."""
        items, rank = self._items, self._rank
        least, last = items[0], items.pop()
        size = len(items)
        if not size:
            return least
        mine, place, half = rank(last), 0, size >> 1
        while place < half:
            child = 2 * place + 1
            if child + 1 < size and rank(items[child]) > rank(items[child + 1]):
                child += 1
            if mine <= rank(items[child]):
                break
            items[place] = items[child]
            place = child
        items[place] = last
        return least
