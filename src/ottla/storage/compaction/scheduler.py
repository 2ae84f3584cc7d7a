"""Which log is compacted next, one pass at a time, in the background.

Of the logs that are due, the dirtiest goes first. A pass reads and writes in a thread; the owner's thread only puts its
result in place. A log that cannot be cleaned, because its bytes are not right, is left alone from then on and named.
"""

import logging
from functools import partial
from time import monotonic, sleep

from ottla.storage.compaction.cleanable import find_cleanable_range
from ottla.storage.compaction.cleaner import Cleaned, CleaningAborted, Plan, clean, install, plan
from ottla.storage.directories.log_directory import LogDirectory, Name
from ottla.storage.directories.logs import Logs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.scan import CorruptLog

logger = logging.getLogger(__name__)


class Throttle:
    """Holds a pass to so many bytes a second (`log.cleaner.io.max.bytes.per.second`)."""

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
        self.uncleanable: dict[Name, str] = {}
        """Logs that are left alone, and why."""
        self.passes = 0
        self._running: tuple[PartitionLog, Plan] | None = None
        logs.on_change = self.cancel

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start_next(self, now_ms: int) -> bool:
        """Begin to clean the dirtiest log that is due, unless one is being cleaned; whether a pass began."""
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
            partial(self._clean, work), partial(self._install, directory, log), partial(self._failed, directory)
        )
        return True

    def _forget_deleted(self) -> None:
        """A log that is made later under the name of one that could not be compacted has other bytes."""
        for name in [name for name in self.uncleanable if self._logs.directory_of(*name) is None]:
            del self.uncleanable[name]

    def cancel(self, log: PartitionLog) -> None:
        """The log is to be cut, moved or deleted: a pass over it must not be put in place."""
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
                settled = partial(self._settled, directory, name, cleaned_to)
                log.environment.background.run(result.settle, settled, partial(self._failed, directory))
                return
        elif isinstance(result, CleaningAborted):
            logger.info("%s was not cleaned: %s", log, result)
        elif isinstance(result, CorruptLog):
            logger.error("%s-%d is not compacted any more: %s", *name, result)
            self.uncleanable[name] = str(result)
        self._running = None

    def _settled(self, directory: LogDirectory, name: Name, cleaned_to: int, _: None) -> None:
        self._running = None
        self.passes += 1
        if name in directory.logs:
            directory.cleaned_to[name] = cleaned_to
            directory.checkpoint_cleaned()

    def _failed(self, directory: LogDirectory, error: OSError) -> None:
        self._running = None
        directory.fail(error)
