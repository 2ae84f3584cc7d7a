"""A thread pool for slow work, for a node whose event loop owns the logs."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A Background on a thread pool. `call_soon` must be thread-safe."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        *,
        workers: int = 4,
    ) -> None:
        self._call_soon = call_soon
        self._call_later = call_later
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="ottla-log")
        self._is_closed = False

    def run(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
        """Run the work in a thread; then, in the owner's thread, call `done` with its result, or `failed`.

        Any exception other than an OSError is a bug and is raised in the owner's thread.
        """

        def settle(future: Future[T]) -> None:
            self._call_soon(partial(_settle, future, done, failed))

        try:
            future = self._executor.submit(work)
        except RuntimeError:
            if not self._is_closed:
                raise
            return  # dropped, like all work that was not started
        future.add_done_callback(settle)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call the action in the owner's thread after a delay."""
        self._call_later(delay_ms / 1000, action)

    def close(self) -> None:
        """Wait for running work; drop work that was not started."""
        self._is_closed = True
        self._executor.shutdown(cancel_futures=True)


def _settle(future: Future[T], done: Callable[[T], None], failed: Callable[[OSError], None]) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if isinstance(error, OSError):
        failed(error)
    else:
        done(future.result())
