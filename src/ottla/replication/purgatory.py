"""The purgatory: requests that cannot be answered yet, such as produces that wait for replicas and fetches for bytes.

A waiting operation is in the lists of everything that it waits for, and in one timer. A change wakes the affected
lists, and each operation in them tries to complete. An operation completes once, when it is woken or at its deadline,
and then leaves all lists and the timer, so that nothing keeps it alive.
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
"""The number of ticks in a timeout: an operation expires late by a hundredth of its timeout at most, or by 10 ms."""

logger = logging.getLogger(__name__)


class Operation(ABC):
    """A request that waits."""

    kind: ClassVar[str] = ""
    """The name of these operations in the metrics; empty if they are not counted."""

    __slots__ = ("_lists", "_slot", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._lists: tuple[WaitingList, ...] = ()
        self._slot: _Slot | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete the operation if possible; return whether it completed."""

    @abstractmethod
    def expire(self) -> None:
        """Complete the operation with what is available, at its deadline."""

    def give_up(self, error: Exception) -> None:
        """Fail an operation that a bug keeps from completing. Client requests are answered with an error."""
        logger.error("Bug: %r failed to complete", self, exc_info=error)

    def hurry(self) -> None:  # noqa: B027 (only fetches of followers have an interim answer)
        """Complete soon, because there is news for the client."""

    def wake(self) -> None:
        """Try to complete after a change."""
        if not self.is_done and self.try_complete():
            self.finish()

    def finish(self) -> None:
        """Leave the lists and the timer, because the operation has completed or is not needed any more."""
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
    """The number of requests that were answered at their deadline."""

    __slots__ = ("_produces", "consumer_fetches", "follower_fetches", "produces")

    def __init__(self) -> None:
        self.consumer_fetches = self.follower_fetches = self.produces = 0
        """As in Kafka, a produce counts once for each partition whose replicas were late."""
        self._produces: Counter[tuple[str, int]] = Counter()

    def count_produce(self, topic: str, partition: int) -> None:
        """Count a partition whose in-sync replicas were late."""
        self.produces += 1
        self._produces[topic, partition] += 1

    def forget(self, topic: str, partitions: int) -> None:
        """Drop the counts of a topic that was deleted."""
        for partition in range(partitions):
            self._produces.pop((topic, partition), None)

    def produces_by_partition(self, is_here: Callable[[str, int], bool]) -> Counter[tuple[str, int]]:
        """Return the late produces by partition, without partitions that left this broker."""
        for topic, partition in [name for name in self._produces if not is_here(*name)]:
            del self._produces[topic, partition]
        return self._produces


class WaitingList:
    """The operations that wait for the same thing, such as a partition's high watermark."""

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations: dict[Operation, None] = {}
        """The operations in the order in which they began to wait."""

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, operation: Operation) -> None:
        """Add an operation."""
        self.operations[operation] = None
        operation._lists += (self,)

    def wake(self) -> int:
        """Wake all operations; return how many completed. Operations that are added meanwhile are not woken."""
        completed = 0
        for operation in list(self.operations):
            try:
                if not operation.is_done and operation.try_complete():
                    operation.finish()
                    completed += 1
            except Exception as error:  # noqa: BLE001 (a failing operation must not stop the others)
                operation.give_up(error)
        return completed


class Completions:
    """Lists and operations to wake after the current step of the event loop, before new requests.

    Waking them immediately would send responses, and start the next requests, in the middle of an append.
    """

    __slots__ = ("_due", "_is_running")

    def __init__(self) -> None:
        self._due: dict[WaitingList | Operation, None] = {}
        self._is_running = False

    def add(self, waiting: WaitingList | Operation) -> None:
        """Wake a list, or a single operation, after the current step."""
        self._due[waiting] = None

    def run(self) -> None:
        """Wake everything that was added, also by waking. Called after every step that may have added something."""
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
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class CallLater(Protocol):
    """The event loop's `call_later`."""

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

    Later slots are wider, so that there are never more than a few thousand of them.
    """

    def __init__(self, call_later: CallLaterUnlessCancelled, now_ms: Callable[[], int]) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._slots: dict[int, _Slot] = {}
        self._order: list[int] = []
        self._next: int | None = None
        self._handle: Handle | None = None
        """The scheduled call for the next slot."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    @property
    def sizes(self) -> Counter[str]:
        """The number of waiting operations of each kind."""
        return Counter(operation.kind for slot in self._slots.values() for operation in slot)

    def add(self, operation: Operation, timeout_ms: int) -> None:
        """Let an operation expire after a timeout, never earlier."""
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
        """Shorten the timeout of a waiting operation, if it is longer; return whether it was."""
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
                    except Exception as error:  # noqa: BLE001 (a failing operation must not stop the others)
                        operation.give_up(error)
        if self._order:
            self._schedule(self._order[0])
        else:
            self._next = None


def complete_or_wait(operation: Operation, lists: Iterable[WaitingList], timer: Timer, timeout_ms: int) -> bool:
    """Complete an operation now, or add it to the lists and the timer; return whether it completed."""
    if operation.try_complete():
        operation.is_done = True
        return True
    for waiting in lists:
        waiting.add(operation)
    timer.add(operation, timeout_ms)
    return False
