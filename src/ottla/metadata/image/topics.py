"""Topics under change: what a delta has made of them so far.

A topic is copied once a delta, when the delta ends, however many of its partitions change.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from immutables import Map

from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.image import Image
from ottla.metadata.image.partitions import changed_partition, new_partition, without_elr
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.messages.records.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class _Draft:
    """A topic with some partitions new or changed."""

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
        known = len(topic.partitions)
        if not known and [*changed] == [*range(len(changed))]:  # as a new topic is told
            return Topic(topic.name, topic.id, tuple(changed.values()))
        numbers = sorted(changed)
        first_new = bisect_left(numbers, known)
        count = known + len(numbers) - first_new
        if numbers[-1] >= count:
            raise ReplayError(f"topic {topic.name} has {count} partitions, the last being {numbers[-1]}")
        partitions = [*topic.partitions, *map(changed.__getitem__, numbers[first_new:])]
        for number in numbers[:first_new]:
            partitions[number] = changed[number]
        return Topic(topic.name, topic.id, tuple(partitions))


class TopicsDraft:
    """All topics, as the records so far leave them."""

    __slots__ = ("_drafts", "_image", "_known", "_names")

    def __init__(self, image: Image) -> None:
        self._image = image
        self._drafts: dict[bytes, _Draft | None] = {}  # None: deleted
        self._names: dict[str, bytes | None] = {}  # of topics made or deleted
        self._known: dict[Any, Any] = {}  # tuples that partitions share

    def create(self, record: TopicRecord) -> None:
        if self._id_of(record.name) is not None:
            raise ReplayError(f"topic {record.name} is there already")
        if self._find(record.topic_id) is not None:
            raise ReplayError(f"topic id {record.topic_id.hex()} is taken, now for {record.name}")
        self._drafts[record.topic_id] = _Draft(Topic(record.name, record.topic_id))
        self._names[record.name] = record.topic_id

    def remove(self, record: RemoveTopicRecord) -> str:
        """Delete a topic; gives its name."""
        name = self._draft(record.topic_id).topic.name
        self._drafts[record.topic_id] = None
        self._names[name] = None
        return name

    def add_partition(self, record: PartitionRecord) -> None:
        if record.partition_id < 0:
            raise ReplayError(f"partition {record.partition_id}: {record}")
        draft = self._drafts.get(record.topic_id) or self._draft(record.topic_id)
        draft.changed[record.partition_id] = new_partition(record, self._known)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        draft = self._drafts.get(record.topic_id) or self._draft(record.topic_id)
        old = draft.partition(record.partition_id)
        if old is None:
            raise ReplayError(f"topic {draft.topic.name} has no partition {record.partition_id}")
        draft.changed[record.partition_id] = changed_partition(old, record)

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leader replicas of one topic, or of all when none is named."""
        if record.topic_name:
            topic_id = self._id_of(record.topic_name)
            if topic_id is None:
                raise ReplayError(f"no topic {record.topic_name} whose eligible leader replicas could be cleared")
            self._clear_elr(topic_id)
        else:
            for topic_id in sorted({*self._image.topics_by_id, *self._drafts}):
                self._clear_elr(topic_id)

    def _clear_elr(self, topic_id: bytes) -> None:
        draft = self._find(topic_id)
        if draft is None:
            return
        known = {**dict(enumerate(draft.topic.partitions)), **draft.changed}
        cleared = {number: without_elr(partition) for number, partition in known.items()}
        changed = {number: partition for number, partition in cleared.items() if partition is not known[number]}
        if changed:
            draft.changed.update(changed)
            self._drafts[topic_id] = draft

    def finish(self) -> tuple[Map[str, Topic], Map[bytes, Topic]]:
        """All topics by name and by id."""
        if not self._drafts:
            return self._image.topics, self._image.topics_by_id
        by_name, by_id = self._image.topics.mutate(), self._image.topics_by_id.mutate()
        for name, topic_id in self._names.items():
            if topic_id is None:
                by_name.pop(name, None)
        for topic_id, draft in self._drafts.items():
            if draft is None:
                by_id.pop(topic_id, None)
            else:
                topic = draft.finish()
                by_name[topic.name] = by_id[topic_id] = topic
        return by_name.finish(), by_id.finish()

    def touched(self) -> Mapping[bytes, Iterable[int] | None]:
        """For each topic the partitions that may differ from the image's; None: any."""
        known = self._image.topics_by_id
        return {
            topic_id: None if draft is None or draft.topic is not known.get(topic_id) else draft.changed
            for topic_id, draft in self._drafts.items()
        }

    def _find(self, topic_id: bytes) -> _Draft | None:
        """What there is now of a topic; a draft that is not kept unless it was before."""
        if topic_id in self._drafts:
            return self._drafts[topic_id]
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else _Draft(topic)

    def _draft(self, topic_id: bytes) -> _Draft:
        draft = self._find(topic_id)
        if draft is None:
            raise ReplayError(f"no topic of id {topic_id.hex()}")
        self._drafts[topic_id] = draft
        return draft

    def _id_of(self, name: str) -> bytes | None:
        if name in self._names:
            return self._names[name]
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id
