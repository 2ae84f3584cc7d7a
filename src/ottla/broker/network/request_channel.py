"""The queue of requests and the workers that take from it.

A worker is a permission, not a thread: there is one event loop, and a handler runs on it from start to end. A request
occupies a worker while its handler runs, until its coroutine takes its first step, and while a thread works for it. A
request that waits for others (replication, more bytes, a coordinator, the controller) occupies none. So the queue fills
when slow work takes all workers. Once it is full, no connection is read: bytes stay in the sockets, and finally in the
clients. Connections that wait for room get it in the order in which they asked.

A handler may answer other requests, whose connections then hand over their next ones. Those run inside that handler, a
few deep, or wait in the queue until the outermost handler has returned.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter_ns
from typing import Any, Final

from ottla.broker.network.request import Request

logger = logging.getLogger(__name__)

_DEEPEST: Final = 8
"""Handlers that may run inside each other. Each takes about twenty stack frames."""
_AT_A_TIME: Final = 64
"""Requests to take from the queue before the event loop gets a turn."""


class RequestChannel:
    """The queue and the workers of one role of a node, broker or controller; all its listeners share them."""

    def __init__(self, handle: Callable[[Request], None], *, workers: int = 8, capacity: int = 500) -> None:
        self._handle = handle
        self.workers = workers
        self.capacity = capacity
        self.busy = 0
        """Workers in use."""
        self.held = 0
        """Workers in use by requests whose handler has returned: a coroutine is about to begin, or a thread works."""
        self.queue: deque[Request] = deque()
        self.is_full = False
        """Whether the queue is full. No connection is read then."""
        self.blocked: dict[Callable[[], None], None] = {}
        """The connections that wait for room in the queue, as functions that resume them, first come, first served."""
        self.aborted = 0
        """Requests whose connection was closed because a defect left them without an answer."""
        self.busy_ns = 0
        """The time that handlers and coroutines have run on the event loop, for the idle ratio."""
        self._limit = min(workers, _DEEPEST)
        self._returning: deque[asyncio.Future[None]] = deque()
        """Requests that started earlier and need a worker again. They go ahead of the queue."""
        self._is_draining = False
        self._is_drain_due = False
        self._held_ns = 0
        self._share_ns = 0.0
        self._counted_ns = perf_counter_ns()
        self._counted_busy_ns = 0

    def submit(self, request: Request, *, is_next: bool = False) -> None:
        """Run a request now if a worker is free or it is the next in the queue; otherwise queue it with its bytes."""
        queue = self.queue
        if (queue or self.busy >= self._limit) and not is_next:
            request.keep()
            queue.append(request)
            self.is_full = len(queue) >= self.capacity
            return
        self.busy += 1
        before = self.busy_ns
        start = request.started_ns = perf_counter_ns()
        try:
            self._handle(request)
        except Exception:
            logger.exception("%r on %r failed outside its handler; closing the connection", request, request.connection)
            request.abort("a request failed without an answer; the log of the node has the details")
        finally:
            end = request.handled_ns = perf_counter_ns()
            # Requests that run inside this handler are part of its time.
            self.busy_ns = before + end - start
            self.busy -= 1
        if queue:
            self._drain_if_outermost()

    def hold(self) -> None:
        """Keep the worker of the current request after its handler returns."""
        self._count_held()
        self.busy += 1
        self.held += 1
        self._limit = min(self.workers, self.held + _DEEPEST)

    async def acquire(self) -> None:
        """Get a worker for a request whose handler has returned; wait while all workers are held."""
        if self.held < self.workers:
            self.hold()
            return
        turn = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it had got a worker already
            raise

    def release(self) -> None:
        """Return a held worker, and run the requests that wait for one."""
        self._count_held()
        while self._returning and self.held <= self.workers:
            turn = self._returning.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._return_worker()
        if self.queue:
            self._drain_if_outermost()

    def resize(self, workers: int) -> None:
        """Change the number of workers while running."""
        self._count_held()
        self.workers = workers
        self._limit = min(workers, self.held + _DEEPEST)
        while self._returning and self.held < workers:
            turn = self._returning.popleft()
            if not turn.done():
                self.hold()
                turn.set_result(None)
        if self.queue:
            self._drain_if_outermost()

    def follow(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Hold a worker until a request's coroutine begins, and count its steps as busy time."""
        self.hold()
        return _Steps(self, work)

    def drain(self) -> None:
        """Run queued requests while workers are free, and let waiting connections fill the room."""
        self._is_drain_due = False
        if self._is_draining:
            return
        queue = self.queue
        self._is_draining = True
        try:
            for _ in range(_AT_A_TIME):
                if queue and self.busy < self._limit:
                    request = queue.popleft()
                    self.is_full = len(queue) >= self.capacity
                    if self.blocked:
                        self._fill()
                    self.submit(request, is_next=True)
                elif self.blocked and not self.is_full:
                    self._fill()
                else:
                    return
        finally:
            self._is_draining = False
        self.drain_soon()

    def drain_soon(self) -> None:
        """Drain after the current callback of the event loop."""
        if not self._is_drain_due:
            self._is_drain_due = True
            asyncio.get_running_loop().call_soon(self.drain)

    def held_ns(self) -> int:
        """Return the time that workers have been held, summed over all workers."""
        self._count_held()
        return self._held_ns

    def share_ns(self) -> int:
        """Return the time that workers were held while the event loop was free, as a share of all workers."""
        self._count_held()
        return int(self._share_ns)

    def _fill(self) -> None:
        """Give the room in the queue to waiting connections, ahead of requests that follow answers."""
        limit, self._limit = self._limit, 0  # their requests are queued, too
        try:
            while self.blocked and not self.is_full:
                resume = next(iter(self.blocked))
                del self.blocked[resume]
                resume()
        finally:
            self._limit = limit

    def _drain_if_outermost(self) -> None:
        """Drain unless this call comes from inside a handler or a coroutine, which drains when it returns."""
        if self.busy == self.held and not self._is_draining:
            self.drain()

    def _return_worker(self) -> None:
        self.busy -= 1
        self.held -= 1
        self._limit = min(self.workers, self.held + _DEEPEST)

    def _begin_step(self, *, is_first: bool) -> None:
        """Count a coroutine that continues, with the worker that was held for its first step or with another."""
        if is_first:
            self._count_held()
            self._return_worker()
        self.busy += 1

    def _end_step(self) -> None:
        self.busy -= 1
        if self.queue and self.busy == self.held:
            self.drain_soon()

    def _count_held(self) -> None:
        """Add up the time that workers were held, before their number changes."""
        now_ns, busy_ns, held = perf_counter_ns(), self.busy_ns, self.held
        if held:
            elapsed_ns = now_ns - self._counted_ns
            # While the event loop runs a handler, no worker is free.
            free_ns = max(elapsed_ns - (busy_ns - self._counted_busy_ns), 0)
            self._held_ns += elapsed_ns * held
            self._share_ns += free_ns * min(held / self.workers, 1)
        self._counted_ns, self._counted_busy_ns = now_ns, busy_ns


class _Steps(Coroutine[Any, Any, None]):
    """A request's coroutine that counts its steps, because each occupies the event loop as a handler does."""

    __slots__ = ("_channel", "_has_begun", "_work")

    def __init__(self, channel: RequestChannel, work: Coroutine[Any, Any, None]) -> None:
        self._channel = channel
        self._work = work
        self._has_begun = False

    def send(self, value: None, /) -> Any:
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        if not self._has_begun:
            self.send(None)  # cancelled before it began; it begins so that it can clean up
        return self._step(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()

    def _step(self, resume: Callable[..., Any], *arguments: Any) -> Any:
        channel = self._channel
        channel._begin_step(is_first=not self._has_begun)
        self._has_begun = True
        before, start = channel.busy_ns, perf_counter_ns()
        try:
            return resume(*arguments)
        finally:
            channel.busy_ns = before + perf_counter_ns() - start
            channel._end_step()
