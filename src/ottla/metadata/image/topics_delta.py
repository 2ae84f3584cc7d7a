"""The topics part of a delta.

A topic is copied once, when the delta finishes, however many of its partitions change.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from immutables import Map

from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import Image
from ottla.metadata.image.partition_records import changed_partition, new_partition, without_elr
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.messages.records.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class _TopicDelta:
    """The changes of one topic: its new and changed partitions."""

    __slots__ = ("changed", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.changed: dict[int, Partition] = {}

    def partition(self, number: int) -> Partition | None:
        return self.changed.get(number) or self.topic.partition(number)

    def finish(self) -> Topic:
        topic, changed = self.topic, self.changed
        if not changed:
            return topic
        old_count = len(topic.partitions)
        if not old_count and [*changed] == [*range(len(changed))]:  # a new topic, whose records come in order
            return Topic(topic.name, topic.id, tuple(changed.values()))
        numbers = sorted(changed)
        first_new = bisect_left(numbers, old_count)
        count = old_count + len(numbers) - first_new
        if numbers[-1] >= count:
            raise ReplayError(f"topic {topic.name} would have {count} partitions, but a partition {numbers[-1]}")
        partitions = [*topic.partitions, *map(changed.__getitem__, numbers[first_new:])]
        for number in numbers[:first_new]:
            partitions[number] = changed[number]
        return Topic(topic.name, topic.id, tuple(partitions))


class TopicsDelta:
    """The changes of all topics."""

    __slots__ = ("_image", "_names", "_shared", "_topics")

    def __init__(self, image: Image) -> None:
        self._image = image
        self._topics: dict[bytes, _TopicDelta | None] = {}  # None: deleted
        self._names: dict[str, bytes | None] = {}  # of created or deleted topics
        self._shared: dict[Any, Any] = {}  # values that partitions share

    def create(self, record: TopicRecord) -> None:
        if self._id_of(record.name) is not None:
            raise ReplayError(f"topic {record.name} already exists")
        if self._find_topic(record.topic_id) is not None:
            raise ReplayError(f"topic id {record.topic_id.hex()} already exists; it cannot be that of {record.name}")
        self._topics[record.topic_id] = _TopicDelta(Topic(record.name, record.topic_id))
        self._names[record.name] = record.topic_id

    def remove(self, record: RemoveTopicRecord) -> str:
        """Delete a topic and return its name."""
        name = self._require_topic(record.topic_id).topic.name
        self._topics[record.topic_id] = None
        self._names[name] = None
        return name

    def add_partition(self, record: PartitionRecord) -> None:
        if record.partition_id < 0:
            raise ReplayError(f"negative partition {record.partition_id}: {record}")
        topic_delta = self._topics.get(record.topic_id) or self._require_topic(record.topic_id)
        topic_delta.changed[record.partition_id] = new_partition(record, self._shared)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic_delta = self._topics.get(record.topic_id) or self._require_topic(record.topic_id)
        old = topic_delta.partition(record.partition_id)
        if old is None:
            raise ReplayError(f"topic {topic_delta.topic.name} has no partition {record.partition_id}")
        topic_delta.changed[record.partition_id] = changed_partition(old, record)

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic, or of all topics if the record names none."""
        if record.topic_name:
            topic_id = self._id_of(record.topic_name)
            if topic_id is None:
                raise ReplayError(f"no topic {record.topic_name} to clear the eligible leader replicas of")
            self._clear_elr(topic_id)
        else:
            for topic_id in sorted({*self._image.topics_by_id, *self._topics}):
                self._clear_elr(topic_id)

    def _clear_elr(self, topic_id: bytes) -> None:
        topic_delta = self._find_topic(topic_id)
        if topic_delta is None:
            return
        partitions = {**dict(enumerate(topic_delta.topic.partitions)), **topic_delta.changed}
        cleared = {number: without_elr(partition) for number, partition in partitions.items()}
        changed = {number: partition for number, partition in cleared.items() if partition is not partitions[number]}
        if changed:
            topic_delta.changed.update(changed)
            self._topics[topic_id] = topic_delta

    def finish(self) -> tuple[Map[str, Topic], Map[bytes, Topic]]:
        """Return all topics by name and by id."""
        if not self._topics:
            return self._image.topics, self._image.topics_by_id
        by_name, by_id = self._image.topics.mutate(), self._image.topics_by_id.mutate()
        for name, topic_id in self._names.items():
            if topic_id is None:
                by_name.pop(name, None)
        for topic_id, topic_delta in self._topics.items():
            if topic_delta is None:
                by_id.pop(topic_id, None)
            else:
                topic = topic_delta.finish()
                by_name[topic.name] = by_id[topic_id] = topic
        return by_name.finish(), by_id.finish()

    def changed_keys(self) -> Mapping[bytes, Iterable[int] | None]:
        """Return, by topic, the partitions that may differ from the image; None stands for all of a topic."""
        old_topics = self._image.topics_by_id
        return {
            topic_id: None
            if topic_delta is None or topic_delta.topic is not old_topics.get(topic_id)
            else topic_delta.changed
            for topic_id, topic_delta in self._topics.items()
        }

    def _find_topic(self, topic_id: bytes) -> _TopicDelta | None:
        """Return the delta of a topic, or None if the topic does not exist. A new delta is not kept here."""
        if topic_id in self._topics:
            return self._topics[topic_id]
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else _TopicDelta(topic)

    def _require_topic(self, topic_id: bytes) -> _TopicDelta:
        topic_delta = self._find_topic(topic_id)
        if topic_delta is None:
            raise ReplayError(f"no topic with id {topic_id.hex()}")
        self._topics[topic_id] = topic_delta
        return topic_delta

    def _id_of(self, name: str) -> bytes | None:
        if name in self._names:
            return self._names[name]
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id
