"""Truncation of followers' logs, with as little waiting of the event loop for the disk as possible.

A truncation must be durable before anything is appended, and it syncs the log file, which takes long if much of it is
not synced. So the background syncs the log first. Then the logs are truncated, a few in each step of the event loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.protocol.errors import StorageFailed
from ottla.replication.partition_fetch_state import PartitionFetchState
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_IN_ONE_STEP = 8

CallSoon = Callable[[Callable[[], None]], object]
Done = Callable[[PartitionFetchState, Exception | None], None]


class TruncationQueue:
    """The logs of a broker that are to be truncated."""

    def __init__(self, logs: Logs, call_soon: CallSoon, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._ready: deque[tuple[PartitionFetchState, int, Done]] = deque()
        self._is_scheduled = False

    def truncate(self, state: PartitionFetchState, offset: int, done: Done) -> None:
        """Truncate a log to an offset and then call `done`, now or later, unless the partition is no longer fetched."""
        log = state.partition.log
        if offset >= log.log_end_offset:
            # An epoch that began here without a record must not conflict with what the new leader sends.
            log.epochs.truncate_from_end(log.log_end_offset)
            done(state, None)
            return
        if offset < log.high_watermark:
            logger.warning("Truncating %s to %d, below its high watermark %d", log, offset, log.high_watermark)
        log.flusher.when_durable(log.log_end_offset, partial(self._add, state, offset, done))

    def _add(self, state: PartitionFetchState, offset: int, done: Done) -> None:
        self._ready.append((state, offset, done))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._step)

    def _step(self) -> None:
        self._is_scheduled = False
        taken = [self._ready.popleft() for _ in range(min(_IN_ONE_STEP, len(self._ready)))]
        wanted = [entry for entry in taken if not entry[0].is_gone]
        failure = self._truncate([(state, offset) for state, offset, _ in wanted])
        for state, _, done in wanted:
            done(state, None if self._is_online(state) else failure)
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._step)

    def _truncate(self, wanted: list[tuple[PartitionFetchState, int]]) -> OSError | StorageFailed | None:
        """Truncate logs, with one checkpoint for all. If a directory fails, truncate the logs in the others."""
        left = dict(wanted)
        failure: OSError | StorageFailed | None = None
        while left:
            names = {(state.partition.topic, state.partition.index): offset for state, offset in left.items()}
            shown = ", ".join(f"{topic}-{index} to {offset}" for (topic, index), offset in names.items())
            logger.info("Truncating logs that diverge from their leaders': %s", shown)
            try:
                self._logs.truncate(names, now_ms=self._now_ms())
            except (OSError, StorageFailed) as error:
                failure = error
                online = {state: offset for state, offset in left.items() if self._is_online(state)}
                if len(online) == len(left):
                    raise
                left = online
            else:
                break
        return failure

    def _is_online(self, state: PartitionFetchState) -> bool:
        partition = state.partition
        directory = self._logs.directory_of(partition.topic, partition.index)
        return directory is not None and directory.is_online
