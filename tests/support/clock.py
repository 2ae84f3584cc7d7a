"""Simulated time for tests of code that schedules calls on an event loop."""

import asyncio
from collections.abc import Callable
from typing import cast

from ottla.replication.runtime import Runtime, Spawn
from ottla.storage.log_environment import InlineBackground
from ottla.storage.threads import Threads


class Call:
    """A scheduled call, which can be cancelled."""

    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """Simulated time that only the test advances, with scheduled calls."""

    def __init__(self, ms: int = 1000) -> None:
        self.ms = ms
        self._calls: list[Call] = []

    @property
    def calls(self) -> list[Call]:
        """The calls that are scheduled and not cancelled."""
        self._calls = [call for call in self._calls if not call.is_cancelled]
        return self._calls

    def now_ms(self) -> int:
        return self.ms

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Call:
        call = Call(self.ms + delay * 1000, callback)
        self._calls.append(call)
        return call

    def pass_time(self, ms: int) -> None:
        end = self.ms + ms
        while due := [call for call in self.calls if call.due_ms <= end]:
            first = min(due, key=lambda call: call.due_ms)
            self._calls.remove(first)
            self.ms = max(self.ms, round(first.due_ms))
            first.callback()
        self.ms = end


def runtime_on(clock: Clock, spawn: Spawn | None = None) -> Runtime:
    """Return a runtime on simulated time whose threads run their work immediately."""
    loop = cast(asyncio.AbstractEventLoop, clock)
    return Runtime(loop, now_ms=clock.now_ms, threads=cast(Threads, InlineBackground()), spawn=spawn)
