"""An image: all metadata of the cluster after one record of the metadata log.

An image never changes. `Delta` gives the next one; parts that the delta did not change are the same objects in both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from ottla.metadata.image.placement import Placement, TopicMasks, build_placement, partition_numbers
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


class TopicPartition(NamedTuple):
    """A partition with its topic and number."""

    topic: Topic
    number: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Image:
    offset: int = -1
    """Offset of the last record in the image; epoch and timestamp are those of its batch."""
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
    """The first producer id that is not allocated; -1 before the first block."""
    acls: Map[bytes, Acl] = NO_ENTRIES
    scram: Map[ScramUser, ScramCredential] = NO_ENTRIES
    tokens: Map[str, DelegationToken] = NO_ENTRIES
    # Derived from the other fields on first use.
    _placement: Placement | None = field(default=None, compare=False, repr=False)
    _placement_source: Callable[[], Placement] | None = field(default=None, compare=False, repr=False)
    """Builds the placement from that of the previous image, if that has one."""
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
        """Return the endpoint of a broker, fenced or not, or None without such a broker or listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def config(self, kind: int, name: str) -> Map[str, str]:
        """Return the configs that are set on a resource, without defaults."""
        return self.configs.get(ConfigResource(kind, name), NO_ENTRIES)

    def topic_config(self, name: str) -> Map[str, str]:
        return self.config(ResourceType.TOPIC, name)

    def broker_config(self, broker_id: int) -> Map[str, str]:
        return self.config(ResourceType.BROKER, str(broker_id))

    @property
    def default_broker_config(self) -> Map[str, str]:
        """The configs that are set on all brokers of the cluster."""
        return self.config(ResourceType.BROKER, "")

    def quota(self, entity: QuotaEntity) -> Map[str, float]:
        """Return the quotas that are set on exactly this entity."""
        return self.quotas.get(entity, NO_ENTRIES)

    @property
    def placement(self) -> Placement:
        """The placement of all partitions. Only the first use visits all of them; later images update it."""
        placement = self._placement
        if placement is None:
            if self._placement_source is not None:
                placement = self._placement_source()
                object.__setattr__(self, "_placement_source", None)
            else:
                placement = build_placement(self.topics_by_id.values())
                if not self.topics_by_id:  # if EMPTY kept it, every image after it would have to update it
                    return placement
            object.__setattr__(self, "_placement", placement)
        return placement

    @property
    def has_placement(self) -> bool:
        """Whether the next image builds its placement from this one's."""
        return self._placement is not None or self._placement_source is not None

    def partitions_with_replica(self, broker_id: int) -> Iterator[TopicPartition]:
        return self.partitions_of(self.placement.replicas.get(broker_id, NO_ENTRIES))

    def partitions_in_isr(self, broker_id: int) -> Iterator[TopicPartition]:
        return self.partitions_of(self.placement.isr.get(broker_id, NO_ENTRIES))

    def partitions_in_elr(self, broker_id: int) -> Iterator[TopicPartition]:
        return self.partitions_of(self.placement.elr.get(broker_id, NO_ENTRIES))

    def partitions_without_leader(self) -> Iterator[TopicPartition]:
        return self.partitions_of(self.placement.leaderless)

    def partitions_not_led_by_preferred(self) -> Iterator[TopicPartition]:
        return self.partitions_of(self.placement.imbalanced)

    def partitions_of(self, masks: TopicMasks) -> Iterator[TopicPartition]:
        """Return the partitions of a set, ordered by topic id and number."""
        for topic_id in sorted(masks):
            topic = self.topics_by_id[topic_id]
            for number in partition_numbers(masks[topic_id]):
                yield TopicPartition(topic, number, topic.partitions[number])


EMPTY = Image()
