"""An image: all of the cluster's metadata after one record of the metadata log.

An image never changes. `Delta` makes the next one from it; what a delta did not touch is the same object in both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from ottla.metadata.image.placement import Placement, TopicMasks, partitions_in, placement_of
from ottla.metadata.image.values import (
    NO_ENTRIES,
    Acl,
    Broker,
    ConfigResource,
    Controller,
    DelegationToken,
    Endpoint,
    Features,
    Partition,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    ScramUser,
    Topic,
)

_NO_FEATURES = Features()


class Placed(NamedTuple):
    """A partition with the topic it is of."""

    topic: Topic
    number: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Image:
    offset: int = -1
    """Of the last record that the image holds, with its epoch and append time."""
    epoch: int = -1
    timestamp: int = -1
    features: Features = _NO_FEATURES
    brokers: Map[int, Broker] = NO_ENTRIES
    controllers: Map[int, Controller] = NO_ENTRIES
    topics: Map[str, Topic] = NO_ENTRIES
    topics_by_id: Map[bytes, Topic] = NO_ENTRIES
    configs: Map[ConfigResource, Map[str, str]] = NO_ENTRIES
    quotas: Map[QuotaEntity, Map[str, float]] = NO_ENTRIES
    next_producer_id: int = -1
    """The first producer id that no broker was given; -1 before the first block."""
    acls: Map[bytes, Acl] = NO_ENTRIES
    scram: Map[ScramUser, ScramCredential] = NO_ENTRIES
    tokens: Map[str, DelegationToken] = NO_ENTRIES
    # Made when first asked for; they say nothing that the rest does not.
    _placement: Placement | None = field(default=None, compare=False, repr=False)
    _follow: Callable[[], Placement] | None = field(default=None, compare=False, repr=False)
    """Makes the placement from that of the image before, where that has one."""
    _alive: tuple[Broker, ...] | None = field(default=None, compare=False, repr=False)

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, number: int) -> Partition | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partition(number)

    def partition_by_id(self, topic_id: bytes, number: int) -> Partition | None:
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partition(number)

    def broker(self, broker_id: int) -> Broker | None:
        return self.brokers.get(broker_id)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    @property
    def alive_brokers(self) -> tuple[Broker, ...]:
        """All unfenced brokers, by id."""
        if self._alive is None:
            alive = (broker for broker in self.brokers.values() if not broker.fenced)
            object.__setattr__(self, "_alive", tuple(sorted(alive, key=lambda broker: broker.id)))
        assert self._alive is not None
        return self._alive

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where a broker's listener is; None if the broker or its listener is not there. Fenced brokers have theirs."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def config(self, kind: int, name: str) -> Map[str, str]:
        """What is set on a resource itself, without defaults; empty if nothing is."""
        return self.configs.get(ConfigResource(kind, name), NO_ENTRIES)

    def topic_config(self, name: str) -> Map[str, str]:
        return self.config(ResourceType.TOPIC, name)

    def broker_config(self, broker_id: int) -> Map[str, str]:
        return self.config(ResourceType.BROKER, str(broker_id))

    @property
    def default_broker_config(self) -> Map[str, str]:
        """What is set on all brokers of the cluster."""
        return self.config(ResourceType.BROKER, "")

    def quota(self, entity: QuotaEntity) -> Map[str, float]:
        """The quotas set on exactly this entity; empty if none are."""
        return self.quotas.get(entity, NO_ENTRIES)

    @property
    def placement(self) -> Placement:
        """Partitions by broker and by trouble. The first image asked looks at all, those made from it at changes."""
        made = self._placement
        if made is None:
            if self._follow is not None:
                made = self._follow()
                object.__setattr__(self, "_follow", None)
            else:
                made = placement_of(self.topics_by_id.values())
                if not self.topics_by_id:  # kept on EMPTY, it would be followed by all images there will ever be
                    return made
            object.__setattr__(self, "_placement", made)
        return made

    @property
    def has_placement(self) -> bool:
        """Whether images made from this one follow its placement."""
        return self._placement is not None or self._follow is not None

    def partitions_with_replica(self, broker_id: int) -> Iterator[Placed]:
        return self.partitions_of(self.placement.replicas.get(broker_id, NO_ENTRIES))

    def partitions_in_isr(self, broker_id: int) -> Iterator[Placed]:
        return self.partitions_of(self.placement.isr.get(broker_id, NO_ENTRIES))

    def partitions_in_elr(self, broker_id: int) -> Iterator[Placed]:
        return self.partitions_of(self.placement.elr.get(broker_id, NO_ENTRIES))

    def partitions_without_leader(self) -> Iterator[Placed]:
        return self.partitions_of(self.placement.leaderless)

    def partitions_not_led_by_preferred(self) -> Iterator[Placed]:
        return self.partitions_of(self.placement.imbalanced)

    def partitions_of(self, masks: TopicMasks) -> Iterator[Placed]:
        """The partitions of a set, by topic id and number."""
        for topic_id in sorted(masks):
            topic = self.topics_by_id[topic_id]
            for number in partitions_in(masks[topic_id]):
                yield Placed(topic, number, topic.partitions[number])


EMPTY = Image()
