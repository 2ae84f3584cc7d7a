"""How busy and how late the event loop is: a timer that comes once a second and looks at the clock.

The idle ratio is that of Kafka's request handlers, of which this node has one: the loop. The lag is how much later than
asked for a timer is called, which is what everybody waits who wants something of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Final

from ottla.metrics.counts import Counts, new_counts, record
from ottla.metrics.family import Family, counter, gauge, histogram

_BEAT_S: Final = 1.0
_BEATS_A_SAMPLE: Final = 5
_BEATS_A_MINUTE: Final = 60
_WINDOWS_S: Final = {"1m": 60, "5m": 300, "15m": 900}
_FIRST_BITS, _LAST_BITS = 17, 33
"""The lag's buckets reach from 131 µs to 8.6 s."""


class Pulse:
    """The heartbeat of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        busy_ns: Callable[[], int],
        *,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._loop = loop
        self._busy_ns = busy_ns
        self._clock_ns = clock_ns
        self.each_minute: list[Callable[[], None]] = []
        self.lags: Counts = new_counts()
        self._samples: deque[tuple[int, int]] = deque(maxlen=max(_WINDOWS_S.values()) // _BEATS_A_SAMPLE + 1)
        self._beats = 0
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._sample()
        self._schedule()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def idle(self, window_s: int) -> float:
        """The share of the last so many seconds in which no handler ran."""
        now_ns, busy_ns = self._clock_ns(), self._busy_ns()
        oldest_ns = now_ns - window_s * 1_000_000_000
        for at_ns, busy_before_ns in self._samples:
            if at_ns >= oldest_ns and at_ns < now_ns:
                return min(max(1 - (busy_ns - busy_before_ns) / (now_ns - at_ns), 0.0), 1.0)
        return 1.0

    def families(self) -> Iterator[Family]:
        """Idle ratio, busy time and lag."""
        idle = gauge(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
            "Share of time in which no request was handled.",
        )
        for name, window_s in _WINDOWS_S.items():
            idle.add(self.idle(window_s), {"window": name})
        busy = counter("ottla_request_handler_busy_seconds_total", "Time in which requests were handled.")
        busy.add(self._busy_ns() / 1e9)
        lag = histogram("ottla_event_loop_lag_seconds", "How much later than asked for timers are called.")
        lag.add_histogram(self.lags, _FIRST_BITS, _LAST_BITS, 1e9)
        yield from (idle, busy, lag)

    def _schedule(self) -> None:
        self._due_ns = self._clock_ns() + int(_BEAT_S * 1e9)
        self._handle = self._loop.call_later(_BEAT_S, self._beat)

    def _beat(self) -> None:
        record(self.lags, max(self._clock_ns() - self._due_ns, 0))
        self._beats += 1
        if not self._beats % _BEATS_A_SAMPLE:
            self._sample()
        self._schedule()
        if not self._beats % _BEATS_A_MINUTE:
            for action in self.each_minute:
                action()

    def _sample(self) -> None:
        self._samples.append((self._clock_ns(), self._busy_ns()))
