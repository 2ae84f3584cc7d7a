"""Which share partitions of a group have a state at the share coordinator, are about to get one, or to lose it.

A partition is assigned to members only once its state is there. Making and deleting states takes requests to the share
coordinator; what is under way is written down, so that another coordinator can go on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.metadata.image.image import Image

UNKNOWN_NAME: Final = "<UNKNOWN>"


class TopicState(NamedTuple):
    """Some partitions of a topic."""

    name: str
    partitions: frozenset[int]
    since_ms: int
    """When that was written down, or loaded."""


Topics = Mapping[bytes, TopicState]
PartitionsByTopic = Mapping[bytes, Collection[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class SharePartitions:
    """What is known of a group's share partitions."""

    initializing: Topics
    initialized: Topics
    deleting: frozenset[bytes]

    def missing(self, names: Iterable[str], image: Image, now_ms: int, retry_ms: int) -> dict[bytes, TopicState]:
        """Partitions of subscribed topics that have no state, and for which none was asked for of late."""
        under_way = {
            topic_id: known for topic_id, known in self.initializing.items() if now_ms - known.since_ms < retry_ms
        }
        done = combined(self.initialized, under_way)
        found = {}
        for name in sorted(names):
            topic = image.topic(name)
            if topic is None:
                continue
            has = done[topic.id].partitions if topic.id in done else frozenset()
            if len(has) < len(topic.partitions):
                left = frozenset(range(len(topic.partitions))) - has
                found[topic.id] = TopicState(name, left, now_ms)
        return found

    def with_initializing(self, topics: Topics) -> SharePartitions:
        """With states that are being made; such topics are not being deleted any more."""
        initializing = combined(self.initializing, topics)
        return replace(self, initializing=initializing, deleting=self.deleting - set(initializing))

    def with_initialized(self, topics: PartitionsByTopic, image: Image, now_ms: int) -> SharePartitions:
        """With states that are there."""
        known = {topic_id: topic_state(topic_id, partitions, image, now_ms) for topic_id, partitions in topics.items()}
        return replace(
            self, initializing=_without(self.initializing, topics), initialized=combined(self.initialized, known)
        )

    def with_failed(self, topics: PartitionsByTopic) -> SharePartitions:
        """Without states that could not be made."""
        return replace(self, initializing=_without(self.initializing, topics))

    def deletable(self, image: Image) -> Topics:
        """All that must be deleted before the group can go, with what an earlier attempt has left."""
        left = {
            topic_id: TopicState(topic.name, frozenset(range(len(topic.partitions))), -1)
            for topic_id in sorted(self.deleting)
            if (topic := image.topic_by_id(topic_id)) is not None
        }
        return combined(combined(self.initialized, self.initializing), left)

    def without_topics(self, topic_ids: Collection[bytes]) -> SharePartitions:
        """Without topics that are gone; the same one if it knows none of them."""
        gone = set(topic_ids)
        if gone.isdisjoint(self.initializing) and gone.isdisjoint(self.initialized) and gone.isdisjoint(self.deleting):
            return self
        return SharePartitions(
            {topic_id: known for topic_id, known in self.initializing.items() if topic_id not in gone},
            {topic_id: known for topic_id, known in self.initialized.items() if topic_id not in gone},
            self.deleting - gone,
        )


NO_PARTITIONS: Final = SharePartitions({}, {}, frozenset())


def topic_state(topic_id: bytes, partitions: Iterable[int], image: Image, now_ms: int) -> TopicState:
    """Partitions with their topic's name, as far as it is known."""
    topic = image.topic_by_id(topic_id)
    return TopicState(UNKNOWN_NAME if topic is None else topic.name, frozenset(partitions), now_ms)


def combined(first: Topics, second: Topics) -> dict[bytes, TopicState]:
    """The partitions of both."""
    both = dict(first)
    for topic_id, known in second.items():
        has = both.get(topic_id)
        both[topic_id] = known if has is None else known._replace(partitions=has.partitions | known.partitions)
    return both


def _without(topics: Topics, done: PartitionsByTopic) -> dict[bytes, TopicState]:
    left = {}
    for topic_id, known in topics.items():
        partitions = known.partitions - set(done.get(topic_id, ()))
        if partitions:
            left[topic_id] = known._replace(partitions=partitions)
    return left
