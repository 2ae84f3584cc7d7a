"""Places the replicas of new partitions on brokers, as Kafka's StripedReplicaPlacer does.

Leaders go round robin over the racks and, within a rack, over its brokers, from a random start. Followers go in stripes
over the other racks, so that each rack gets one replica before any rack gets two. Fenced brokers get replicas only if
the others do not suffice, and never the first replica. After as many partitions as there are unfenced brokers, the
order is shuffled, so that the same brokers do not always share partitions.
"""

from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass
from typing import TypeVar

from ottla.metadata.controller.decision import Randomness
from ottla.metadata.controller.view import ControllerView, accepts_new_replicas
from ottla.metadata.image.values import Broker
from ottla.protocol.errors import InvalidReplicationFactor

T = TypeVar("T")


def usable_brokers(view: ControllerView) -> list[Broker]:
    """Return the brokers that can get new replicas: not shutting down, and with a directory that is not cordoned."""
    return [
        broker
        for broker in view.image.brokers.values()
        if accepts_new_replicas(broker) and (broker.fenced or not broker.in_controlled_shutdown)
    ]


class ReplicaPlacer:
    """The brokers by rack, for all topics of a request."""

    def __init__(self, brokers: Iterable[Broker]) -> None:
        self._racks: dict[str | None, tuple[list[int], list[int]]] = {}
        self.unfenced = 0
        sorted_brokers = sorted(brokers, key=lambda broker: broker.id)
        for broker in sorted_brokers:
            unfenced, fenced = self._racks.setdefault(broker.rack, ([], []))
            (fenced if broker.fenced else unfenced).append(broker.id)
            self.unfenced += not broker.fenced
        self.total = len(sorted_brokers)
        self._only = (sorted_brokers[0].id,) if self.total == 1 else None
        # All brokers without a rack form one rack, which comes first.
        self.names = sorted(self._racks, key=lambda name: (name is not None, name or ""))

    def place(self, partitions: int, replication_factor: int, random: Randomness) -> list[tuple[int, ...]]:
        """Return the replicas of each partition, the first one active. Raise InvalidReplicationFactor."""
        if replication_factor <= 0:
            raise InvalidReplicationFactor(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if self.unfenced == 0:
            raise InvalidReplicationFactor("All brokers are currently fenced.")
        if replication_factor > self.total:
            raise InvalidReplicationFactor(
                f"The target replication factor of {replication_factor} cannot be reached because only"
                f" {self.total} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        if self._only is not None:  # no choice: skips a fifth of the cost of creating a topic
            return [self._only] * partitions
        rounds = _StripedPlacement(self, random)
        return [rounds.next_partition(replication_factor) for _ in range(partitions)]

    def start_rack(self, name: str | None, random: Randomness) -> "_Rack":
        """Return a rack that gives its brokers in turn, from a random start."""
        unfenced, fenced = self._racks[name]
        first_fenced = random.randrange(len(fenced)) if fenced else 0
        first = random.randrange(len(unfenced)) if unfenced else 0
        return _Rack(_BrokerRing(unfenced.copy(), offset=first), _BrokerRing(fenced.copy(), offset=first_fenced))


@dataclass(slots=True)
class _BrokerRing:
    """Brokers that are taken in turn. Each partition starts with the next broker."""

    brokers: list[int]
    offset: int
    index: int = 0
    partition: int = 0

    def next(self, partition: int) -> int | None:
        """Return the next broker for a partition, or None if it has had all of them."""
        if not self.brokers:
            return None
        if self.partition != partition:
            self.partition, self.index, self.offset = partition, 0, (self.offset + 1) % len(self.brokers)
        if self.index >= len(self.brokers):
            return None
        self.index += 1
        return self.brokers[(self.index - 1 + self.offset) % len(self.brokers)]


@dataclass(slots=True)
class _Rack:
    unfenced: _BrokerRing
    fenced: _BrokerRing

    def next(self, partition: int) -> int | None:
        broker = self.unfenced.next(partition)
        return self.fenced.next(partition) if broker is None else broker


class _StripedPlacement:
    """The placement of one topic's partitions."""

    def __init__(self, placer: ReplicaPlacer, random: Randomness) -> None:
        self._random = random
        self._unfenced = placer.unfenced
        self._names = placer.names.copy()
        self._racks = {name: placer.start_rack(name, random) for name in self._names}
        self._rack_offset = random.randrange(len(self._names))
        self._partition = 0

    def next_partition(self, replication_factor: int) -> tuple[int, ...]:
        if self._unfenced > 1 and self._partition and self._partition % self._unfenced == 0:
            self._shuffle()
        if self._rack_offset == len(self._names):
            self._rack_offset = 0
        first_rack, leader = self._first_replica()
        replicas = [leader]
        rack_index = self._rack_offset
        skipped = False
        while len(replicas) < replication_factor:
            if rack_index == first_rack and not skipped:
                skipped = True  # this rack has the leader
            else:
                broker = self._racks[self._names[rack_index]].next(self._partition)
                if broker is not None:
                    replicas.append(broker)
            rack_index = (rack_index + 1) % len(self._names)
        self._partition += 1
        self._rack_offset += 1
        return tuple(replicas)

    def _first_replica(self) -> tuple[int, int]:
        rack_index = self._rack_offset
        while True:
            broker = self._racks[self._names[rack_index]].unfenced.next(self._partition)
            if broker is not None:
                return rack_index, broker
            rack_index = (rack_index + 1) % len(self._names)

    def _shuffle(self) -> None:
        _shuffle(self._names, self._random)
        for _, rack in sorted(self._racks.items(), key=lambda item: item[0] or ""):
            _shuffle(rack.fenced.brokers, self._random)
            _shuffle(rack.unfenced.brokers, self._random)


def _shuffle(items: MutableSequence[T], random: Randomness) -> None:
    for end in range(len(items) - 1, 0, -1):
        other = random.randrange(end + 1)
        items[end], items[other] = items[other], items[end]
