"""Idle ratios of request handlers and the lag of the event loop, measured by a timer that fires every second.

The idle ratios are Kafka's: one for the broker's pool of workers, one for the controller's, one for all. A pool is busy
while the event loop runs one of its handlers or coroutines, because no other can run then, and for the share of its
workers that threads keep busy. The lag is the delay of the timer, which is the delay of all work on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import Final, Protocol

from ottla.broker.metrics.family import Family, counter, gauge, histogram
from ottla.storage.state_machine.histogram import Counts, new_counts, record

_BEAT_S: Final = 1.0
_BEATS_PER_SAMPLE: Final = 5
_BEATS_PER_MINUTE: Final = 60
_WINDOWS_S: Final = {"1m": 60, "5m": 300, "15m": 900}
_FIRST_BITS, _LAST_BITS = 17, 33
"""The buckets of the lag range from 131 µs to 8.6 s."""


class Pool(Protocol):
    """The workers of one role."""

    workers: int
    busy_ns: int
    """The time that they have run on the event loop."""

    def held_ns(self) -> int:
        """Return the time that threads have worked for them, summed over all threads."""
        ...

    def share_ns(self) -> int:
        """Return the same as a share of the pool, without the time in which the event loop ran one of them."""
        ...


class EventLoopMonitor:
    """Measures how busy and how late the event loop is, and calls functions once a minute."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pools: Mapping[str, Pool],
        *,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._loop = loop
        self._pools = pools
        """By role."""
        self._clock_ns = clock_ns
        self.each_minute: list[Callable[[], None]] = []
        self.lags: Counts = new_counts()
        self._samples: deque[tuple[int, Mapping[str, tuple[int, int]]]] = deque(
            maxlen=max(_WINDOWS_S.values()) // _BEATS_PER_SAMPLE + 1
        )
        self._beats = 0
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._sample()
        self._schedule()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def idle(self, window_s: int, role: str | None = None) -> float:
        """Return the share of the last seconds in which the workers of a role, or of all roles, were free."""
        now_ns, busy = self._clock_ns(), self._busy()
        oldest_ns = now_ns - window_s * 1_000_000_000
        for sampled_ns, before in self._samples:
            if oldest_ns <= sampled_ns < now_ns:
                return min(max(1 - self._busy_between(before, busy, role) / (now_ns - sampled_ns), 0.0), 1.0)
        return 1.0

    def families(self) -> Iterator[Family]:
        """Yield idle ratios, busy time and lag."""
        prefix = "kafka_server_kafkarequesthandlerpool_"
        for role in (None, *self._pools):
            idle = gauge(
                f"{prefix}{role or ''}requesthandleravgidlepercent",
                f"Share of time in which the request workers {f'of the {role} ' if role else ''}were free.",
            )
            for name, window_s in _WINDOWS_S.items():
                idle.add(self.idle(window_s, role), {"window": name})
            yield idle
        busy = counter(
            "ottla_request_handler_busy_seconds_total",
            "Time spent on requests on the event loop and in threads, in seconds.",
        )
        busy.add(sum(pool.busy_ns + pool.held_ns() for pool in self._pools.values()) / 1e9)
        lag = histogram("ottla_event_loop_lag_seconds", "Delay of a timer on the event loop, in seconds.")
        lag.add_histogram(self.lags, _FIRST_BITS, _LAST_BITS, 1e9)
        yield from (busy, lag)

    def _busy(self) -> Mapping[str, tuple[int, int]]:
        """Return the time that each pool was busy on the event loop, and in threads."""
        return {role: (pool.busy_ns, pool.share_ns()) for role, pool in self._pools.items()}

    def _busy_between(
        self, before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], role: str | None
    ) -> float:
        roles = self._pools if role is None else (role,)
        workers = sum(self._pools[name].workers for name in roles)
        busy_ns = 0.0
        for name in roles:
            (loop_before, share_before), (loop_after, share_after) = before[name], after[name]
            share = self._pools[name].workers / workers
            busy_ns += loop_after - loop_before + (share_after - share_before) * share
        return busy_ns

    def _schedule(self) -> None:
        self._due_ns = self._clock_ns() + int(_BEAT_S * 1e9)
        self._handle = self._loop.call_later(_BEAT_S, self._beat)

    def _beat(self) -> None:
        record(self.lags, max(self._clock_ns() - self._due_ns, 0))
        self._beats += 1
        if not self._beats % _BEATS_PER_SAMPLE:
            self._sample()
        self._schedule()
        if not self._beats % _BEATS_PER_MINUTE:
            for action in self.each_minute:
                action()

    def _sample(self) -> None:
        self._samples.append((self._clock_ns(), self._busy()))
