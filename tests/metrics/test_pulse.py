"""How idle and how late the loop is, on a clock of the test's own."""

import asyncio

from ottla.metrics.counts import total
from ottla.metrics.family import render
from ottla.metrics.pulse import Pulse
from tests.metrics.exposition import Exposition

SECOND = 1_000_000_000


class Loop:
    """A loop whose timers the test calls, as late as it likes."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND
        self.busy_ns = 0
        self.due: list[object] = []

    def call_later(self, delay: float, callback: object) -> object:
        self.due.append(callback)
        return None


def test_idle_and_lag_over_a_quarter_of_an_hour() -> None:
    loop = Loop()
    pulse = Pulse(loop, lambda: loop.busy_ns, clock_ns=lambda: loop.now_ns)  # type: ignore[arg-type]
    minutes: list[int] = []
    pulse.each_minute.append(lambda: minutes.append(loop.now_ns))
    pulse.start()
    assert pulse.idle(60) == 1.0
    for second in range(1000):
        loop.now_ns += SECOND + (100_000_000 if second == 10 else 0)
        loop.busy_ns += SECOND // 4 if second < 900 else SECOND // 2
        callback = loop.due.pop()
        assert callable(callback)
        callback()
    assert len(minutes) == 16
    assert abs(pulse.idle(60) - 0.5) < 0.01
    assert abs(pulse.idle(900) - (1 - (800 * 0.25 + 100 * 0.5) / 900)) < 0.01
    told = Exposition(render(pulse.families()))
    assert told["ottla_event_loop_lag_seconds_count"] == 1000
    assert told["ottla_event_loop_lag_seconds_sum"] == 0.1
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
    assert abs(told[f'{name}{{window="1m"}}'] - 0.5) < 0.01
    assert told["ottla_request_handler_busy_seconds_total"] == 275


def test_a_loop_that_is_held_up_is_late() -> None:
    async def test() -> None:
        pulse = Pulse(asyncio.get_running_loop(), lambda: 0)
        pulse.start()
        await asyncio.sleep(1.1)
        pulse.stop()
        assert total(pulse.lags) == 1

    asyncio.run(test())
