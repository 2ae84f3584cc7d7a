"""Work that goes on by itself: a loop forgets tasks that nobody holds on to."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """The tasks of a node, held until they are done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work, and do not wait for it."""
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
