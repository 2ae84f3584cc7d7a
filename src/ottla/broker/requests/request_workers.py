"""The workers of one role of a node, broker or controller: `num.io.threads` of them.

Most requests are worked on by the event loop. What would keep it for too long, such as a batch that has to be
decompressed, goes on in a thread, and keeps its worker meanwhile; so there are as many threads as workers. They are
started when they are needed first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from threading import Condition, Thread, current_thread
from typing import Any, TypeVar

from ottla.broker.network.intake import Intake
from ottla.broker.network.request import Request
from ottla.config.node_settings import NodeSettings
from ottla.replication.runtime import Runtime

T = TypeVar("T")


class WorkerThreads(Executor):
    """Threads for calls that take long. Their number may change while they run."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = Condition()
        self._threads: set[Thread] = set()
        self._idle = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._threads)

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        """Call a function in a thread."""
        future: Future[T] = Future()
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the node is stopping; no more work is taken")
            self._calls.append((future, partial(function, *arguments, **named)))
            if self._idle < len(self._calls) and len(self._threads) < self._size:
                thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.add(thread)
                thread.start()
            self._changed.notify()
        return future

    def resize(self, size: int) -> None:
        """Have another number of threads: those that are too many end when they are done with their call."""
        with self._changed:
            self._size = size
            self._changed.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those under way."""
        with self._changed:
            self._is_closed = True
            if cancel_futures:
                for future, _ in self._calls:
                    future.cancel()
                self._calls.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        if wait:
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            future, call = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 (it is raised where the result is awaited)
                future.set_exception(error)
            else:
                future.set_result(result)
            del taken, future, call  # what a call worked on is not kept until the next one

    def _take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for a call; None once this thread is to end."""
        with self._changed:
            self._idle += 1
            while not (self._calls or self._is_closed or len(self._threads) > self._size):
                self._changed.wait()
            self._idle -= 1
            if len(self._threads) > self._size or not self._calls:
                self._threads = {thread for thread in self._threads if thread is not current_thread()}
                self._changed.notify()  # another may be waiting that can take the call
                return None
            return self._calls.popleft()


class RequestWorkers:
    """The queue, the workers and the threads of one role."""

    def __init__(
        self,
        handle: Callable[[Request], None],
        *,
        role: str,
        workers: int,
        capacity: int,
        runtime: Runtime,
    ) -> None:
        self.role = role
        self.intake = Intake(handle, workers=workers, capacity=capacity)
        self.threads = WorkerThreads(workers, f"ottla-{role}-worker")
        self._loop = runtime.loop
        self._spawn = runtime.spawn

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine of a request's handler; it occupies a worker while it runs, and not while it waits."""
        self._spawn(self.intake.follow(work))

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that takes long in a thread; the request keeps a worker for as long as the call takes."""
        await self.intake.acquire()
        try:
            return await self._loop.run_in_executor(self.threads, function, *arguments)
        finally:
            self.intake.release()

    def resize(self, workers: int) -> None:
        """Have another number of workers, and of threads."""
        if workers != self.intake.workers:
            self.threads.resize(workers)
            self.intake.resize(workers)

    def close(self) -> None:
        """Wait for the threads; what they have not begun is given up."""
        self.threads.shutdown(cancel_futures=True)


class Pools:
    """The workers of a node's roles: as in Kafka, those of its controller do not wait for those of its broker."""

    def __init__(
        self,
        handle: Callable[[Request], None],
        settings: NodeSettings,
        runtime: Runtime,
    ) -> None:
        self.broker, self.controller = (
            RequestWorkers(
                handle,
                role=role,
                workers=settings.num_io_threads,
                capacity=settings.queued_max_requests,
                runtime=runtime,
            )
            for role in ("broker", "controller")
        )
        roles = (self.broker, settings.is_broker), (self.controller, settings.is_controller)
        self.served = [pool for pool, is_served in roles if is_served]

    def close(self) -> None:
        """Wait for all threads."""
        for pool in self.served:
            pool.close()
