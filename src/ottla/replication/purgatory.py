"""Requests that cannot be answered yet: produces that wait for replicas, fetches that wait for bytes.

A waiting operation is an entry in the lists of the things it waits for, and in one timer. A change wakes the lists that
it concerns; each operation in them then looks again whether it can complete. It completes once, by a wake-up or at its
deadline, and leaves all its lists and the timer in that moment: a finished operation is kept alive by nothing here.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import ClassVar, Protocol

_FINEST_MS = 10
_STEPS = 1000
"""How many ticks fit into a deadline: a timer is late by a hundredth of its time at most, or by 10 ms."""

logger = logging.getLogger(__name__)


class Operation(ABC):
    """A request that waits."""

    kind: ClassVar[str] = ""
    """What the metrics call such operations; empty for those that they leave out."""

    __slots__ = ("_lists", "_slot", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._lists: tuple[WaitingList, ...] = ()
        self._slot: _Slot | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete if that is possible by now, and say whether it was."""

    @abstractmethod
    def expire(self) -> None:
        """Complete with what there is, for the deadline has come."""

    def give_up(self, error: Exception) -> None:
        """A defect keeps the operation from completing. Those that hold a client's request answer it with an error."""
        logger.error("%r could not be completed after a change or at its deadline", self, exc_info=error)

    def hurry(self) -> None:  # noqa: B027 (only fetches of followers have an interim answer)
        """Complete soon, for there is something to tell."""

    def wake(self) -> None:
        """Look again, for something that this operation waits for has changed."""
        if not self.is_done and self.try_complete():
            self.finish()

    def finish(self) -> None:
        """Leave the lists and the timer; the operation has completed, or nobody is interested in it any more."""
        self.is_done = True
        if self._lists:
            for waiting in self._lists:
                waiting.operations.pop(self, None)
            self._lists = ()
        slot = self._slot
        if slot is not None:
            slot.pop(self, None)
            self._slot = None


class Expirations:
    """How many requests were answered only because their deadline came."""

    __slots__ = ("_produces", "consumer_fetches", "follower_fetches", "produces")

    def __init__(self) -> None:
        self.consumer_fetches = self.follower_fetches = self.produces = 0
        """A produce counts once for each of its partitions whose replicas were late, as in Kafka."""
        self._produces: Counter[tuple[str, int]] = Counter()

    def count_produce(self, topic: str, partition: int) -> None:
        """Count a partition whose in-sync replicas did not have a batch in time."""
        self.produces += 1
        self._produces[topic, partition] += 1

    def forget(self, topic: str, partitions: int) -> None:
        """Drop the counts of a topic that was deleted."""
        for partition in range(partitions):
            self._produces.pop((topic, partition), None)

    def produces_by_partition(self, is_here: Callable[[str, int], bool]) -> Counter[tuple[str, int]]:
        """The late produces of each partition that this broker still has; the others are forgotten."""
        for topic, partition in [name for name in self._produces if not is_here(*name)]:
            del self._produces[topic, partition]
        return self._produces


class WaitingList:
    """The operations that wait for one thing, such as a partition's high watermark."""

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations: dict[Operation, None] = {}
        """In the order in which they began to wait."""

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, operation: Operation) -> None:
        """Let an operation wait here."""
        self.operations[operation] = None
        operation._lists += (self,)

    def wake(self) -> int:
        """Let all look again; returns how many completed. What is added meanwhile looks the next time."""
        completed = 0
        for operation in list(self.operations):
            try:
                if not operation.is_done and operation.try_complete():
                    operation.finish()
                    completed += 1
            except Exception as error:  # noqa: BLE001 (one that fails must not keep the others waiting)
                operation.give_up(error)
        return completed


class Completions:
    """What is to be woken once the step under way is over, ahead of new requests.

    Waking at once would answer others, and take up their next requests, in the middle of an append.
    """

    __slots__ = ("_due", "_is_running")

    def __init__(self) -> None:
        self._due: dict[WaitingList | Operation, None] = {}
        self._is_running = False

    def add(self, waiting: WaitingList | Operation) -> None:
        """Wake a list, or a single operation, when the step is over."""
        self._due[waiting] = None

    def run(self) -> None:
        """Wake what is due, and what becomes due by that. Called at the end of every step that may have added some."""
        if self._is_running or not self._due:
            return
        self._is_running = True
        try:
            while self._due:
                due = self._due.popitem()[0]
                try:
                    due.wake()
                except Exception as error:
                    if not isinstance(due, Operation):
                        raise
                    due.give_up(error)
        finally:
            self._is_running = False


class Handle(Protocol):
    """A call that is due, and may be cancelled."""

    def cancel(self) -> None: ...


class CallLater(Protocol):
    """The event loop's way to call something after a while."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


class CallLaterUnlessCancelled(Protocol):
    """The event loop's way to call something after a while, unless that is cancelled before."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class _Slot(dict[Operation, None]):
    """The operations that expire at one time."""

    __slots__ = ("due_ms",)

    def __init__(self, due_ms: int) -> None:
        super().__init__()
        self.due_ms = due_ms


class Timer:
    """The deadlines of all waiting operations, in slots: one call of the loop at a time.

    Slots are the wider the farther their time is away, so that there are never more than a few thousand of them.
    """

    def __init__(self, call_later: CallLaterUnlessCancelled, now_ms: Callable[[], int]) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._slots: dict[int, _Slot] = {}
        self._order: list[int] = []
        self._next: int | None = None
        self._handle: Handle | None = None
        """The one call of the loop that is due, for the next slot."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    @property
    def sizes(self) -> Counter[str]:
        """How many operations of each kind wait."""
        return Counter(operation.kind for slot in self._slots.values() for operation in slot)

    def add(self, operation: Operation, timeout_ms: int) -> None:
        """Let an operation expire after a time, never before it."""
        tick = _FINEST_MS
        if timeout_ms >= _STEPS * _FINEST_MS:
            while timeout_ms >= _STEPS * tick:
                tick *= 10
        due_ms = ((self._now_ms() + timeout_ms) // tick + 1) * tick
        slot = self._slots.get(due_ms)
        if slot is None:
            slot = self._new_slot(due_ms)
        slot[operation] = None
        operation._slot = slot

    def hasten(self, operation: Operation, timeout_ms: int) -> bool:
        """Let an operation that waits expire after a time, unless it does so earlier; whether its time is less now."""
        slot, due_ms = operation._slot, ((self._now_ms() + timeout_ms) // _FINEST_MS + 1) * _FINEST_MS
        if slot is not None and due_ms < slot.due_ms:
            del slot[operation]
            self.add(operation, timeout_ms)
            return True
        return False

    def _new_slot(self, due_ms: int) -> _Slot:
        slot = self._slots[due_ms] = _Slot(due_ms)
        heappush(self._order, due_ms)
        if self._next is None or due_ms < self._next:
            self._schedule(due_ms)
        return slot

    def _schedule(self, due_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = due_ms
        self._handle = self._call_later(max(due_ms - self._now_ms(), 0) / 1000, self._expire)

    def _expire(self) -> None:
        now_ms = self._now_ms()
        self._handle = None
        while self._order and self._order[0] <= now_ms:
            for operation in list(self._slots.pop(heappop(self._order))):
                if not operation.is_done:
                    operation.finish()
                    try:
                        operation.expire()
                    except Exception as error:  # noqa: BLE001 (the others, here and in later slots, must have their time)
                        operation.give_up(error)
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
