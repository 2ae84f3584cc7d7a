"""Syncs a log in the background, one sync at a time.

Closed segments are synced once, with all their files. Of the active segment only the log file is synced, because
recovery rebuilds the rest from its batches. Leader epochs come first: they are the only data about synced batches that
recovery does not read again. File names are synced once for each new segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.disk import Disk, LogFile
from ottla.storage.log.epochs import LeaderEpochs
from ottla.storage.log.producer_snapshot import snapshot_name
from ottla.storage.log.segment import SUFFIXES, Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


class LogLocation(NamedTuple):
    """The active segment and the log's directory."""

    active: Segment
    directory: str


class Flush:
    """One sync: prepared by the log's owner, and run in a thread, which touches nothing of the log."""

    def __init__(self, log: PartitionLog, *, names: bool = True) -> None:
        self._disk: Disk = log.environment.disk
        self._directory = log.directory
        self._names = names
        self.location = LogLocation(log.active, log.directory)
        self._epochs: LeaderEpochs = log.epochs
        self.end_offset = log.log_end_offset
        # If the recovery point is a segment's base offset, the segment before it may have new index entries.
        first = log.segment_at(log.recovery_point - 1)
        self._logs: list[LogFile] = [segment.file for segment in log.segments[first:]]
        self._others = [segment.path(suffix) for segment in log.segments[first:-1] for suffix in SUFFIXES[1:]]
        self._others += [f"{log.directory}/{snapshot_name(segment.base_offset)}" for segment in log.segments[first:]]

    def run(self) -> Flush:
        """Sync everything."""
        try:
            self._epochs.flush(self._disk, self._directory)
            for log in self._logs:
                self._disk.sync(log.number)
            for path in self._others:
                sync_path(self._disk, path)
            if self._names:
                self._disk.sync_dir(self._directory)
                # A new partition's directory must not be lost with all that is in it.
                self._disk.sync_dir(self._directory.rpartition("/")[0] or "/")
        except FileNotFoundError:
            # The directory was renamed, because the topic was deleted or moved: no sync is needed.
            if self._disk.exists(self._directory):
                raise
        return self


class Flusher:
    """The syncs of one log: one at a time. A request during a sync starts another one after it."""

    __slots__ = (
        "_is_closed",
        "_is_due_again",
        "_is_running",
        "_is_stale",
        "_log",
        "_names_synced_at",
        "_waiting",
        "failure",
    )

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._is_running = False
        self._is_due_again = False
        self._is_stale = False
        self._is_closed = False
        self._names_synced_at: LogLocation | None = None
        """The location for which file names were last synced; they are durable until it changes."""
        self._waiting: tuple[tuple[int, Callable[[], None]], ...] = ()
        self.failure: OSError | None = None
        """Why no more syncs are run."""

    def start(self) -> None:
        """Sync the log as it is now, after a sync that is already running."""
        if self._is_closed:
            return
        if self._is_running:
            self._is_due_again = True
            return
        self._is_running = True
        self._is_due_again = self._is_stale = False
        log = self._log
        names = self._names_synced_at != LogLocation(log.active, log.directory)
        log.environment.background.run(Flush(log, names=names).run, self._done, self._failed)

    def when_durable(self, offset: int, action: Callable[[], None]) -> None:
        """Call the action once everything below the offset is durable."""
        if offset <= self._log.recovery_point:
            action()
            return
        assert offset <= self._log.log_end_offset, f"{self._log} does not reach {offset}"
        self._waiting += ((offset, action),)
        self.start()

    def close(self) -> None:
        """Start no more syncs: the log is out of service, and its files may be deleted."""
        self._is_closed = True

    def on_truncated(self) -> None:
        """Ignore a running sync after a truncation: it may have synced removed bytes, and not those in their place."""
        self._is_stale = True
        self._names_synced_at = None
        end = self._log.log_end_offset
        self._waiting = tuple(waiting for waiting in self._waiting if waiting[0] <= end)

    def _failed(self, error: OSError) -> None:
        # A retry would prove nothing: Linux drops the dirty pages of a failed sync. The directory goes offline instead.
        self.failure = error
        self._waiting = ()
        self._log.environment.on_failure(error)

    def _done(self, flush: Flush) -> None:
        self._is_running = False
        log = self._log
        if not self._is_stale:
            self._names_synced_at = flush.location
            log.recovery_point = max(log.recovery_point, flush.end_offset)
            ready = [action for offset, action in self._waiting if offset <= flush.end_offset]
            self._waiting = tuple(waiting for waiting in self._waiting if waiting[0] > flush.end_offset)
            for action in ready:
                action()
        if self._waiting or self._is_due_again:
            self.start()


def sync_path(disk: Disk, path: str) -> None:
    """Sync a file by its path, if it still exists."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        disk.sync(file)
    finally:
        disk.close(file)
