"""The scheduler of compaction: one pass at a time, in the background.

The dirtiest log that is due is cleaned first. A pass reads and writes in a thread; the owner's thread only installs its
result. A log with corrupt bytes is reported and not cleaned any more.
"""

import logging
from functools import partial
from time import monotonic, sleep

from ottla.storage.compaction.cleanable import find_cleanable_range
from ottla.storage.compaction.cleaner import Cleaned, CleaningAborted, Plan, clean, install, plan
from ottla.storage.directories.log_directory import LogDirectory, TopicPartition
from ottla.storage.directories.logs import Logs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.scan import CorruptLog

logger = logging.getLogger(__name__)


class Throttle:
    """Limits the bytes per second of a pass (`log.cleaner.io.max.bytes.per.second`)."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._start = monotonic()
        self._bytes = 0

    def __call__(self, count: int) -> None:
        self._bytes += count
        ahead = self._bytes / self.bytes_per_second - (monotonic() - self._start)
        if ahead > 0.01:
            sleep(ahead)


class Compaction:
    """The compaction of all logs of a node."""

    def __init__(
        self, logs: Logs, *, memory_bytes: int = 134_217_728, bytes_per_second: float = float("inf"), load: float = 0.9
    ) -> None:
        self._logs = logs
        self.memory_bytes = memory_bytes
        self.bytes_per_second = bytes_per_second
        self.load = load
        self.uncleanable: dict[TopicPartition, str] = {}
        """The logs that are not cleaned any more, and why."""
        self.passes = 0
        self._running: tuple[PartitionLog, Plan] | None = None
        logs.on_change = self.cancel

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start_next(self, now_ms: int) -> bool:
        """Start to clean the dirtiest log that is due, unless a pass is running; return whether a pass started."""
        if self._running is not None:
            return False
        self._forget_deleted()
        best: tuple[float, LogDirectory, PartitionLog] | None = None
        for directory in self._logs.directories:
            if directory.is_online:
                for name, log in directory.logs.items():
                    if not log.settings.compact or name in self.uncleanable:
                        continue
                    cleanable = find_cleanable_range(log, directory.cleaned_to.get(name), now_ms)
                    if cleanable.is_due(log.settings) and (best is None or cleanable.ratio > best[0]):
                        best = cleanable.ratio, directory, log
        if best is None:
            return False
        _, directory, log = best
        work = plan(log, first_dirty_offset=directory.cleaned_to.get((log.topic, log.partition)), now_ms=now_ms)
        if work is None:
            return False
        self._running = log, work
        log.environment.background.run(
            partial(self._clean, work), partial(self._install, directory, log), partial(self._on_failure, directory)
        )
        return True

    def _forget_deleted(self) -> None:
        """Forget deleted logs: a new log of the same name may be cleaned."""
        for name in [name for name in self.uncleanable if self._logs.directory_of(*name) is None]:
            del self.uncleanable[name]

    def cancel(self, log: PartitionLog) -> None:
        """Cancel a pass over a log that will be truncated, moved or deleted."""
        if self._running is not None and self._running[0] is log:
            self._running[1].cancel()

    def _clean(self, work: Plan) -> Cleaned | CorruptLog | CleaningAborted:
        throttle = None if self.bytes_per_second == float("inf") else Throttle(self.bytes_per_second)
        try:
            return clean(work, memory_bytes=self.memory_bytes, load_factor=self.load, throttle=throttle)
        except (CorruptLog, CleaningAborted) as reason:
            return reason

    def _install(
        self, directory: LogDirectory, log: PartitionLog, result: Cleaned | CorruptLog | CleaningAborted
    ) -> None:
        name = log.topic, log.partition
        if isinstance(result, Cleaned) and directory.is_online:
            cleaned_to = install(log, result)
            if cleaned_to is not None:
                on_settled = partial(self._on_settled, directory, name, cleaned_to)
                log.environment.background.run(result.settle, on_settled, partial(self._on_failure, directory))
                return
        elif isinstance(result, CleaningAborted):
            logger.info("Cleaning of %s was aborted: %s", log, result)
        elif isinstance(result, CorruptLog):
            logger.error("Stopped compacting %s-%d: %s", *name, result)
            self.uncleanable[name] = str(result)
        self._running = None

    def _on_settled(self, directory: LogDirectory, name: TopicPartition, cleaned_to: int, _: None) -> None:
        self._running = None
        self.passes += 1
        if name in directory.logs:
            directory.cleaned_to[name] = cleaned_to
            directory.checkpoint_cleaned()

    def _on_failure(self, directory: LogDirectory, error: OSError) -> None:
        self._running = None
        directory.fail(error)
