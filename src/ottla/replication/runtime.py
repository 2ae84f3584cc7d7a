"""The runtime that the parts of a node share: event loop, wall clock, tasks, threads, and deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from ottla.replication.purgatory import Completions, Timer
from ottla.storage.threads import Threads

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a coroutine in the background."""


def wall_clock_ms() -> int:
    """Return the time since the Unix epoch."""
    return time.time_ns() // 1_000_000


class Runtime:
    """One event loop with everything that runs on it. Tests pass simulated parts."""

    __slots__ = ("_tasks", "completions", "loop", "now_ms", "random", "spawn", "threads", "timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        random: Random | None = None,
        threads: Threads | None = None,
        timer: Timer | None = None,
        spawn: Spawn | None = None,
    ) -> None:
        self.loop = loop
        self.now_ms = now_ms
        """The wall clock. It may jump; durations are measured with `loop.time()`."""
        self.random = random or Random()  # noqa: S311 (spreads load and creates topic ids, but no secrets)
        self.threads = threads or Threads(loop.call_soon_threadsafe, loop.call_later)
        """Threads for slow work on logs and snapshots."""
        self.completions = Completions()
        """Operations to wake when the current step of the loop is over."""
        self.timer = timer or Timer(loop.call_later, now_ms)
        """Deadlines of waiting requests."""
        self.spawn: Spawn = spawn or self._spawn
        self._tasks: set[asyncio.Task[None]] = set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. The loop itself holds tasks only weakly, so keep a reference."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
