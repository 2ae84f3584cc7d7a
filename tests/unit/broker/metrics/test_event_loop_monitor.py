"""Idle ratios of request handlers and the lag of the event loop, on a simulated clock."""

import asyncio

from ottla.broker.metrics.event_loop_monitor import EventLoopMonitor
from ottla.broker.metrics.family import render
from ottla.storage.state_machine.histogram import total
from tests.support.exposition import Exposition

SECOND = 1_000_000_000


class Workers:
    """The workers of a role, with busy times that the test sets."""

    def __init__(self, workers: int = 8) -> None:
        self.workers = workers
        self.busy_ns = self.in_threads_ns = 0

    def held_ns(self) -> int:
        return self.in_threads_ns

    def share_ns(self) -> int:
        return self.in_threads_ns // self.workers


class Loop:
    """An event loop whose timers the test fires."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND
        self.due: list[object] = []

    def call_later(self, delay: float, callback: object) -> object:
        self.due.append(callback)
        return None


def test_idle_and_lag_over_a_quarter_of_an_hour() -> None:
    loop, workers = Loop(), Workers()
    monitor = EventLoopMonitor(loop, {"broker": workers}, clock_ns=lambda: loop.now_ns)  # type: ignore[arg-type]
    minutes: list[int] = []
    monitor.each_minute.append(lambda: minutes.append(loop.now_ns))
    monitor.start()
    assert monitor.idle(60) == 1.0
    for second in range(1000):
        loop.now_ns += SECOND + (100_000_000 if second == 10 else 0)
        workers.busy_ns += SECOND // 4 if second < 900 else SECOND // 2
        callback = loop.due.pop()
        assert callable(callback)
        callback()
    assert len(minutes) == 16
    assert abs(monitor.idle(60) - 0.5) < 0.01
    assert abs(monitor.idle(900) - (1 - (800 * 0.25 + 100 * 0.5) / 900)) < 0.01
    metrics = Exposition(render(monitor.families()))
    assert metrics["ottla_event_loop_lag_seconds_count"] == 1000
    assert metrics["ottla_event_loop_lag_seconds_sum"] == 0.1
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
    assert abs(metrics[f'{name}{{window="1m"}}'] - 0.5) < 0.01
    assert metrics["ottla_request_handler_busy_seconds_total"] == 275


def test_each_role_has_an_idle_ratio_and_so_has_the_node() -> None:
    """Threads keep a share of a pool busy; a handler on the event loop keeps all workers busy."""
    loop, broker, controller = Loop(), Workers(8), Workers(4)
    monitor = EventLoopMonitor(loop, {"broker": broker, "controller": controller}, clock_ns=lambda: loop.now_ns)  # type: ignore[arg-type]
    monitor.start()
    for _ in range(30):
        loop.now_ns += SECOND
        broker.busy_ns += SECOND // 10
        broker.in_threads_ns += 4 * SECOND
        controller.busy_ns += SECOND // 5
        callback = loop.due.pop()
        assert callable(callback)
        callback()
    metrics = Exposition(render(monitor.families()))
    prefix = "kafka_server_kafkarequesthandlerpool_"
    for name, idle in {
        "brokerrequesthandleravgidlepercent": 1 - 0.1 - 4 / 8,
        "controllerrequesthandleravgidlepercent": 1 - 0.2,
        "requesthandleravgidlepercent": 1 - 0.1 - 0.2 - 4 / 12,
    }.items():
        assert abs(metrics[f'{prefix}{name}{{window="1m"}}'] - idle) < 0.01, name
    assert abs(metrics["ottla_request_handler_busy_seconds_total"] - 30 * (0.1 + 4 + 0.2)) < 0.01


def test_a_blocked_event_loop_has_lag() -> None:
    async def test() -> None:
        monitor = EventLoopMonitor(asyncio.get_running_loop(), {})
        monitor.start()
        await asyncio.sleep(1.1)
        monitor.stop()
        assert total(monitor.lags) == 1

    asyncio.run(test())
