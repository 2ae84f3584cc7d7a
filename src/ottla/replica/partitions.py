"""All partitions of which this broker holds a replica, following what the cluster's metadata say.

`apply` takes the differences between two images and makes this broker act on them: logs are made and deleted,
partitions begin to lead or to follow, settings change. It is called with every new image, after the image itself was
put in place, so that a request never meets a leader that the metadata do not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.errors import InconsistentTopicId, NotLeader, StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from ottla.image.changes import Changes, PartitionChange
from ottla.image.image import Image
from ottla.image.values import ResourceType
from ottla.log.logs import Logs
from ottla.log.partition_log import PartitionLog
from ottla.log.settings import LogSettings
from ottla.replica.partition import Partition
from ottla.replica.waiting import Completions

logger = logging.getLogger(__name__)

SettingsOf = Callable[[Image, str], LogSettings]


class Partitions:
    """The replicas on this broker, by topic name and by topic id."""

    def __init__(
        self,
        broker_id: int,
        logs: Logs,
        completions: Completions,
        *,
        settings_of: SettingsOf,
        now_ms: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.image = Image()
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._completions = completions
        self._settings_of = settings_of
        self._now_ms = now_ms

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition:
        """The replica here; raises what a client is to be told if there is none."""
        partitions = self.by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
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
            raise self._missing(topic.name, index)
        return partition

    def apply(self, changes: Changes) -> None:
        """Act on what changed."""
        self.image = changes.new
        mine = changes.on_broker(self.broker_id)
        for change in mine.deleted:
            self._remove(change)
        for change in mine.leading:
            self._guard(change, self._lead)
        for change in mine.following:
            self._guard(change, self._follow)
        for resource in {change.key for change in changes.configs}:
            self._reconfigure(resource.type, resource.name)
        self._completions.run()

    def reconfigure_all(self) -> None:
        """The defaults of all topics changed."""
        for topic, partitions in self.by_name.items():
            settings = self._settings_of(self.image, topic)
            for partition in partitions.values():
                partition.log.settings = settings

    def _missing(self, topic: str, index: int) -> UnknownTopicOrPartition | NotLeader | StorageFailed:
        if self.image.partition(topic, index) is None:
            return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        directory = self.logs.directory_of(topic, index)
        if directory is not None and directory.failure is not None:
            return StorageFailed(f"{directory.path} is offline: {directory.failure}")
        return NotLeader(f"broker {self.broker_id} has no replica of {topic}-{index}")

    def _guard(self, change: PartitionChange, act: Callable[[PartitionChange], None]) -> None:
        """A disk that fails for one partition must not keep the others from following the metadata."""
        try:
            act(change)
        except (OSError, StorageFailed) as error:
            logger.error("%s-%d cannot be served: %s", change.topic.name, change.number, error)

    def _lead(self, change: PartitionChange) -> None:
        assert change.new is not None
        self._partition(change).lead(change.new, self._now_ms())

    def _follow(self, change: PartitionChange) -> None:
        assert change.new is not None
        self._partition(change).follow(change.new)

    def _partition(self, change: PartitionChange) -> Partition:
        topic, index = change.topic, change.number
        known = self.by_name.setdefault(topic.name, {})
        partition = known.get(index)
        if partition is None:
            assert change.new is not None
            log = self._log(change)
            partition = Partition(self.broker_id, topic.name, topic.id, index, log, change.new, self._completions)
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
                directory_id=self._wanted_directory(change.new.directory_of(self.broker_id)),
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

    def _wanted_directory(self, directory_id: bytes | None) -> bytes | None:
        """The directory that the metadata name, if this broker has it."""
        known = {directory.meta.directory_id for directory in self.logs.directories if directory.is_online}
        return directory_id if directory_id in known else None

    def _remove(self, change: PartitionChange) -> None:
        topic, index = change.topic, change.number
        partition = self.by_name.get(topic.name, {}).pop(index, None)
        self.by_id.get(topic.id, {}).pop(index, None)
        if not self.by_name.get(topic.name):
            self.by_name.pop(topic.name, None)
        if not self.by_id.get(topic.id):
            self.by_id.pop(topic.id, None)
        if partition is not None:
            partition.is_leader = False
            partition.wake_all()
            self.logs.delete(topic.name, index)

    def _reconfigure(self, kind: int, name: str) -> None:
        if kind == ResourceType.TOPIC:
            partitions = self.by_name.get(name)
            if partitions:
                settings = self._settings_of(self.image, name)
                for partition in partitions.values():
                    partition.log.settings = settings
        elif kind == ResourceType.BROKER and name in ("", str(self.broker_id)):
            self.reconfigure_all()


def check_topic_id(partition: Partition, topic_id: bytes) -> None:
    """Raise if a client means another topic of the same name."""
    if partition.topic_id != topic_id:
        raise InconsistentTopicId(f"{partition.topic} has the id {partition.topic_id.hex()}, not {topic_id.hex()}")
