"""Requests that cannot be answered yet: produces that wait for replicas, fetches that wait for bytes.

A waiting operation is an entry in the lists of the things it waits for, and in one timer. Whoever changes such a thing
wakes its list; each operation then looks again whether it can be completed. It is completed once, by a wake-up or by
its deadline, whichever comes first. Entries that are done stay in the other lists until those are woken or grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Protocol

_TICK_MS = 10
_SWEEP_AT = 64


class Operation(ABC):
    """Something that waits."""

    __slots__ = ("is_done",)

    def __init__(self) -> None:
        self.is_done = False

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete if that is possible by now, and say whether it was."""

    @abstractmethod
    def expire(self) -> None:
        """Complete with what there is, for the deadline has come."""

    def hurry(self) -> None:  # noqa: B027 (for those that it is about)
        """There is something to tell meanwhile; most operations are not about that."""


class WaitingList:
    """The operations that wait for one thing, such as a partition's high watermark."""

    __slots__ = ("_sweep_at", "operations")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        """Those who wait, and some who are done with it: nobody waits for certain where there are none."""
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        return sum(not operation.is_done for operation in self.operations)

    def add(self, operation: Operation) -> None:
        """Let an operation wait here."""
        self.operations.append(operation)
        if len(self.operations) > self._sweep_at:
            self.operations = [known for known in self.operations if not known.is_done]
            self._sweep_at = max(_SWEEP_AT, 2 * len(self.operations))

    def hurry(self) -> None:
        """Let all know that there is something to tell them."""
        for operation in self.operations:
            if not operation.is_done:
                operation.hurry()

    def wake(self) -> int:
        """Let all look again; returns how many were completed."""
        if not self.operations:
            return 0
        # What is added while they look, by the operations themselves, stays for the next time.
        operations, self.operations = self.operations, []
        completed, still_waiting = 0, []
        for operation in operations:
            if operation.is_done:
                continue
            if operation.try_complete():
                operation.is_done = True
                completed += 1
            else:
                still_waiting.append(operation)
        self.operations = still_waiting + self.operations
        return completed


class Completions:
    """Lists that are to be woken once the step under way is over, ahead of new requests.

    Waking them at once would answer others, and take up their next requests, in the middle of an append.
    """

    __slots__ = ("_due", "_is_running")

    def __init__(self) -> None:
        self._due: dict[WaitingList, None] = {}
        self._is_running = False

    def add(self, waiting: WaitingList) -> None:
        """Wake a list when the step is over."""
        if waiting.operations:
            self._due[waiting] = None

    def run(self) -> None:
        """Wake what is due, and what becomes due by that. Called at the end of every step that may have added some."""
        if self._is_running or not self._due:
            return
        self._is_running = True
        try:
            while self._due:
                self._due.popitem()[0].wake()
        finally:
            self._is_running = False


class CallLater(Protocol):
    """The event loop's way to call something after a while."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


class Timer:
    """The deadlines of all waiting operations, in slots of a few milliseconds: one call of the loop at a time."""

    def __init__(self, call_later: CallLater, now_ms: Callable[[], int]) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._slots: dict[int, list[Operation]] = {}
        self._order: list[int] = []
        self._next: int | None = None

    def __len__(self) -> int:
        return sum(not operation.is_done for slot in self._slots.values() for operation in slot)

    def add(self, operation: Operation, timeout_ms: int) -> None:
        """Let an operation expire after a time, never before it."""
        slot = (self._now_ms() + timeout_ms) // _TICK_MS + 1
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = [operation]
            heappush(self._order, slot)
            if self._next is None or slot < self._next:
                self._schedule(slot)
        else:
            waiting.append(operation)

    def _schedule(self, slot: int) -> None:
        self._next = slot
        self._call_later(max(slot * _TICK_MS - self._now_ms(), 0) / 1000, self._expire)

    def _expire(self) -> None:
        now = self._now_ms() // _TICK_MS
        while self._order and self._order[0] <= now:
            for operation in self._slots.pop(heappop(self._order)):
                if not operation.is_done:
                    operation.is_done = True
                    operation.expire()
        if self._order:
            self._schedule(self._order[0])
        else:
            self._next = None


def complete_or_wait(operation: Operation, lists: Iterable[WaitingList], timer: Timer, timeout_ms: int) -> bool:
    """Complete an operation now, or let it wait for any of the lists to be woken; whether it was completed."""
    if operation.try_complete():
        operation.is_done = True
        return True
    for waiting in lists:
        waiting.add(operation)
    timer.add(operation, timeout_ms)
    return False
