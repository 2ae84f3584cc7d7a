"""Cutting the logs of followers, without making the event loop wait for the disk any longer than it must.

A cut must be durable before anything is appended, and it syncs the log's file: with much unsynced in it that takes a
while. So the log is synced aside first, and cut when there is little left to sync; a few logs in each step.
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
    """The logs of a broker that are to be cut."""

    def __init__(self, logs: Logs, call_soon: CallSoon, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._ready: deque[tuple[PartitionFetchState, int, Done]] = deque()
        self._is_scheduled = False

    def truncate(self, state: PartitionFetchState, offset: int, done: Done) -> None:
        """Cut a log at an offset; `done` is called when that is over, now or later, unless nobody wants it any more."""
        log = state.partition.log
        if offset >= log.log_end_offset:
            # A term that was begun here, without a record, must not stand in the way of what the new leader sends.
            log.epochs.truncate_from_end(log.log_end_offset)
            done(state, None)
            return
        if offset < log.high_watermark:
            logger.warning("%s is cut at %d, below its high watermark %d", log, offset, log.high_watermark)
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
        """Cut logs, with one checkpoint for all; what failed took its whole directory along, and perhaps only that."""
        left = dict(wanted)
        failure: OSError | StorageFailed | None = None
        while left:
            names = {(each.partition.topic, each.partition.index): offset for each, offset in left.items()}
            logger.info("cut where the leader's log and the one here part: %s", names)
            try:
                self._logs.truncate(names, now_ms=self._now_ms())
            except (OSError, StorageFailed) as error:
                failure = error
                online = {each: offset for each, offset in left.items() if self._is_online(each)}
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
