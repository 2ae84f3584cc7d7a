"""Memory goes back to the system when a heavy request is over.

What a large batch takes is freed when it has been looked at, but the C library keeps much of it for later requests: a
node that was sent a few large batches would hold their memory until it ends. So a while after the last piece of heavy
work, glibc is asked to return what is free (`malloc_trim`). Ordinary requests never come here. Other C libraries return
memory by themselves, or cannot be asked.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

_REST_S: Final = 1.0
"""How long the memory is kept for heavy work that follows."""


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        return None
    return trim


trim: Final = _find_trim()
"""glibc's function, which takes the bytes to keep; None where there is no such function."""


class Memory:
    """Watches heavy work, and returns memory when there was none for a while."""

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

    async def work(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """The result of an action that runs in a thread and may take much memory."""
        self._running += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            return await self._in_thread(action, *arguments)
        finally:
            self._running -= 1
            if not self._running and self._trim is not None:
                self._timer = self._call_later(_REST_S, self._give_back)

    def _give_back(self) -> None:
        """In a thread: others run on meanwhile, since a foreign function does not hold the interpreter's lock."""
        self._timer = None
        assert self._trim is not None, "it was there when the timer was set"
        threading.Thread(target=self._trim, args=(0,), name="ottla-memory", daemon=True).start()
