"""Periodic work of a node: retention, compaction, flushes, checkpoints, idle connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.broker.network.listener import Listener
from ottla.config.node_settings import NodeSettings
from ottla.replication.runtime import Runtime
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_MAX_DELAY_S = 24 * 3600.0


class Maintenance:
    """Runs each chore of a node at its interval."""

    def __init__(
        self,
        settings: NodeSettings,
        runtime: Runtime,
        logs: Logs,
        compaction: Compaction,
        listeners: Sequence[Listener],
    ) -> None:
        now_ms = runtime.now_ms
        self._loop = runtime.loop
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._listeners = listeners
        idle_ms = settings.limits.max_idle_ms
        self._chores: dict[str, tuple[float, Callable[[], object]]] = {
            "retention": (
                settings.number("log.retention.check.interval.ms") / 1000,
                lambda: logs.remove_expired(now_ms()),
            ),
            "compaction": (
                settings.number("log.cleaner.backoff.ms") / 1000,
                lambda: compaction.start_next(now_ms()),
            ),
            "flush": (
                settings.number("log.flush.scheduler.interval.ms") / 1000,
                lambda: logs.flush_by_time(now_ms()),
            ),
            "checkpoints": (
                settings.number("log.flush.offset.checkpoint.interval.ms") / 1000,
                logs.checkpoint,
            ),
            "high watermarks": (
                settings.number("replica.high.watermark.checkpoint.interval.ms") / 1000,
                logs.checkpoint_high_watermarks,
            ),
            "producers": (
                settings.number("producer.id.expiration.check.interval.ms") / 1000,
                lambda: logs.expire_producers(now_ms()),
            ),
            "idle connections": (max(min(idle_ms / 4000, 60.0), 0.1), self._close_idle),
        }

    def start(self) -> None:
        """Start the timers. Each chore first runs after its interval."""
        for name in self._chores:
            self._schedule(name)

    def change_interval(self, name: str, interval_s: float) -> None:
        """Change the interval of a chore."""
        old_s, work = self._chores[name]
        if interval_s == old_s:
            return
        self._chores[name] = interval_s, work
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()
            self._schedule(name)

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _schedule(self, name: str) -> None:
        interval_s, _ = self._chores[name]
        self._handles[name] = self._loop.call_later(min(interval_s, _MAX_DELAY_S), self._run, name)

    def _run(self, name: str) -> None:
        try:
            self._chores[name][1]()
        except Exception:
            logger.exception("periodic work failed: %s; retrying after its interval", name)
        self._schedule(name)

    def _close_idle(self) -> None:
        for listener in self._listeners:
            listener.close_idle()
