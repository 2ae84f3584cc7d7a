"""The changes between two images.

They are computed from the keys that a delta changed, and hold only real differences: an ACL that was added and removed
again is no change. The order is that of the records, or sorted after a snapshot.
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
"""Skips the constructor, which is half the cost of a named tuple."""


class Change(NamedTuple, Generic[K, V]):
    """An old and a new value; None where it does not exist."""

    key: K
    old: V | None
    new: V | None


class PartitionChange(NamedTuple):
    """The old and new state of a partition, with the new topic, or the old one if it was deleted."""

    topic: Topic
    number: int
    old: Partition | None
    new: Partition | None


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The keys that may differ. For a topic, None stands for all its partitions."""

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

    def __init__(self, old: Image, new: Image, changed_keys: ChangedKeys) -> None:
        self.old = old
        self.new = new
        self._changed_keys = changed_keys

    @classmethod
    def between(cls, old: Image, new: Image) -> "Changes":
        """Compare two images in full, such as before and after a snapshot."""
        changed_keys = ChangedKeys(
            brokers=sorted({*old.brokers, *new.brokers}),
            controllers=sorted({*old.controllers, *new.controllers}),
            topics=dict.fromkeys(sorted({*old.topics_by_id, *new.topics_by_id})),
            configs=sorted({*old.configs, *new.configs}),
            quotas=sorted({*old.quotas, *new.quotas}, key=repr),
            acls=sorted({*old.acls, *new.acls}),
            scram=sorted({*old.scram, *new.scram}),
            tokens=sorted({*old.tokens, *new.tokens}),
        )
        return cls(old, new, changed_keys)

    @cached_property
    def topics_created(self) -> tuple[Topic, ...]:
        """Created topics, by id: a topic that was deleted and recreated is in `topics_deleted` as well."""
        before = self.old.topics_by_id
        pairs = ((topic_id, self.new.topics_by_id.get(topic_id)) for topic_id in self._changed_keys.topics)
        return tuple(topic for topic_id, topic in pairs if topic is not None and topic_id not in before)

    @cached_property
    def topics_deleted(self) -> tuple[Topic, ...]:
        after = self.new.topics_by_id
        pairs = ((topic_id, self.old.topics_by_id.get(topic_id)) for topic_id in self._changed_keys.topics)
        return tuple(topic for topic_id, topic in pairs if topic is not None and topic_id not in after)

    @cached_property
    def partitions(self) -> tuple[PartitionChange, ...]:
        """All partitions that were created, changed or deleted."""
        changes: list[PartitionChange] = []
        topics_before, topics_after = self.old.topics_by_id, self.new.topics_by_id
        for topic_id, changed_keys in self._changed_keys.topics.items():
            old, new = topics_before.get(topic_id), topics_after.get(topic_id)
            if old is new:
                continue
            if old is None:
                assert new is not None
                for number, partition in enumerate(new.partitions):
                    changes.append(_new(PartitionChange, (new, number, None, partition)))
                continue
            before, after = old.partitions, new.partitions if new else ()
            for number in range(max(len(before), len(after))) if changed_keys is None else changed_keys:
                was = before[number] if number < len(before) else None
                now = after[number] if number < len(after) else None
                if was is not now and was != now:
                    changes.append(PartitionChange(new or old, number, was, now))
        return tuple(changes)

    @cached_property
    def topics_with_new_assignments(self) -> frozenset[str]:
        """Names of the topics that were created or deleted, or whose partitions or replicas changed."""
        placed = {
            change.topic.name
            for change in self.partitions
            # Group assignments do not depend on leaders and ISRs, which change often.
            if change.old is None or change.new is None or change.old.replicas != change.new.replicas
        }
        placed.update(topic.name for topic in self.topics_deleted)
        return frozenset(placed)

    def partitions_of(self, name: str) -> Sequence[PartitionChange]:
        """Return the changed partitions of the topics with this name. Costs nothing if the topic did not change."""
        if self.old.topics.get(name) is self.new.topics.get(name):
            return ()
        return [change for change in self.partitions if change.topic.name == name]

    @cached_property
    def brokers(self) -> tuple[Change[int, Broker], ...]:
        return _differences(self._changed_keys.brokers, self.old.brokers, self.new.brokers)

    @cached_property
    def controllers(self) -> tuple[Change[int, Controller], ...]:
        return _differences(self._changed_keys.controllers, self.old.controllers, self.new.controllers)

    @cached_property
    def configs(self) -> tuple[Change[ConfigResource, Map[str, str]], ...]:
        return _differences(self._changed_keys.configs, self.old.configs, self.new.configs)

    @cached_property
    def quotas(self) -> tuple[Change[QuotaEntity, Map[str, float]], ...]:
        return _differences(self._changed_keys.quotas, self.old.quotas, self.new.quotas)

    @cached_property
    def acls(self) -> tuple[Change[bytes, Acl], ...]:
        return _differences(self._changed_keys.acls, self.old.acls, self.new.acls)

    @cached_property
    def scram(self) -> tuple[Change[ScramUser, ScramCredential], ...]:
        return _differences(self._changed_keys.scram, self.old.scram, self.new.scram)

    @cached_property
    def tokens(self) -> tuple[Change[str, DelegationToken], ...]:
        return _differences(self._changed_keys.tokens, self.old.tokens, self.new.tokens)

    def for_broker(self, broker_id: int) -> "ReplicaChanges":
        """Return the changes that concern the replicas of one broker."""
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
    """The changes that a broker applies to its replicas."""

    deleted: tuple[PartitionChange, ...]
    """The broker is no longer a replica, or the topic was deleted."""
    leading: tuple[PartitionChange, ...]
    """The broker leads, and something changed."""
    elected: tuple[PartitionChange, ...]
    """The part of `leading` with a new leader epoch."""
    following: tuple[PartitionChange, ...]
    """The broker follows, or would follow if there were a leader, and something changed."""
    moved: tuple[PartitionChange, ...]
    """The replica is new, or assigned to another directory."""


def _differences(changed_keys: Iterable[K], old: Map[K, V], new: Map[K, V]) -> tuple[Change[K, V], ...]:
    if old is new:
        return ()
    changes = (Change(key, old.get(key), new.get(key)) for key in changed_keys)
    return tuple(change for change in changes if change.old is not change.new and change.old != change.new)
