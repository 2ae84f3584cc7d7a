"""One log directory: the logs on one disk, and the files from which a start restores them.

    <directory>/meta.properties, .lock, .kafka_cleanshutdown      its owner, its user, and its last shutdown
                recovery-point-, log-start-, replication-, cleaner-offset-checkpoint
                <topic>-<partition>/                              one log each
                <topic>-<partition>.<id>-delete/ -future/ -stray/

If the disk fails, the whole directory goes offline: its logs are no longer served, and nothing more is written to it.
Other directories continue.
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
"""The metadata log, which the controller quorum opens itself."""

_TOGETHER_MS = 50
"""Files and names of this time are created or synced together. By then a request that created the logs has its
response, even if it is half a megabyte for 500 topics."""

TopicPartition = tuple[str, int]
"""A topic and a partition of it."""


class LogDirectory:
    """The logs of one directory. `load` and `close` may run in a thread; everything else runs in the owner's thread."""

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
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """Future logs, which replace their partition's log in another directory when they have caught up."""
        self.cleaned_to: dict[TopicPartition, int] = {}
        """The offset up to which each log was compacted."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The high watermarks of the last checkpoint, with which the logs are opened."""
        self.failure: OSError | None = None
        self.is_cordoned = False
        """Whether new logs go to other directories, unless all are cordoned (KIP-1066)."""
        self.corrupt: dict[TopicPartition, CorruptLog] = {}
        """Partitions that are not served, because synced bytes of theirs are invalid."""
        self.broker_epoch: int | None = None
        """The broker epoch of the last clean shutdown; None after a crash."""
        self._on_failure = on_failure
        self.producer_expiration_ms = producer_expiration_ms
        self._known_points: dict[TopicPartition, int] = {}
        """The recovery points that may be in the checkpoint file."""
        self._planned: deque[PartitionLog] = deque()
        """New logs whose files are not created yet."""
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
        """Open all logs. If the disk fails, the directory goes offline."""
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
                logger.warning("%s was not shut down cleanly; recovering logs from their recovery points", self.path)
            for name in sorted(names):
                self._load_one(name, settings_of, points, starts, now_ms)
            remove_clean_shutdown(disk, self.path)
        except OSError as error:
            self.fail(error)

    def _load_one(
        self,
        name: str,
        settings_of: Callable[[str], LogSettings],
        points: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
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
            logger.error("%s-%d is offline: %s. Restore the file, or remove %s", topic, partition, error, path)
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
        """Create a log for a partition that this directory does not have.

        Its files are created in the background, or earlier on first use. A crash before that loses nothing.
        """
        name = directory_name(topic, partition)
        if future:
            name = marked_directory_name(topic, partition, Role.FUTURE, self._unique())
        path = f"{self.path}/{name}"
        if (topic, partition) in self._known_points:
            # The recovery point of a deleted topic of this name would make a start trust bytes that were never synced.
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
        if self.failure is not None:  # the background ran immediately, and failed
            raise self.failure
        (self.futures if future else self.logs)[topic, partition] = log
        return log

    def _create_planned_in_background(self) -> None:
        """Create the files of all planned logs in a thread."""
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
        """Prevent the creation of a log's files; return False if they exist already."""
        if log.active.create_planned_files is None:
            return False
        with self._creation_lock:
            was_planned = log.active.create_planned_files is not None
            log.active.create_planned_files = None
            return was_planned

    def delete(self, log: PartitionLog) -> None:
        """Take a log out of service. Its directory is renamed now and deleted later.

        The new name is synced in the background, once for all logs that are deleted together. After a crash before
        that, the next start finds a stray log. A planned log gets no files.
        """
        if self._unplan(log):
            self._forget(log)
            return
        self._mark(log, Role.DELETED, wait=False)
        self._sync_names_soon()
        self._forget(log)
        self.environment.background.later(log.settings.file_delete_delay_ms, lambda: self._remove(log))

    def mark_stray(self, log: PartitionLog) -> None:
        """Take a log out of service if its partition is not assigned to this broker. Its files stay for an operator.

        The new name is synced later, as for a deleted log: after a crash the next start finds the log stray again.
        """
        self._mark(log, Role.STRAY, wait=False)
        self._sync_names_soon()
        self._forget(log)
        log.release()

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """Make a future log the partition's current log."""
        log = self.futures.pop((topic, partition))
        self._rename(log, directory_name(topic, partition))
        self.logs[topic, partition] = log
        return log

    def checkpoint_recovery_points(self, *, wait: bool = False) -> None:
        """Checkpoint the recovery points for a start after a crash. After a truncation, `wait` for it.

        Future logs have no entry: they are recovered from their start.
        """
        points = {key: log.recovery_point for key, log in self.logs.items()}
        self._checkpoint(RECOVERY_POINTS, points, wait=wait)
        self._known_points = points

    def checkpoint_log_starts(self, *, wait: bool = False) -> None:
        """Checkpoint the log start offsets that are not the base offset of the first segment."""
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
        """Checkpoint the high watermarks, so that a restarted leader does not go back behind them."""
        self._checkpoint(HIGH_WATERMARKS, {key: log.high_watermark for key, log in self.logs.items()}, wait=wait)

    def checkpoint_cleaned(self, *, wait: bool = False) -> None:
        """Checkpoint the offsets up to which logs were compacted."""
        self._checkpoint(
            CLEANED, {key: offset for key, offset in self.cleaned_to.items() if key in self.logs}, wait=wait
        )

    def close(self, broker_epoch: int) -> None:
        """Sync everything and mark a clean shutdown, so that the next start needs no recovery."""
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
        """Take the directory offline. Nothing more is written to it."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error("Log directory %s failed; its %d logs are offline: %s", self.path, len(self.logs), error)
        if self._on_failure is not None:
            self._on_failure(self, error)

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], *, wait: bool) -> None:
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

    def _write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], number: int) -> None:
        with self._checkpoint_lock:
            # An older checkpoint must not replace a newer one, which a truncation may rely on.
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
        # A deleted log lives on as an object until the garbage collector finds it, which on an idle node may be never.
        # Its open files would take disk space.
        log.release()
        self._remove_folder(log.directory)

    def _remove_folder(self, path: str) -> None:
        self.environment.background.run(partial(_remove_tree, self.environment.disk, path), _done, self.fail)


def _remove_tree(disk: Disk, path: str) -> None:
    for name in disk.names(path):
        disk.remove(f"{path}/{name}")
    disk.remove_dir(path)


def _done(_: None) -> None:
    """Do nothing."""
