"""When a request runs: at once while a worker is free, otherwise in its turn; a full queue stops the sockets.

A worker is a permission, not a thread: there is one loop, and a handler runs on it from start to end. What waits for
others (replication, more bytes, a coordinator) is no longer being worked on and holds no worker; only work that goes on
in a thread does. So the queue fills when slow work takes all workers, and then nobody is read from any more.
"""

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from ottla.net.request import Request


class Intake:
    """The requests of all connections of a node, in the order in which they came."""

    def __init__(self, handle: Callable[[Request], None], *, workers: int = 8, capacity: int = 500) -> None:
        self._handle = handle
        self.workers = workers
        self.capacity = capacity
        self.busy = 0
        self.queue: deque[Request] = deque()
        self.busy_ns = 0
        """How long handlers have run, for the idle ratio."""
        self.on_room: list[Callable[[], None]] = []
        """Called once there is room again, by those who were turned away."""

    @property
    def is_full(self) -> bool:
        return len(self.queue) >= self.capacity

    def submit(self, request: Request) -> None:
        """Run a request, now or in its turn. Its bytes stay valid until it is answered."""
        if self.busy < self.workers and not self.queue:
            self._run(request)
        else:
            request.keep()
            self.queue.append(request)

    def hold(self) -> None:
        """Keep the worker of the request that is being handled beyond the handler's return."""
        self.busy += 1

    def release(self) -> None:
        """Give a worker back that was kept, and let those run who wait for one."""
        self.busy -= 1
        self.drain()

    def resize(self, workers: int) -> None:
        """Change the number of workers while running."""
        self.workers = workers
        self.drain()

    def drain(self) -> None:
        """Run what waits while there are workers for it."""
        queue = self.queue
        was_full = len(queue) >= self.capacity
        while queue and self.busy < self.workers:
            self._run(queue.popleft())
        if was_full and len(queue) < self.capacity:
            waiting, self.on_room = self.on_room, []
            for resume in waiting:
                resume()

    def _run(self, request: Request) -> None:
        self.busy += 1
        before = self.busy_ns
        start = request.started_ns = perf_counter_ns()
        try:
            self._handle(request)
        finally:
            end = request.handled_ns = perf_counter_ns()
            # A handler that answers others lets their next requests run inside of it: that time is in its own.
            self.busy_ns = before + end - start
            self.busy -= 1
