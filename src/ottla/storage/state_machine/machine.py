"""A replicated state machine: it decides, appends, applies and replies, in that order.

A decision is a pure function of the state: it returns records and a reply, and changes nothing. The records are
appended and applied immediately, so that the next decision sees them. The reply is sent when they are committed. A
machine that loses leadership falls back to the committed state and fails the waiting replies; clients then retry with
the next leader.

Events run one after another. An event that fails is answered with its error.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.protocol.errors import ApiError, RequestTimedOut, UnknownServerError
from ottla.storage.state_machine.decision import PARKED, Decision, Ticket
from ottla.storage.state_machine.histogram import record
from ottla.storage.state_machine.times import EventTimes

logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")
Reply = Callable[[R | ApiError], None]
"""Called once, with the result or the error."""


@dataclass(slots=True)
class EventStats:
    """The number and duration of the events of one name."""

    count: int = 0
    failed: int = 0
    total_ns: int = 0
    max_ns: int = 0


class Event(Generic[S]):
    """A decision to make, in the queue."""

    __slots__ = ("deadline_ms", "decide", "name", "queued_ns", "reply")

    def __init__(
        self,
        name: str,
        decide: Callable[[S], Decision[Any]],
        reply: Reply[Any],
        deadline_ms: int | None,
        queued_ns: int,
    ) -> None:
        self.name = name
        self.decide = decide
        self.reply = reply
        self.deadline_ms = deadline_ms
        self.queued_ns = queued_ns


class _Waiting(NamedTuple):
    """A reply, and answers to parked requests, that are sent when an offset is committed."""

    offset: int
    since_ms: int
    since_ns: int
    reply: Reply[Any]
    result: Any
    answers: Sequence[tuple[Ticket, Any]]

    def succeed(self) -> None:
        self.reply(self.result)
        for ticket, response in self.answers:
            ticket.answer(response)

    def fail(self, error: ApiError) -> None:
        # A parked request is in the state. Only the decision that removes it from there answers it, never the record
        # that its parking waits for.
        if self.result is not PARKED:
            self.reply(error)
        for ticket, _ in self.answers:
            ticket.fail(error)


def _no_timers(timers: Sequence[tuple[Hashable, int | None]]) -> None:
    assert not timers, "this machine has no timers"


class Machine(Generic[S]):
    """One replicated state, on the node that leads it.

    `append` writes records and returns the offset of the last one, or raises an ApiError. `apply` returns the state
    after these records; it is called right after `append`. `set_timers` gets the timers of an accepted decision.
    """

    def __init__(
        self,
        *,
        append: Callable[[Sequence[Any], bool], int],
        apply: Callable[[S, Sequence[Any], int], S],
        now_ms: Callable[[], int],
        clock_ns: Callable[[], int],
        set_timers: Callable[[Sequence[tuple[Hashable, int | None]]], None] = _no_timers,
        times: EventTimes | None = None,
    ) -> None:
        self._append = append
        self._apply = apply
        self._set_timers = set_timers
        self._now_ms = now_ms
        self._clock_ns = clock_ns
        self._state: S | None = None
        self._last_offset = -1
        self._committed_offset = -1
        self._queue: deque[Event[S]] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._is_running = False
        self.stats: dict[str, EventStats] = {}
        self.times = EventTimes() if times is None else times
        self.decided_ns = 0
        """The time of the latest decision, from which `append` measures the linger time."""

    @property
    def is_active(self) -> bool:
        """Whether this machine makes decisions."""
        return self._state is not None

    @property
    def state(self) -> S:
        """The state after all appended records, committed or not."""
        assert self._state is not None, "only an active machine has a state"
        return self._state

    @property
    def queue_size(self) -> int:
        return len(self._queue)

    def activate(self, state: S, last_offset: int) -> None:
        """Start to decide, with the state after all records up to an offset."""
        self._state = state
        self._last_offset = last_offset

    def deactivate(self, error: ApiError) -> None:
        """Stop deciding. Appended records that are not committed may be lost, so waiting replies fail."""
        self._state = None
        waiting, self._waiting = self._waiting, deque()
        queue, self._queue = self._queue, deque()
        for reply in waiting:
            reply.fail(error)
        for event in queue:
            event.reply(error)

    def submit(
        self,
        name: str,
        decide: Callable[[S], Decision[R]],
        reply: Reply[R],
        *,
        deadline_ms: int | None = None,
        first: bool = False,
    ) -> None:
        """Add an event to the end of the queue, or to its front if it is `first`, and run the queue."""
        event: Event[S] = Event(name, decide, reply, deadline_ms, self._clock_ns())
        if first:
            self._queue.appendleft(event)
        else:
            self._queue.append(event)
        self.run()

    def run(self) -> None:
        """Run the events in the queue."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._queue and self._state is not None:
                self._run(self._queue.popleft())
        finally:
            self._is_running = False

    def committed(self, offset: int) -> None:
        """Send the replies of records up to a committed offset."""
        self._committed_offset = max(self._committed_offset, offset)
        while self._waiting and self._waiting[0].offset <= offset:
            self._end_of_waiting().succeed()

    def oldest_waiting_ms(self) -> int | None:
        """Return the time since which the oldest reply waits for its commit."""
        return self._waiting[0].since_ms if self._waiting else None

    def give_up(self, until_ms: int, error: ApiError) -> None:
        """Fail the replies that have waited since `until_ms` or longer. Their records may still be committed."""
        while self._waiting and self._waiting[0].since_ms <= until_ms:
            self._end_of_waiting().fail(error)

    def _end_of_waiting(self) -> _Waiting:
        """Remove the oldest reply that waits for its commit."""
        waiting = self._waiting.popleft()
        record(self.times.purgatory, max(self._clock_ns() - waiting.since_ns, 0))
        return waiting

    def _run(self, event: Event[S]) -> None:
        stats = self.stats.setdefault(event.name, EventStats())
        start, times = self._clock_ns(), self.times
        record(times.queue, max(start - event.queued_ns, 0))
        times.started += 1
        try:
            if event.deadline_ms is not None and self._now_ms() >= event.deadline_ms:
                times.timed_out += 1
                raise RequestTimedOut(f"{event.name} timed out in the queue")
            assert self._state is not None
            decision = event.decide(self._state)
            state: S = self._state if decision.state is None else decision.state
            if decision.records:
                self.decided_ns = self._clock_ns()
                self._last_offset = self._append(decision.records, decision.atomic)
                state = self._apply(state, decision.records, self._last_offset)
            self._state = state
            if decision.timers:
                self._set_timers(decision.timers)
        except ApiError as error:
            stats.failed += 1
            event.reply(error)
        except Exception as error:
            stats.failed += 1
            logger.error("Event %s failed", event.name, exc_info=error)
            event.reply(UnknownServerError())
        else:
            # Even without records, a reply may depend on earlier ones that are not committed yet.
            waiting = _Waiting(
                self._last_offset, self._now_ms(), self._clock_ns(), event.reply, decision.reply, decision.answers
            )
            if self._last_offset <= self._committed_offset:
                record(times.purgatory, 0)
                waiting.succeed()
            else:
                self._waiting.append(waiting)
        finally:
            took = self._clock_ns() - start
            stats.count += 1
            stats.total_ns += took
            stats.max_ns = max(stats.max_ns, took)
            record(times.processing, took)
            times.busy_ns += took
