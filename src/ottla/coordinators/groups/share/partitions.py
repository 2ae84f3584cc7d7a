"""The share partitions of a group that are initialized at the share coordinator, or are being initialized or deleted.

Members get only initialized partitions. Initializing and deleting takes requests to the share coordinator. Those in
progress are recorded, so that the next group coordinator can continue them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.metadata.image.image import Image

UNKNOWN_NAME: Final = "<UNKNOWN>"


class TopicState(NamedTuple):
    """Partitions of one topic in the same state."""

    name: str
    partitions: frozenset[int]
    since_ms: int
    """When this was recorded or loaded."""


Topics = Mapping[bytes, TopicState]
PartitionsByTopic = Mapping[bytes, Collection[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class SharePartitions:
    """The states of a group's share partitions."""

    initializing: Topics
    initialized: Topics
    deleting: frozenset[bytes]

    def missing(self, names: Iterable[str], image: Image, now_ms: int, retry_ms: int) -> dict[bytes, TopicState]:
        """Return the partitions of subscribed topics that are neither initialized nor being initialized."""
        in_progress = {
            topic_id: topic for topic_id, topic in self.initializing.items() if now_ms - topic.since_ms < retry_ms
        }
        done = combined(self.initialized, in_progress)
        missing = {}
        for name in sorted(names):
            topic = image.topic(name)
            if topic is None:
                continue
            has = done[topic.id].partitions if topic.id in done else frozenset()
            if len(has) < len(topic.partitions):
                remaining = frozenset(range(len(topic.partitions))) - has
                missing[topic.id] = TopicState(name, remaining, now_ms)
        return missing

    def with_initializing(self, topics: Topics) -> SharePartitions:
        """Note that an initialization begins; its topics are no longer being deleted."""
        initializing = combined(self.initializing, topics)
        return replace(self, initializing=initializing, deleting=self.deleting - set(initializing))

    def with_initialized(self, topics: PartitionsByTopic, image: Image, now_ms: int) -> SharePartitions:
        """Note that partitions were initialized."""
        added = {topic_id: topic_state(topic_id, partitions, image, now_ms) for topic_id, partitions in topics.items()}
        return replace(
            self, initializing=_without(self.initializing, topics), initialized=combined(self.initialized, added)
        )

    def with_failed(self, topics: PartitionsByTopic) -> SharePartitions:
        """Note that an initialization failed."""
        return replace(self, initializing=_without(self.initializing, topics))

    def deletable(self, image: Image) -> Topics:
        """Return the partitions to delete before the group, including the remains of an earlier attempt."""
        remains = {
            topic_id: TopicState(topic.name, frozenset(range(len(topic.partitions))), -1)
            for topic_id in sorted(self.deleting)
            if (topic := image.topic_by_id(topic_id)) is not None
        }
        return combined(combined(self.initialized, self.initializing), remains)

    def without_topics(self, topic_ids: Collection[bytes]) -> SharePartitions:
        """Return the states without deleted topics; the same object if it has none of them."""
        deleted = set(topic_ids)
        if (
            deleted.isdisjoint(self.initializing)
            and deleted.isdisjoint(self.initialized)
            and deleted.isdisjoint(self.deleting)
        ):
            return self
        return SharePartitions(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in deleted},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in deleted},
            self.deleting - deleted,
        )


NO_PARTITIONS: Final = SharePartitions({}, {}, frozenset())


def topic_state(topic_id: bytes, partitions: Iterable[int], image: Image, now_ms: int) -> TopicState:
    """Return partitions with their topic's name, if the topic exists."""
    topic = image.topic_by_id(topic_id)
    return TopicState(UNKNOWN_NAME if topic is None else topic.name, frozenset(partitions), now_ms)


def combined(first: Topics, second: Topics) -> dict[bytes, TopicState]:
    """Return the union of both."""
    both = dict(first)
    for topic_id, topic in second.items():
        other = both.get(topic_id)
        both[topic_id] = topic if other is None else topic._replace(partitions=other.partitions | topic.partitions)
    return both


def _without(topics: Topics, done: PartitionsByTopic) -> dict[bytes, TopicState]:
    remaining = {}
    for topic_id, topic in topics.items():
        partitions = topic.partitions - set(done.get(topic_id, ()))
        if partitions:
            remaining[topic_id] = topic._replace(partitions=partitions)
    return remaining
