"""All logs of a node in all its log directories, and their maintenance.

A partition's log is in one directory; its future log may be catching up in another. The node calls the maintenance
methods at intervals: retention, flushing by time, checkpoints, expiration of producers. None of them waits for a disk.
A directory that fails takes its logs offline; the others continue.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from ottla.protocol.errors import LogDirNotFound, StorageFailed
from ottla.storage.directories.log_directory import LogDirectory, TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import remove_expired
from ottla.storage.log.settings import LogSettings
from ottla.storage.log.truncation import truncate_fully, truncate_to

logger = logging.getLogger(__name__)


class DuplicateLog(Exception):
    """A partition has a log in two directories, and an operator must decide which one is valid."""

    def __init__(self, name: TopicPartition, one: str, other: str) -> None:
        super().__init__(f"{name[0]}-{name[1]} is in both {one} and {other}: move one of them away")


class Logs:
    """The logs of one node by topic and partition."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        assert directories, "a node has at least one log directory"
        self.directories = list(directories)
        self.on_change: Callable[[PartitionLog], None] = _ignore
        """Called before a log is truncated, moved or deleted. Compaction cancels its pass then."""

    def load(self, settings_of: Callable[[str], LogSettings], now_ms: int) -> None:
        """Open all logs of all directories. Raise DuplicateLog."""
        seen: dict[TopicPartition, LogDirectory] = {}
        for directory in self.directories:
            directory.load(settings_of, now_ms)
            for name in directory.logs:
                if name in seen:
                    raise DuplicateLog(name, seen[name].path, directory.path)
                seen[name] = directory

    def online(self) -> list[LogDirectory]:
        """Return the directories that are online. Raise StorageFailed if none is."""
        online = [directory for directory in self.directories if directory.is_online]
        if not online:
            raise StorageFailed("all log directories are offline")
        return online

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the directory of the partition's log, online or not."""
        name = topic, partition
        for directory in self.directories:
            if name in directory.logs:
                return directory
        return None

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the partition's log, or None. Raise StorageFailed if its disk failed or it is corrupt."""
        name = topic, partition
        for directory in self.directories:
            log = directory.logs.get(name)
            if log is not None:
                if directory.failure is not None:
                    raise StorageFailed(f"{directory.path} is offline: {directory.failure}")
                return log
            if name in directory.corrupt:
                raise StorageFailed(str(directory.corrupt[name]))
        return None

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the logs in online directories."""
        for directory in self.directories:
            if directory.is_online:
                yield from list(directory.logs.values())

    def create(
        self,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        topic_id: bytes | None,
        now_ms: int,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Create a log in the given directory, or else in the one with the fewest logs, preferring uncordoned ones."""
        online = self.online()
        if directory_id is None:
            open_ones = [directory for directory in online if not directory.is_cordoned] or online
            chosen = min(open_ones, key=lambda directory: len(directory.logs) + len(directory.futures))
        else:
            chosen = self._find(directory_id, online)
        return chosen.create(topic, partition, settings, topic_id=topic_id, now_ms=now_ms)

    def create_future(self, log: PartitionLog, directory_id: bytes, *, now_ms: int) -> PartitionLog:
        """Create an empty future log in another directory, to catch up with the log."""
        chosen = self._find(directory_id, self.online())
        return chosen.create(
            log.topic,
            log.partition,
            log.settings,
            topic_id=log.topic_id,
            now_ms=now_ms,
            start_offset=log.log_start_offset,
            future=True,
        )

    def promote_future(self, topic: str, partition: int) -> PartitionLog:
        """Replace the partition's log with its future log, which has caught up, and delete the old log."""
        name = topic, partition
        target = next(directory for directory in self.directories if name in directory.futures)
        source = self.directory_of(topic, partition)
        future = target.futures[name]
        if source is not None:
            current = source.logs[name]
            self.on_change(current)
            future.high_watermark = min(current.high_watermark, future.log_end_offset)
            cleaned_to = source.cleaned_to.get(name)
            source.delete(current)
            if cleaned_to is not None:
                target.cleaned_to[name] = cleaned_to
        return target.promote(topic, partition)

    def delete(self, topic: str, partition: int) -> None:
        """Take the partition's log and future log out of service, and delete their files later."""
        for directory in self.directories:
            for logs in (directory.logs, directory.futures):
                log = logs.get((topic, partition))
                if log is not None and directory.is_online:
                    self.on_change(log)
                    directory.delete(log)
            directory.corrupt.pop((topic, partition), None)

    def mark_strays(self, is_stray: Callable[[PartitionLog], bool]) -> list[PartitionLog]:
        """Take stray logs out of service, keep their files, and return the logs."""
        stray: list[tuple[LogDirectory, PartitionLog]] = []
        for directory in self.directories:
            if directory.is_online:
                stray += [
                    (directory, log) for log in (*directory.logs.values(), *directory.futures.values()) if is_stray(log)
                ]
        done = []
        for directory, log in stray:
            if directory.is_online:
                self.on_change(log)
                try:
                    directory.mark_stray(log)
                except OSError as error:  # the directory is offline now
                    logger.error("Could not rename stray log %s: %s", log, error)
                else:
                    done.append(log)
        return done

    def truncate(self, offsets: Mapping[TopicPartition, int], *, now_ms: int) -> None:
        """Truncate logs to offsets, as followers of a new leader do.

        The lower recovery points are durable when this returns: a start must not trust records that are appended later,
        but not synced.
        """
        touched: set[int] = set()
        for (topic, partition), offset in offsets.items():
            log = self.get(topic, partition)
            directory = self.directory_of(topic, partition)
            assert log is not None, f"{topic}-{partition} has no log to truncate"
            assert directory is not None
            self.on_change(log)
            expiration = directory.producer_expiration_ms
            if truncate_to(log, offset, now_ms=now_ms, producer_expiration_ms=expiration):
                touched.add(self.directories.index(directory))
        for number in touched:
            self.directories[number].checkpoint_recovery_points(wait=True)

    def truncate_fully_and_start_at(self, topic: str, partition: int, offset: int, *, now_ms: int) -> None:
        """Empty a log and start it at an offset, as a follower does whose log ends before its leader's begins."""
        log, directory = self.get(topic, partition), self.directory_of(topic, partition)
        assert log is not None, f"{topic}-{partition} has no log to truncate"
        assert directory is not None
        self.on_change(log)
        truncate_fully(log, offset, now_ms=now_ms)
        directory.checkpoint_recovery_points(wait=True)

    def remove_expired(self, now_ms: int) -> int:
        """Apply retention; return how many segments were removed."""
        removed = 0
        for log in self:
            try:
                removed += remove_expired(log, now_ms)
            except OSError as error:
                log.environment.on_failure(error)
        return removed

    def flush_by_time(self, now_ms: int) -> None:
        """Sync the logs whose last sync is `flush.ms` ago."""
        for log in self:
            if log.log_end_offset > log.recovery_point and now_ms - log.last_flush_ms >= log.settings.flush_ms:
                log.last_flush_ms = now_ms
                log.flusher.start()

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for too long; return how many."""
        return sum(
            log.producers.expire(now_ms, directory.producer_expiration_ms)
            for directory in self.directories
            for log in directory.logs.values()
        )

    def checkpoint(self) -> None:
        """Checkpoint recovery points, log starts and the progress of compaction."""
        for directory in self.directories:
            directory.checkpoint_recovery_points()
            directory.checkpoint_log_starts()
            directory.checkpoint_cleaned()

    def checkpoint_high_watermarks(self) -> None:
        """Checkpoint the high watermarks."""
        for directory in self.directories:
            directory.checkpoint_high_watermarks()

    def close(self, broker_epoch: int) -> None:
        """Shut down cleanly. May run in a thread."""
        for directory in self.directories:
            directory.close(broker_epoch)

    def _find(self, directory_id: bytes, online: list[LogDirectory]) -> LogDirectory:
        for directory in online:
            if directory.meta.directory_id == directory_id:
                return directory
        raise LogDirNotFound(f"no online log directory has the id {directory_id.hex()}")


def _ignore(log: PartitionLog) -> None:
    """Do nothing."""
