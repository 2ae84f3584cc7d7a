"""All replicas of this broker, kept up to date with the cluster metadata.

`apply` acts on the changes between two images: it creates and deletes logs, makes partitions lead or follow, and
changes settings. It is called with every new image, after the image itself was replaced, so that no request meets a
leader that the metadata does not have.

If many partitions are new, they are only planned. They are created in groups, so that the event loop can serve requests
in between, or earlier on first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from ottla.metadata.image.changes import Changes, PartitionChange
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import DIRECTORY_UNASSIGNED, ResourceType
from ottla.metadata.image.values import Partition as Assignment
from ottla.protocol.errors import NotLeader, StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from ottla.replication.in_sync import InSyncRules
from ottla.replication.partition import Partition
from ottla.replication.purgatory import CallLater
from ottla.replication.runtime import Runtime
from ottla.storage.directories.logs import Logs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings

logger = logging.getLogger(__name__)

SettingsOf = Callable[[Image, str], LogSettings]

_AT_ONCE = 100
"""How many new partitions are created together, which takes two milliseconds."""
_SOON_S = 0.01
"""The delay before planned partitions are created. By then, the request that created the topics has its response."""


class Fetching(Protocol):
    """Fetches for the partitions that are followers."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's current leader, if it has one."""
        ...

    def leave(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        ...

    def settle(self) -> None:
        """Finish after all changes of an image were applied."""
        ...


class Partitions:
    """The replicas on this broker, by topic name and by topic id."""

    def __init__(
        self,
        broker_id: int,
        logs: Logs,
        runtime: Runtime,
        *,
        settings_of: SettingsOf,
        rules: InSyncRules | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.rules = rules or InSyncRules(now_ms=runtime.now_ms)
        self.fetching: Fetching | None = None
        """Set once the broker can fetch; None for a broker without followers."""
        self.on_placed: Callable[[Partition], None] | None = None
        """Called for replicas that are new here, or whose log directory changed in the metadata."""
        self.call_later: CallLater | None = None
        """The event loop's method. Without it all new partitions are created immediately."""
        self.image = Image()
        self.stale_assignments = 0
        """Assignments that were rejected because they were older than the current ones."""
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._completions = runtime.completions
        self._settings_of = settings_of
        self._now_ms = runtime.now_ms
        self._planned: dict[tuple[str, int], PartitionChange] = {}
        """New partitions to lead that are not created yet."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition:
        """Return the replica here, or raise the error for the client."""
        partitions = self.by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            partition = self._create_planned(topic, index)
            if partition is None:
                raise self._missing(topic, index)
        return partition

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the replica here by topic id, or raise the error for the client."""
        partitions = self.by_id.get(topic_id)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
            partition = self._create_planned(topic.name, index)
            if partition is None:
                raise self._missing(topic.name, index)
        return partition

    def has(self, topic: str, index: int) -> bool:
        """Return whether the replica is here and has its log."""
        return index in self.by_name.get(topic, {})

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the replica here, or None."""
        return self.by_name.get(topic, {}).get(index) or self._create_planned(topic, index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Return the replica here by topic id, or None."""
        partition = self.by_id.get(topic_id, {}).get(index)
        if partition is None and self._planned:
            topic = self.image.topics_by_id.get(topic_id)
            partition = None if topic is None else self._create_planned(topic.name, index)
        return partition

    def apply(self, changes: Changes) -> None:
        """Apply the changes of a new image."""
        self.image = self.rules.image = changes.new
        mine = changes.for_broker(self.broker_id)
        for change in mine.deleted:
            self._guard(change, self._remove)
        if self._planned:  # a partition that changes must exist
            for change in (*mine.leading, *mine.following):
                self._create_planned(change.topic.name, change.number)
        for change in self._unplanned(mine.leading):
            self._guard(change, self._lead)
        for change in mine.following:
            self._guard(change, self._follow)
        for change in mine.moved:
            if change.topic.name in self.by_name:  # otherwise it is only planned
                self._report_placed(change)
        for resource in {change.key for change in changes.configs}:
            self._reconfigure(resource.type, resource.name)
        for broker in changes.brokers:
            if broker.new is not None and not broker.new.fenced:
                self._expand(broker.key)
        if self.fetching is not None:
            self.fetching.settle()
        self._completions.run()

    def mark_stray_logs(self, image: Image) -> None:
        """Take stray logs out of service: the topic was deleted, or the replica moved, while this broker was down.

        As in Kafka, their directories get the suffix `-stray` and stay until an operator removes them.
        """

        def is_stray(log: PartitionLog) -> bool:
            if log.topic_id is None:  # written before topics had ids
                partition = image.partition(log.topic, log.partition)
            else:
                partition = image.partition_by_id(log.topic_id, log.partition)
            return partition is None or self.broker_id not in partition.replicas

        for log in self.logs.mark_strays(is_stray):
            logger.warning(
                "Renamed the stray log of %s-%d to %s: the metadata has no such replica on this broker. "
                "Remove the directory when its records are no longer needed",
                log.topic,
                log.partition,
                log.directory,
            )

    def make_planned(self, limit: int | None = None) -> None:
        """Create the planned partitions, or up to `limit` of them."""
        for name in list(islice(self._planned, limit)):
            self._create_planned(*name)
        self._completions.run()

    def stop(self) -> None:
        """Drop the planned partitions; the next start creates them."""
        self._planned.clear()
        self.call_later = None

    def shrink(self, now_ms: int) -> None:
        """Propose to remove replicas from ISRs that lag too long. Called at intervals of half the allowed lag."""
        for partition in self:
            partition.maybe_shrink(now_ms)

    def reconfigure_all(self) -> None:
        """Apply changed default settings to all topics."""
        for topic, partitions in self.by_name.items():
            settings = self._settings_of(self.image, topic)
            for partition in partitions.values():
                partition.log.settings = settings

    def take_offline(self) -> None:
        """Drop the replicas in failed directories: they neither lead nor fetch any more."""
        for partition in list(self):
            directory = self.logs.directory_of(partition.topic, partition.index)
            if directory is not None and not directory.is_online:
                logger.error("%s is offline because its log directory failed", partition)
                self._forget(partition)
        if self.fetching is not None:
            self.fetching.settle()
        self._completions.run()

    def why_not_led(self, partition: Partition) -> UnknownTopicOrPartition | NotLeader | StorageFailed:
        """Return the error for a partition that this broker no longer leads."""
        topic, index = partition.topic, partition.index
        if self.image.partition_by_id(partition.topic_id, index) is None:
            return UnknownTopicOrPartition(f"{topic}-{index} was deleted")
        return self._failed_storage(topic, index) or NotLeader(f"{partition} is no longer the leader")

    def _missing(self, topic: str, index: int) -> UnknownTopicOrPartition | NotLeader | StorageFailed:
        if self.image.partition(topic, index) is None:
            return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        return self._failed_storage(topic, index) or NotLeader(
            f"broker {self.broker_id} has no replica of {topic}-{index}"
        )

    def _failed_storage(self, topic: str, index: int) -> StorageFailed | None:
        """Return the failure of the log directory of a partition; None if the directory is online."""
        directory = self.logs.directory_of(topic, index)
        if directory is None or directory.failure is None:
            return None
        return StorageFailed(f"{directory.path} is offline: {directory.failure}")

    def _guard(self, change: PartitionChange, act: Callable[[PartitionChange], None]) -> None:
        """Apply a change. A disk that fails for one partition must not stop the others."""
        try:
            act(change)
        except (OSError, StorageFailed) as error:
            logger.error("%s-%d is offline: %s", change.topic.name, change.number, error)

    def _unplanned(self, leading: Sequence[PartitionChange]) -> Sequence[PartitionChange]:
        """Return the changes to apply now: all, unless many partitions are new and have no log. Plan the others."""
        if self.call_later is None or len(leading) <= _AT_ONCE:
            return leading
        at_once = []
        for change in leading:
            name = change.topic.name, change.number
            if change.old is None and self.logs.directory_of(*name) is None:
                self._planned[name] = change
            else:
                at_once.append(change)
        self.call_later(_SOON_S, self._make_some)
        return at_once

    def _make_some(self) -> None:
        self.make_planned(_AT_ONCE)
        if self._planned and self.call_later is not None:
            self.call_later(0, self._make_some)

    def _create_planned(self, topic: str, index: int) -> Partition | None:
        """Create a planned partition; return None if it was not planned, or cannot be created."""
        change = self._planned.pop((topic, index), None)
        if change is None:
            return None
        self._guard(change, self._lead)
        return self._report_placed(change)

    def _report_placed(self, change: PartitionChange) -> Partition | None:
        partition = self.by_name.get(change.topic.name, {}).get(change.number)
        if partition is not None and self.on_placed is not None:
            self.on_placed(partition)
        return partition

    def _lead(self, change: PartitionChange) -> None:
        assert change.new is not None
        partition = self._partition(change)
        if not partition.lead(change.new, self._now_ms()):
            self._refuse(partition, change.new, "lead")
        elif self.fetching is not None:
            self.fetching.leave(partition)

    def _follow(self, change: PartitionChange) -> None:
        assert change.new is not None
        partition = self._partition(change)
        if not partition.follow(change.new):
            self._refuse(partition, change.new, "follow")
        elif self.fetching is not None:
            self.fetching.follow(partition)

    def _refuse(self, partition: Partition, assignment: Assignment, what: str) -> None:
        """Count and log an assignment that is older than the current one."""
        self.stale_assignments += 1
        logger.warning(
            "%s-%d does not %s because of stale metadata: it is at leader epoch %d and partition epoch %d, "
            "the metadata at leader epoch %d and partition epoch %d",
            partition.topic,
            partition.index,
            what,
            partition.leader_epoch,
            partition.assignment.partition_epoch,
            assignment.leader_epoch,
            assignment.partition_epoch,
        )

    def _expand(self, broker_id: int) -> None:
        """Expand the ISRs that an unfenced broker may join. If it has caught up, its next fetch may be far off."""
        for partition in self:
            if broker_id in partition.followers:
                partition.maybe_expand(broker_id)

    def _partition(self, change: PartitionChange) -> Partition:
        topic, index = change.topic, change.number
        partitions = self.by_name.setdefault(topic.name, {})
        partition = partitions.get(index)
        if partition is None:
            assert change.new is not None
            log = self._log(change)
            partition = Partition(
                self.broker_id, topic.name, topic.id, index, log, change.new, self._completions, self.rules
            )
            partitions[index] = partition
            self.by_id.setdefault(topic.id, {})[index] = partition
        return partition

    def _log(self, change: PartitionChange) -> PartitionLog:
        topic, index = change.topic, change.number
        log = self.logs.get(topic.name, index)
        settings = self._settings_of(self.image, topic.name)
        if log is not None and log.topic_id not in (None, topic.id):
            # The topic was deleted and recreated while this broker was down.
            logger.warning("Deleting %s: its topic was deleted and recreated", log)
            self.logs.delete(topic.name, index)
            log = None
        if log is None:
            log = self._moved_log(change)
        if log is None:
            assert change.new is not None
            return self.logs.create(
                topic.name,
                index,
                settings,
                topic_id=topic.id,
                now_ms=self._now_ms(),
                directory_id=self._directory(change.new.directory_of(self.broker_id)),
            )
        log.settings = settings
        return log

    def _moved_log(self, change: PartitionChange) -> PartitionLog | None:
        """Return the future log if a crash interrupted the last step of a move: the old log was already deleted."""
        assert change.new is not None
        name = change.topic.name, change.number
        for directory in self.logs.directories:
            future = directory.futures.get(name)
            if (
                future is not None
                and directory.is_online
                and future.topic_id == change.topic.id
                and change.new.directory_of(self.broker_id) == directory.meta.directory_id
            ):
                logger.warning("Completing the interrupted move of %s", future)
                return self.logs.promote_future(*name)
        return None

    def _directory(self, wanted: bytes | None) -> bytes | None:
        """Return the directory that the metadata assigns, if this broker has it.

        Raise if the log may be in a failed directory: an empty log elsewhere would be taken for it.
        """
        failed = False
        for directory in self.logs.directories:
            if not directory.is_online:
                failed = True
            elif directory.meta.directory_id == wanted:
                return wanted
        if failed and wanted != DIRECTORY_UNASSIGNED:
            raise StorageFailed("its log may be in an offline log directory")
        return None

    def _remove(self, change: PartitionChange) -> None:
        self._planned.pop((change.topic.name, change.number), None)
        partition = self.by_name.get(change.topic.name, {}).get(change.number)
        if partition is not None:
            self._forget(partition)
            self.logs.delete(change.topic.name, change.number)

    def _forget(self, partition: Partition) -> None:
        by_name, by_id = self.by_name[partition.topic], self.by_id[partition.topic_id]
        del by_name[partition.index], by_id[partition.index]
        if not by_name:
            del self.by_name[partition.topic]
        if not by_id:
            del self.by_id[partition.topic_id]
        if self.fetching is not None:
            self.fetching.leave(partition)
        partition.is_leader = False
        partition.wake_all()
        partition.end_watches()

    def _reconfigure(self, kind: int, name: str) -> None:
        if kind == ResourceType.TOPIC:
            partitions = self.by_name.get(name)
            if partitions:
                settings = self._settings_of(self.image, name)
                for partition in partitions.values():
                    partition.log.settings = settings
        elif kind == ResourceType.BROKER and name in ("", str(self.broker_id)):
            self.reconfigure_all()
