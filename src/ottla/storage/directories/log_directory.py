"""One log directory: the partitions on one disk, with the files that tell a start what it may trust.

    <directory>/meta.properties, .lock, .kafka_cleanshutdown      whose it is, who uses it, how it was left
                recovery-point-, log-start-, replication-, cleaner-offset-checkpoint
                <topic>-<partition>/                              one log each
                <topic>-<partition>.<id>-delete/ -future/ -stray/

When the disk fails, the directory goes offline as a whole: its logs are no longer served, nothing is written to it any
more, and the other directories carry on.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from threading import Lock
from uuid import UUID

from ottla.storage.directories.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    write_checkpoint,
)
from ottla.storage.directories.node_files import (
    NodeMeta,
    NotAPartition,
    Role,
    directory_name,
    marked_directory_name,
    parse_directory_name,
    read_clean_shutdown,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from ottla.storage.disk import Disk
from ottla.storage.log.opening import DEFAULT_PRODUCER_EXPIRATION_MS, create_files, open_log, plan_log
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import Segment
from ottla.storage.log.settings import LogSettings
from ottla.storage.log_environment import Background, LogEnvironment

logger = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"
"""Its log is the consensus's, which opens it by itself."""

_TOGETHER_MS = 50
"""What is asked for within this time is made, or synced, in one go; and whoever asked gets an answer before, be it
half a megabyte about 500 topics."""

Name = tuple[str, int]
"""A topic and a partition of it."""


class LogDirectory:
    """The logs of one directory. Loading and closing may run in a thread; everything else is the owner's."""

    def __init__(
        self,
        path: str,
        meta: NodeMeta,
        *,
        disk: Disk | None = None,
        background: Background | None = None,
        random: Random | None = None,
        on_failure: Callable[["LogDirectory", OSError], None] | None = None,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
    ) -> None:
        self.path = path
        self.meta = meta
        self.environment = LogEnvironment(disk=disk, background=background, random=random, on_failure=self.fail)
        self.logs: dict[Name, PartitionLog] = {}
        self.futures: dict[Name, PartitionLog] = {}
        """Logs that become their partition's when they have caught up with the one in another directory."""
        self.cleaned_to: dict[Name, int] = {}
        """Up to where compaction has come."""
        self.high_watermarks: dict[Name, int] = {}
        """As they were at the last stop, until the partitions have taken them up."""
        self.failure: OSError | None = None
        self.is_cordoned = False
        """Whether it takes no new logs as long as another directory does (KIP-1066)."""
        self.corrupt: dict[Name, CorruptLog] = {}
        """Partitions that are not served, because bytes of theirs that had been synced are not right any more."""
        self.broker_epoch: int | None = None
        """That of the broker that stopped in order; None after a crash."""
        self._on_failure = on_failure
        self.producer_expiration_ms = producer_expiration_ms
        self._known_points: dict[Name, int] = {}
        """The recovery points that may be on disk."""
        self._planned: deque[PartitionLog] = deque()
        """New logs whose files are to be made."""
        self._is_creating = False
        self._is_syncing_names = False
        self._creation_lock = Lock()
        self._checkpoint_lock = Lock()
        self._checkpoints_made = 0
        self._checkpoints_written: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r})"

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def load(self, settings_of: Callable[[str], LogSettings], now_ms: int) -> None:
        """Open all logs. A failing disk takes the directory offline and nothing else down."""
        disk = self.environment.disk
        try:
            names = disk.names(self.path)
            self.broker_epoch = read_clean_shutdown(disk, self.path)
            points = read_checkpoint(disk, f"{self.path}/{RECOVERY_POINTS}")
            self._known_points = points
            starts = read_checkpoint(disk, f"{self.path}/{LOG_STARTS}")
            self.high_watermarks = read_checkpoint(disk, f"{self.path}/{HIGH_WATERMARKS}")
            self.cleaned_to = read_checkpoint(disk, f"{self.path}/{CLEANED}")
            if self.broker_epoch is None and points:
                logger.warning("%s was not stopped in order: logs are recovered from their recovery points", self.path)
            for name in sorted(names):
                self._load_one(name, settings_of, points, starts, now_ms)
            remove_clean_shutdown(disk, self.path)
        except OSError as error:
            self.fail(error)

    def _load_one(
        self,
        name: str,
        settings_of: Callable[[str], LogSettings],
        points: Mapping[Name, int],
        starts: Mapping[Name, int],
        now_ms: int,
    ) -> None:
        try:
            topic, partition, role = parse_directory_name(name)
        except NotAPartition:
            return
        path = f"{self.path}/{name}"
        if role is Role.DELETED:
            self.environment.background.later(0, lambda: self._remove_folder(path))
            return
        if role is Role.STRAY or topic == METADATA_TOPIC:
            return
        key = topic, partition
        try:
            log = open_log(
                self.environment,
                path,
                topic,
                partition,
                settings_of(topic),
                clean=self.broker_epoch is not None,
                now_ms=now_ms,
                recovery_point=points.get(key, 0),
                log_start_offset=starts.get(key, 0),
                topic_id=read_topic_id(self.environment.disk, path),
                producer_expiration_ms=self.producer_expiration_ms,
            )
        except CorruptLog as error:
            logger.error("%s-%d is not served: %s. Restore the file, or remove %s", topic, partition, error, path)
            self.corrupt[key] = error
            return
        log.advance_high_watermark(self.high_watermarks.get(key, 0))
        (self.futures if role is Role.FUTURE else self.logs)[key] = log

    def create(
        self,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        topic_id: bytes | None,
        now_ms: int,
        start_offset: int = 0,
        future: bool = False,
    ) -> PartitionLog:
        """Make a log for a partition that this directory does not have.

        Its files are made in the background, or before by whoever first needs one of them: nothing is lost when a
        crash comes before that.
        """
        name = directory_name(topic, partition)
        if future:
            name = marked_directory_name(topic, partition, Role.FUTURE, self._unique())
        path = f"{self.path}/{name}"
        if (topic, partition) in self._known_points:
            # That of a deleted topic of the same name would make a start trust bytes that were never synced.
            self.checkpoint_recovery_points(wait=True)
        log = plan_log(
            self.environment,
            path,
            topic,
            partition,
            settings,
            now_ms=now_ms,
            start_offset=start_offset,
            topic_id=topic_id,
        )
        log.active.create_planned_files = partial(self._create_files, log, log.active)
        self._planned.append(log)
        if not self._is_creating:
            self._is_creating = True
            self.environment.background.later(_TOGETHER_MS, self._create_planned_in_background)
        if self.failure is not None:  # it was made at once, or rather was not
            raise self.failure
        (self.futures if future else self.logs)[topic, partition] = log
        return log

    def _create_planned_in_background(self) -> None:
        """Make the files of all logs that have none yet, in a thread."""
        self.environment.background.run(self._create_planned, self._on_planned_created, self.fail)

    def _create_planned(self) -> None:
        while self._planned:
            self._planned.popleft().ensure_files()

    def _on_planned_created(self, _: None) -> None:
        self._is_creating = False
        if self._planned:
            self._is_creating = True
            self._create_planned_in_background()

    def _create_files(self, log: PartitionLog, segment: Segment) -> None:
        with self._creation_lock:
            if segment.create_planned_files is None:
                return  # another thread was faster
            create_files(log)
            segment.create_planned_files = None

    def _unplan(self, log: PartitionLog) -> bool:
        """See that a log's files are not made any more; False if they have been."""
        if log.active.create_planned_files is None:
            return False
        with self._creation_lock:
            was_planned = log.active.create_planned_files is not None
            log.active.create_planned_files = None
            return was_planned

    def delete(self, log: PartitionLog) -> None:
        """Take a log out of service; its files are renamed now and deleted later.

        The new name is synced aside, once for all that are deleted together. Should a crash come before that, the next
        start finds a log that no topic knows. A log that has no files yet gets none.
        """
        if self._unplan(log):
            self._forget(log)
            return
        self._mark(log, Role.DELETED, wait=False)
        self._sync_names_soon()
        self._forget(log)
        self.environment.background.later(log.settings.file_delete_delay_ms, lambda: self._remove(log))

    def mark_stray(self, log: PartitionLog) -> None:
        """Take a log out of service that no topic knows any more, and keep its files for people to look at.

        The new name is synced later, as that of a deleted log: the next start finds the log stray once more.
        """
        self._mark(log, Role.STRAY, wait=False)
        self._sync_names_soon()
        self._forget(log)
        log.release()

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """Let a future log become the partition's own."""
        log = self.futures.pop((topic, partition))
        self._rename(log, directory_name(topic, partition))
        self.logs[topic, partition] = log
        return log

    def checkpoint_recovery_points(self, *, wait: bool = False) -> None:
        """Write down how far each log is durable, for a start after a crash. After a truncation, wait for it.

        A future log has no entry: it is read from its start.
        """
        points = {key: log.recovery_point for key, log in self.logs.items()}
        self._checkpoint(RECOVERY_POINTS, points, wait=wait)
        self._known_points = points

    def checkpoint_log_starts(self, *, wait: bool = False) -> None:
        """Write down where logs begin, those that do not begin with their first segment."""
        self._checkpoint(
            LOG_STARTS,
            {
                key: log.log_start_offset
                for key, log in self.logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            },
            wait=wait,
        )

    def checkpoint_high_watermarks(self, *, wait: bool = False) -> None:
        """Write down how far consumers may read, so that a restarted leader does not show them less."""
        self._checkpoint(HIGH_WATERMARKS, {key: log.high_watermark for key, log in self.logs.items()}, wait=wait)

    def checkpoint_cleaned(self, *, wait: bool = False) -> None:
        """Write down how far compaction has come."""
        self._checkpoint(
            CLEANED, {key: offset for key, offset in self.cleaned_to.items() if key in self.logs}, wait=wait
        )

    def close(self, broker_epoch: int) -> None:
        """Make everything durable and say so: the next start need not look."""
        if not self.is_online:
            return
        try:
            for log in (*self.logs.values(), *self.futures.values()):
                log.close()
            self.checkpoint_recovery_points(wait=True)
            self.checkpoint_log_starts(wait=True)
            self.checkpoint_high_watermarks(wait=True)
            self.checkpoint_cleaned(wait=True)
            if self.is_online:
                write_clean_shutdown(self.environment.disk, self.path, broker_epoch)
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Go offline. What was being done is given up; nothing more is written here."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error("%s failed and is offline with its %d logs: %s", self.path, len(self.logs), error)
        if self._on_failure is not None:
            self._on_failure(self, error)

    def _checkpoint(self, name: str, offsets: Mapping[Name, int], *, wait: bool) -> None:
        if not self.is_online:
            return
        self._checkpoints_made += 1
        work = partial(self._write_checkpoint, name, offsets, self._checkpoints_made)
        if not wait:
            self.environment.background.run(work, _done, self.fail)
            return
        try:
            work()
        except OSError as error:
            self.fail(error)

    def _write_checkpoint(self, name: str, offsets: Mapping[Name, int], number: int) -> None:
        with self._checkpoint_lock:
            # Whoever waited for one, after a truncation, must not find it replaced by one that was made before.
            if number > self._checkpoints_written.get(name, 0):
                write_checkpoint(self.environment.disk, f"{self.path}/{name}", offsets)
                self._checkpoints_written[name] = number

    def _sync_names_soon(self) -> None:
        if not self._is_syncing_names:
            self._is_syncing_names = True
            self.environment.background.later(_TOGETHER_MS, self._sync_names)

    def _sync_names(self) -> None:
        self._is_syncing_names = False
        self.environment.background.run(partial(self.environment.disk.sync_dir, self.path), _done, self.fail)

    def _mark(self, log: PartitionLog, role: Role, *, wait: bool = True) -> None:
        self._rename(log, marked_directory_name(log.topic, log.partition, role, self._unique()), wait=wait)

    def _rename(self, log: PartitionLog, name: str, *, wait: bool = True) -> None:
        path = f"{self.path}/{name}"
        try:
            log.ensure_files()
            self.environment.disk.rename(log.directory, path)
            if wait:
                self.environment.disk.sync_dir(self.path)
        except OSError as error:
            self.fail(error)
            raise
        log.directory = path
        for segment in log.segments:
            segment.move(path)

    def _forget(self, log: PartitionLog) -> None:
        key = log.topic, log.partition
        for logs in (self.logs, self.futures):
            if logs.get(key) is log:
                del logs[key]
        self.cleaned_to.pop(key, None)

    def _unique(self) -> str:
        return UUID(int=self.environment.random.getrandbits(128), version=4).hex

    def _remove(self, log: PartitionLog) -> None:
        # Others may refer to the log for long, and a file that is open takes room on the disk.
        log.release()
        self._remove_folder(log.directory)

    def _remove_folder(self, path: str) -> None:
        self.environment.background.run(partial(_remove_tree, self.environment.disk, path), _done, self.fail)


def _remove_tree(disk: Disk, path: str) -> None:
    for name in disk.names(path):
        disk.remove(f"{path}/{name}")
    disk.remove_dir(path)


def _done(_: None) -> None:
    """Nothing is left to do after files have been removed."""
