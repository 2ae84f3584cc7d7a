"""Slow work in real threads, for a node whose event loop owns the logs."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A Background over a few threads. `call_soon` must be safe to call from any of them."""

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
        """Do the work in a thread; then, in the owner's thread, call `done` with its result, or `failed`.

        Any other exception than an OSError is a bug: it is raised in the owner's thread.
        """

        def settle(future: Future[T]) -> None:
            self._call_soon(partial(_settle, future, done, failed))

        try:
            future = self._executor.submit(work)
        except RuntimeError:
            if not self._is_closed:
                raise
            return  # given up, as all that had not begun
        future.add_done_callback(settle)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call the action in the owner's thread after a while."""
        self._call_later(delay_ms / 1000, action)

    def close(self) -> None:
        """Wait for the work under way; what has not begun is given up."""
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
