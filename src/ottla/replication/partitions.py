"""All partitions of which this broker holds a replica, following what the cluster's metadata say.

`apply` takes the differences between two images and makes this broker act on them: logs are made and deleted,
partitions begin to lead or to follow, settings change. It is called with every new image, after the image itself was
put in place, so that a request never meets a leader that the metadata do not know.

Where many partitions are new, they are only planned: they are made some at a time once others had their turn, whoever
asked for them among these, or before by whoever first needs one.
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
"""So many new partitions are made in one go, which takes two milliseconds."""
_SOON_S = 0.01
"""Until the rest is gone on with: by then whoever asked for it has an answer."""


class Fetching(Protocol):
    """Whoever fetches for the partitions that follow."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader that the partition has now, if it has one."""
        ...

    def leave(self, partition: Partition) -> None:
        """Do not fetch any more."""
        ...

    def settle(self) -> None:
        """All changes of an image have been told."""
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
        """Put in when the broker can fetch; None for a broker without followers."""
        self.on_placed: Callable[[Partition], None] | None = None
        """Told of replicas that are new here, or elsewhere by what the metadata say."""
        self.call_later: CallLater | None = None
        """The event loop's; without it all new partitions are made at once."""
        self.image = Image()
        self.stale_assignments = 0
        """Assignments that were refused, because they were older than those in force."""
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._completions = runtime.completions
        self._settings_of = settings_of
        self._now_ms = runtime.now_ms
        self._planned: dict[tuple[str, int], PartitionChange] = {}
        """New partitions to lead that are not made yet."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition:
        """The replica here; raises what a client is to be told if there is none."""
        partitions = self.by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            partition = self._create_planned(topic, index)
            if partition is None:
                raise self._missing(topic, index)
        return partition

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """The replica here of a topic known by its id; raises what a client is to be told if there is none."""
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
        """Whether the replica is here, with its log."""
        return index in self.by_name.get(topic, {})

    def find(self, topic: str, index: int) -> Partition | None:
        """The replica here, if there is one."""
        return self.by_name.get(topic, {}).get(index) or self._create_planned(topic, index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The replica here of a topic known by its id, if there is one."""
        partition = self.by_id.get(topic_id, {}).get(index)
        if partition is None and self._planned:
            topic = self.image.topics_by_id.get(topic_id)
            partition = None if topic is None else self._create_planned(topic.name, index)
        return partition

    def apply(self, changes: Changes) -> None:
        """Act on what changed."""
        self.image = self.rules.image = changes.new
        mine = changes.for_broker(self.broker_id)
        for change in mine.deleted:
            self._guard(change, self._remove)
        if self._planned:  # what changes must be there
            for change in (*mine.leading, *mine.following):
                self._create_planned(change.topic.name, change.number)
        for change in self._unplanned(mine.leading):
            self._guard(change, self._lead)
        for change in mine.following:
            self._guard(change, self._follow)
        for change in mine.moved:
            if change.topic.name in self.by_name:  # else it is only planned
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
        """Take logs out of service that this broker has and should not: their topics were deleted, or their replicas
        moved, while the broker was away. As in Kafka, their directories get the suffix `-stray`, and stay until an
        operator removes them."""

        def is_stray(log: PartitionLog) -> bool:
            if log.topic_id is None:  # written before topics had ids
                partition = image.partition(log.topic, log.partition)
            else:
                partition = image.partition_by_id(log.topic_id, log.partition)
            return partition is None or self.broker_id not in partition.replicas

        for log in self.logs.mark_strays(is_stray):
            logger.warning(
                "the log of %s-%d is set aside as %s: this broker has no such replica by the metadata. "
                "Remove the directory when nobody needs its records",
                log.topic,
                log.partition,
                log.directory,
            )

    def make_planned(self, limit: int | None = None) -> None:
        """Make the new partitions that are planned, or some of them."""
        for name in list(islice(self._planned, limit)):
            self._create_planned(*name)
        self._completions.run()

    def stop(self) -> None:
        """Make none of the partitions that are planned: the next start does."""
        self._planned.clear()
        self.call_later = None

    def shrink(self, now_ms: int) -> None:
        """Propose to leave those out of ISRs that lag behind for too long. Comes back at half of that time."""
        for partition in self:
            partition.maybe_shrink(now_ms)

    def reconfigure_all(self) -> None:
        """The defaults of all topics changed."""
        for topic, partitions in self.by_name.items():
            settings = self._settings_of(self.image, topic)
            for partition in partitions.values():
                partition.log.settings = settings

    def take_offline(self) -> None:
        """Give up the replicas in directories that have failed: they neither lead nor fetch any more."""
        for partition in list(self):
            directory = self.logs.directory_of(partition.topic, partition.index)
            if directory is not None and not directory.is_online:
                logger.error("%s is offline with its directory", partition)
                self._forget(partition)
        if self.fetching is not None:
            self.fetching.settle()
        self._completions.run()

    def why_not_led(self, partition: Partition) -> UnknownTopicOrPartition | NotLeader | StorageFailed:
        """Why a partition that this broker led is not led here any more."""
        topic, index = partition.topic, partition.index
        if self.image.partition_by_id(partition.topic_id, index) is None:
            return UnknownTopicOrPartition(f"{topic}-{index} was deleted")
        return self._failed_storage(topic, index) or NotLeader(f"{partition} is not the leader any more")

    def _missing(self, topic: str, index: int) -> UnknownTopicOrPartition | NotLeader | StorageFailed:
        if self.image.partition(topic, index) is None:
            return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        return self._failed_storage(topic, index) or NotLeader(
            f"broker {self.broker_id} has no replica of {topic}-{index}"
        )

    def _failed_storage(self, topic: str, index: int) -> StorageFailed | None:
        """The failure of the directory that has the partition's log; None if that directory works."""
        directory = self.logs.directory_of(topic, index)
        if directory is None or directory.failure is None:
            return None
        return StorageFailed(f"{directory.path} is offline: {directory.failure}")

    def _guard(self, change: PartitionChange, act: Callable[[PartitionChange], None]) -> None:
        """A disk that fails for one partition must not keep the others from following the metadata."""
        try:
            act(change)
        except (OSError, StorageFailed) as error:
            logger.error("%s-%d cannot be served: %s", change.topic.name, change.number, error)

    def _unplanned(self, leading: Sequence[PartitionChange]) -> Sequence[PartitionChange]:
        """What is to be done at once: all, unless many are new and have no log."""
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
        """The partition that was planned, made now; None if none was, or if it cannot be."""
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
        """Count and log an assignment that is older than the one in force."""
        self.stale_assignments += 1
        logger.warning(
            "%s-%d does not %s by stale metadata: leader epoch %d and partition epoch %d are in force, "
            "leader epoch %d and partition epoch %d were given",
            partition.topic,
            partition.index,
            what,
            partition.leader_epoch,
            partition.assignment.partition_epoch,
            assignment.leader_epoch,
            assignment.partition_epoch,
        )

    def _expand(self, broker_id: int) -> None:
        """A broker came into service: where it has caught up already, no fetch may tell so for a while."""
        for partition in self:
            if broker_id in partition.followers:
                partition.maybe_expand(broker_id)

    def _partition(self, change: PartitionChange) -> Partition:
        topic, index = change.topic, change.number
        known = self.by_name.setdefault(topic.name, {})
        partition = known.get(index)
        if partition is None:
            assert change.new is not None
            log = self._log(change)
            partition = Partition(
                self.broker_id, topic.name, topic.id, index, log, change.new, self._completions, self.rules
            )
            known[index] = partition
            self.by_id.setdefault(topic.id, {})[index] = partition
        return partition

    def _log(self, change: PartitionChange) -> PartitionLog:
        topic, index = change.topic, change.number
        log = self.logs.get(topic.name, index)
        settings = self._settings_of(self.image, topic.name)
        if log is not None and log.topic_id not in (None, topic.id):
            # The topic was deleted and made again while this broker was away.
            logger.warning("%s is of a topic that was deleted: it makes room for the new one", log)
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
        """The log of a move that a crash ended in its last step: the old log was gone, the new one not yet in place."""
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
                logger.warning("%s takes the place it was about to take when this broker stopped", future)
                return self.logs.promote_future(*name)
        return None

    def _directory(self, wanted: bytes | None) -> bytes | None:
        """The directory that the metadata name, if this broker has it. Raises if the log may be in a directory that
        failed: an empty one in its place would pass for it."""
        failed = False
        for directory in self.logs.directories:
            if not directory.is_online:
                failed = True
            elif directory.meta.directory_id == wanted:
                return wanted
        if failed and wanted != DIRECTORY_UNASSIGNED:
            raise StorageFailed("its log may be in a directory that is offline")
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
