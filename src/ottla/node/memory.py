"""Returns memory to the system after heavy requests.

The memory of a large batch is freed after the request, but glibc keeps most of it for later allocations: a node that
received a few large batches would hold it until it exits. So `malloc_trim` is called a while after the last heavy
request. Ordinary requests do not run here. Other C libraries return memory by themselves or have no such function.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

_TRIM_DELAY_S: Final = 1.0
"""How long memory is kept for further heavy work."""


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        return None
    return trim


trim: Final = _find_trim()
"""glibc's `malloc_trim`, which takes the number of bytes to keep; None with other C libraries."""


class MemoryTrimmer:
    """Runs heavy work in threads, and returns free memory when none has run for a while."""

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], object]], Any],
        in_thread: Callable[..., Awaitable[Any]],
        *,
        trim: Callable[[int], int] | None = trim,
    ) -> None:
        self._call_later = call_later
        self._in_thread = in_thread
        self._trim = trim
        self._timer: Any = None
        self._running = 0

    async def run(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may need much memory in a thread, and return its result."""
        self._running += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            return await self._in_thread(action, *arguments)
        finally:
            self._running -= 1
            if not self._running and self._trim is not None:
                self._timer = self._call_later(_TRIM_DELAY_S, self._start_trim)

    def _start_trim(self) -> None:
        """Trim in a thread. A foreign function does not hold the interpreter's lock, so the node keeps running."""
        self._timer = None
        assert self._trim is not None, "the timer is only set if there is a trim function"
        threading.Thread(target=self._trim, args=(0,), name="ottla-memory", daemon=True).start()
