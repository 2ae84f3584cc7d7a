"""What differs between two images, for those who act on it.

All is found by looking only at what a delta touched, and only what really differs is given: a rule that was added and
removed again is no change. The order is that of the records, or sorted where a snapshot was loaded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from immutables import Map

from ottla.metadata.image.image import Image
from ottla.metadata.image.values import (
    Acl,
    Broker,
    ConfigResource,
    Controller,
    DelegationToken,
    Partition,
    QuotaEntity,
    ScramCredential,
    ScramUser,
    Topic,
)

K = TypeVar("K")
V = TypeVar("V")

_new = tuple.__new__
"""Passes over the constructor, which is half the cost of a named tuple."""


class Change(NamedTuple, Generic[K, V]):
    """What something was and is; None where it was or is not there."""

    key: K
    old: V | None
    new: V | None


class PartitionChange(NamedTuple):
    """What a partition was and is; the topic is the new one, or the old one of a deleted topic."""

    topic: Topic
    number: int
    old: Partition | None
    new: Partition | None


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys that may differ. A topic's partitions are all of them where None is given."""

    brokers: Iterable[int] = ()
    controllers: Iterable[int] = ()
    topics: Mapping[bytes, Iterable[int] | None] = field(default_factory=dict)
    configs: Iterable[ConfigResource] = ()
    quotas: Iterable[QuotaEntity] = ()
    acls: Iterable[bytes] = ()
    scram: Iterable[ScramUser] = ()
    tokens: Iterable[str] = ()


class Changes:
    """The differences from one image to a later one."""

    def __init__(self, old: Image, new: Image, touched: Touched) -> None:
        self.old = old
        self.new = new
        self._touched = touched

    @classmethod
    def between(cls, old: Image, new: Image) -> "Changes":
        """The differences of any two images, such as across a snapshot; looks at all of both."""
        touched = Touched(
            brokers=sorted({*old.brokers, *new.brokers}),
            controllers=sorted({*old.controllers, *new.controllers}),
            topics=dict.fromkeys(sorted({*old.topics_by_id, *new.topics_by_id})),
            configs=sorted({*old.configs, *new.configs}),
            quotas=sorted({*old.quotas, *new.quotas}, key=repr),
            acls=sorted({*old.acls, *new.acls}),
            scram=sorted({*old.scram, *new.scram}),
            tokens=sorted({*old.tokens, *new.tokens}),
        )
        return cls(old, new, touched)

    @cached_property
    def topics_created(self) -> tuple[Topic, ...]:
        """By id: a topic deleted and made again is in both."""
        before = self.old.topics_by_id
        pairs = ((topic_id, self.new.topics_by_id.get(topic_id)) for topic_id in self._touched.topics)
        return tuple(topic for topic_id, topic in pairs if topic is not None and topic_id not in before)

    @cached_property
    def topics_deleted(self) -> tuple[Topic, ...]:
        after = self.new.topics_by_id
        pairs = ((topic_id, self.old.topics_by_id.get(topic_id)) for topic_id in self._touched.topics)
        return tuple(topic for topic_id, topic in pairs if topic is not None and topic_id not in after)

    @cached_property
    def partitions(self) -> tuple[PartitionChange, ...]:
        """Every partition that was made, changed or deleted, also with its topic."""
        found: list[PartitionChange] = []
        topics_before, topics_after = self.old.topics_by_id, self.new.topics_by_id
        for topic_id, touched in self._touched.topics.items():
            old, new = topics_before.get(topic_id), topics_after.get(topic_id)
            if old is new:
                continue
            if old is None:
                assert new is not None
                for number, made in enumerate(new.partitions):
                    found.append(_new(PartitionChange, (new, number, None, made)))
                continue
            before, after = old.partitions, new.partitions if new else ()
            for number in range(max(len(before), len(after))) if touched is None else touched:
                was = before[number] if number < len(before) else None
                now = after[number] if number < len(after) else None
                if was is not now and was != now:
                    found.append(PartitionChange(new or old, number, was, now))
        return tuple(found)

    @cached_property
    def topics_placed(self) -> frozenset[str]:
        """The names of topics that came, went, or have other partitions or replicas than before."""
        placed = {
            change.topic.name
            for change in self.partitions
            # Leaders and replicas in sync come and go; assignments do not depend on them.
            if change.old is None or change.new is None or change.old.replicas != change.new.replicas
        }
        placed.update(topic.name for topic in self.topics_deleted)
        return frozenset(placed)

    def partitions_of(self, name: str) -> Sequence[PartitionChange]:
        """Those of the topics of a name: the others cost nothing where it is not among the changed."""
        if self.old.topics.get(name) is self.new.topics.get(name):
            return ()
        return [change for change in self.partitions if change.topic.name == name]

    @cached_property
    def brokers(self) -> tuple[Change[int, Broker], ...]:
        return _differences(self._touched.brokers, self.old.brokers, self.new.brokers)

    @cached_property
    def controllers(self) -> tuple[Change[int, Controller], ...]:
        return _differences(self._touched.controllers, self.old.controllers, self.new.controllers)

    @cached_property
    def configs(self) -> tuple[Change[ConfigResource, Map[str, str]], ...]:
        return _differences(self._touched.configs, self.old.configs, self.new.configs)

    @cached_property
    def quotas(self) -> tuple[Change[QuotaEntity, Map[str, float]], ...]:
        return _differences(self._touched.quotas, self.old.quotas, self.new.quotas)

    @cached_property
    def acls(self) -> tuple[Change[bytes, Acl], ...]:
        return _differences(self._touched.acls, self.old.acls, self.new.acls)

    @cached_property
    def scram(self) -> tuple[Change[ScramUser, ScramCredential], ...]:
        return _differences(self._touched.scram, self.old.scram, self.new.scram)

    @cached_property
    def tokens(self) -> tuple[Change[str, DelegationToken], ...]:
        return _differences(self._touched.tokens, self.old.tokens, self.new.tokens)

    def on_broker(self, broker_id: int) -> "ReplicaChanges":
        """What changed for the replicas of one broker."""
        deleted, leading, elected, following, moved = [], [], [], [], []
        for change in self.partitions:
            old, new = change.old, change.new
            if new is None or broker_id not in new.replicas:
                if old is not None and broker_id in old.replicas:
                    deleted.append(change)
                continue
            if old is None or old.partition_epoch != new.partition_epoch:
                if new.leader == broker_id:
                    leading.append(change)
                    if old is None or old.leader_epoch != new.leader_epoch:
                        elected.append(change)
                else:
                    following.append(change)
            if old is None or old.directory_of(broker_id) != new.directory_of(broker_id):
                moved.append(change)
        return ReplicaChanges(tuple(deleted), tuple(leading), tuple(elected), tuple(following), tuple(moved))


class ReplicaChanges(NamedTuple):
    """What a broker must do about its replicas."""

    deleted: tuple[PartitionChange, ...]
    """It is no replica any more, or the topic is gone."""
    leading: tuple[PartitionChange, ...]
    """It leads, and something changed."""
    elected: tuple[PartitionChange, ...]
    """Those of `leading` whose leader epoch is new."""
    following: tuple[PartitionChange, ...]
    """It follows, or would if there were a leader, and something changed."""
    moved: tuple[PartitionChange, ...]
    """Its replica is in another directory than before, or new."""


def _differences(touched: Iterable[K], old: Map[K, V], new: Map[K, V]) -> tuple[Change[K, V], ...]:
    if old is new:
        return ()
    found = (Change(key, old.get(key), new.get(key)) for key in touched)
    return tuple(change for change in found if change.old is not change.new and change.old != change.new)
