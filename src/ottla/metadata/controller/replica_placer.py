"""Which brokers get the replicas of new partitions.

Leaders go round robin over the racks and, within a rack, over its brokers, from a random start; followers follow in
stripes over the other racks, so that each rack gets one before any gets two. Fenced brokers get replicas only where
others do not suffice, and never the first of a partition. After as many partitions as there are unfenced brokers all
is shuffled, so that the same brokers do not follow each other again.
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
    """Brokers that may get new replicas: not those that shut down, nor those with only cordoned directories."""
    return [
        broker
        for broker in view.image.brokers.values()
        if accepts_new_replicas(broker) and (broker.fenced or not broker.in_controlled_shutdown)
    ]


class ReplicaPlacer:
    """Brokers by their racks: looked at once, for all topics of a request."""

    def __init__(self, brokers: Iterable[Broker]) -> None:
        self._racks: dict[str | None, tuple[list[int], list[int]]] = {}
        self.unfenced = 0
        sorted_brokers = sorted(brokers, key=lambda each: each.id)
        for broker in sorted_brokers:
            unfenced, fenced = self._racks.setdefault(broker.rack, ([], []))
            (fenced if broker.fenced else unfenced).append(broker.id)
            self.unfenced += not broker.fenced
        self.total = len(sorted_brokers)
        self._only = (sorted_brokers[0].id,) if self.total == 1 else None
        # Brokers without a rack are one rack, the first.
        self.names = sorted(self._racks, key=lambda name: (name is not None, name or ""))

    def place(self, partitions: int, replication_factor: int, random: Randomness) -> list[tuple[int, ...]]:
        """The replicas of each of a number of partitions, the first of them active; or InvalidReplicationFactor."""
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
        if self._only is not None:  # no choice, which took a fifth of deciding on a topic
            return [self._only] * partitions
        rounds = _StripedPlacement(self, random)
        return [rounds.next_partition(replication_factor) for _ in range(partitions)]

    def start_rack(self, name: str | None, random: Randomness) -> "_Rack":
        """A rack whose brokers are taken in turn, from a random start."""
        unfenced, fenced = self._racks[name]
        first_fenced = random.randrange(len(fenced)) if fenced else 0
        first = random.randrange(len(unfenced)) if unfenced else 0
        return _Rack(_BrokerRing(unfenced.copy(), offset=first), _BrokerRing(fenced.copy(), offset=first_fenced))


@dataclass(slots=True)
class _BrokerRing:
    """Brokers taken in turn; with each partition the turn starts one further on."""

    brokers: list[int]
    offset: int
    index: int = 0
    partition: int = 0

    def next(self, partition: int) -> int | None:
        """The next broker for a partition, each of which is a turn; None when it has had all."""
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
        found = self.unfenced.next(partition)
        return self.fenced.next(partition) if found is None else found


class _StripedPlacement:
    """The brokers as the partitions of one topic take them."""

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
                skipped = True  # it has the leader already
            else:
                found = self._racks[self._names[rack_index]].next(self._partition)
                if found is not None:
                    replicas.append(found)
            rack_index = (rack_index + 1) % len(self._names)
        self._partition += 1
        self._rack_offset += 1
        return tuple(replicas)

    def _first_replica(self) -> tuple[int, int]:
        rack_index = self._rack_offset
        while True:
            found = self._racks[self._names[rack_index]].unfenced.next(self._partition)
            if found is not None:
                return rack_index, found
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
