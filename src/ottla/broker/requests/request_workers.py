"""The workers of one role of a node, broker or controller: `num.io.threads` of them.

The event loop handles most requests. Slow work, such as decompressing a batch, runs in a thread, while its request
keeps its worker. There are therefore as many threads as workers; each starts when it is first needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from threading import Condition, Thread, current_thread
from typing import Any, TypeVar

from ottla.broker.network.request import Request
from ottla.broker.network.request_channel import RequestChannel
from ottla.config.node_settings import NodeSettings
from ottla.replication.runtime import Runtime

T = TypeVar("T")


class WorkerThreads(Executor):
    """Threads for slow calls. Their number may change while they run."""

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
                raise RuntimeError("the worker threads take no more calls, because the node is stopping")
            self._calls.append((future, partial(function, *arguments, **named)))
            if self._idle < len(self._calls) and len(self._threads) < self._size:
                thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.add(thread)
                thread.start()
            self._changed.notify()
        return future

    def resize(self, size: int) -> None:
        """Change the number of threads. Excess threads end when they are done with their call."""
        with self._changed:
            self._size = size
            self._changed.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and wait for those that are running."""
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
            except BaseException as error:  # noqa: BLE001 (the caller that awaits the result gets it)
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del taken, future, call  # an idle thread must not keep a batch alive until its next call

    def _take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for a call; return None once this thread must end."""
        with self._changed:
            self._idle += 1
            while not (self._calls or self._is_closed or len(self._threads) > self._size):
                self._changed.wait()
            self._idle -= 1
            if len(self._threads) > self._size or not self._calls:
                self._threads = {thread for thread in self._threads if thread is not current_thread()}
                self._changed.notify()  # another waiting thread may take the call
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
        self.request_channel = RequestChannel(handle, workers=workers, capacity=capacity)
        self.threads = WorkerThreads(workers, f"ottla-{role}-worker")
        self._loop = runtime.loop
        self._spawn = runtime.spawn

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine of a handler. It occupies a worker while it runs, but not while it waits."""
        self._spawn(self.request_channel.follow(work))

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a slow function in a thread. The request occupies a worker until the function returns."""
        await self.request_channel.acquire()
        try:
            return await self._loop.run_in_executor(self.threads, function, *arguments)
        finally:
            self.request_channel.release()

    def resize(self, workers: int) -> None:
        """Change the number of workers and threads."""
        if workers != self.request_channel.workers:
            self.threads.resize(workers)
            self.request_channel.resize(workers)

    def close(self) -> None:
        """Cancel the calls that have not begun, and wait for the others."""
        self.threads.shutdown(cancel_futures=True)


class WorkerPools:
    """The workers of a node's roles. As in Kafka, the controller's do not wait for the broker's."""

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
