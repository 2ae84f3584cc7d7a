"""Which partitions a broker holds, is in sync with, or leads; which have no leader, or are on the move.

The controller asks this on every failure, so that it may not search the image; brokers never ask. It is built from an
image when first asked for, and from then on follows each delta by what the delta touched.

A set of partitions of one topic is a bit mask of their numbers: union and difference are one operation, a topic of
10,000 partitions takes 1.2 kB a broker, and joining or leaving is the same flip of a bit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from immutables import Map

from ottla.metadata.image.values import NO_ENTRIES, NO_LEADER, Partition, Topic

TopicMasks: TypeAlias = Map[bytes, int]
"""A set of partitions: for each topic's id the mask of its partitions."""
BrokerMasks: TypeAlias = Map[int, TopicMasks]
Flips: TypeAlias = defaultdict[bytes, list[int]]
"""For each topic the partitions that join or leave a set, each once."""
Move: TypeAlias = tuple[Topic, int, Partition | None, Partition | None]
"""A partition that changed: topic, number, old, new; None where there is none."""


def partitions_in(mask: int) -> Iterator[int]:
    """The partition numbers of a mask, rising."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def count(masks: TopicMasks) -> int:
    """How many partitions a set has."""
    return sum(mask.bit_count() for mask in masks.values())


@dataclass(frozen=True, slots=True)
class Placement:
    """Sets of partitions, some by broker. None has empty entries."""

    replicas: BrokerMasks = NO_ENTRIES
    isr: BrokerMasks = NO_ENTRIES
    elr: BrokerMasks = NO_ENTRIES
    leaders: BrokerMasks = NO_ENTRIES
    leaderless: TopicMasks = NO_ENTRIES
    reassigning: TopicMasks = NO_ENTRIES
    imbalanced: TopicMasks = NO_ENTRIES
    """Not led by the first of their replicas."""
    partition_count: int = 0
    replica_count: int = 0
    isr_counts: Map[int, int] = NO_ENTRIES
    """How many partitions each broker is in sync with: counting the masks would look at every topic."""

    def updated(self, moves: Iterable[Move]) -> "Placement":
        """The placement after partitions changed, each named once."""
        replicas, isr, elr, leaders = (defaultdict[int, Flips](_no_flips) for _ in range(4))
        leaderless, reassigning, imbalanced = _no_flips(), _no_flips(), _no_flips()
        partition_count, replica_count = self.partition_count, self.replica_count
        for (_, topic, _), number, was, now in moves:
            # One that is absent has no leader, but is neither leaderless nor imbalanced.
            old, new = was or _ABSENT, now or _ABSENT
            if was is None or now is None:
                partition_count += (now is not None) - (was is not None)
            if old.replicas is not new.replicas:
                _flip_members(replicas, topic, number, old.replicas, new.replicas)
                replica_count += len(new.replicas) - len(old.replicas)
            if old.isr is not new.isr:
                _flip_members(isr, topic, number, old.isr, new.isr)
            if old.elr is not new.elr:
                _flip_members(elr, topic, number, old.elr, new.elr)
            led, leads = old.leader, new.leader
            if led != leads:
                if led != NO_LEADER:
                    leaders[led][topic].append(number)
                if leads != NO_LEADER:
                    leaders[leads][topic].append(number)
            if (led == NO_LEADER and was is not None) != (leads == NO_LEADER and now is not None):
                leaderless[topic].append(number)
            if old.is_reassigning != new.is_reassigning:
                reassigning[topic].append(number)
            if (led != old.preferred_leader) != (leads != new.preferred_leader):
                imbalanced[topic].append(number)
        in_sync = _apply_by_broker(self.isr, isr)
        return Placement(
            replicas=_apply_by_broker(self.replicas, replicas),
            isr=in_sync,
            elr=_apply_by_broker(self.elr, elr),
            leaders=_apply_by_broker(self.leaders, leaders),
            leaderless=_apply(self.leaderless, leaderless),
            reassigning=_apply(self.reassigning, reassigning),
            imbalanced=_apply(self.imbalanced, imbalanced),
            partition_count=partition_count,
            replica_count=replica_count,
            isr_counts=_recount(self.isr_counts, self.isr, in_sync, isr),
        )


_ABSENT = Partition((), (), (), (), NO_LEADER, 0, 0, (), 0, (), ())


def placement_of(topics: Iterable[Topic]) -> Placement:
    """The placement of all partitions of these topics."""
    moves = ((topic, number, None, new) for topic in topics for number, new in enumerate(topic.partitions))
    return Placement().updated(moves)


def _no_flips() -> Flips:
    return defaultdict(list)


def _flip_members(
    flips: defaultdict[int, Flips], topic: bytes, number: int, was: tuple[int, ...], now: tuple[int, ...]
) -> None:
    for broker in was:
        if broker not in now:
            flips[broker][topic].append(number)
    for broker in now:
        if broker not in was:
            flips[broker][topic].append(number)


def _mask_of(numbers: list[int]) -> int:
    """The mask of some partitions. Those of a large topic are put together byte by byte: a mask that grows bit by bit
    would be copied for each."""
    if len(numbers) == 1:
        return 1 << numbers[0]
    mask = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        mask[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(mask, "little")


def _apply(masks: TopicMasks, flips: Flips) -> TopicMasks:
    if not flips:
        return masks
    changing = masks.mutate()
    for topic, flipped in flips.items():
        mask = changing.get(topic, 0) ^ _mask_of(flipped)
        if mask:
            changing[topic] = mask
        else:
            del changing[topic]
    return changing.finish()


def _apply_by_broker(masks: BrokerMasks, flips: dict[int, Flips]) -> BrokerMasks:
    if not flips:
        return masks
    changing = masks.mutate()
    for broker, changes in flips.items():
        after = _apply(changing.get(broker, NO_ENTRIES), changes)
        if after:
            changing[broker] = after
        else:
            del changing[broker]
    return changing.finish()


def _recount(counts: Map[int, int], before: BrokerMasks, after: BrokerMasks, flips: dict[int, Flips]) -> Map[int, int]:
    """The sizes of the brokers' sets after some topics' masks changed; only those masks are looked at."""
    if not flips:
        return counts
    changing = counts.mutate()
    for broker, changes in flips.items():
        old, new = before.get(broker, NO_ENTRIES), after.get(broker, NO_ENTRIES)
        joined = sum(new.get(topic, 0).bit_count() - old.get(topic, 0).bit_count() for topic in changes)
        count = changing.get(broker, 0) + joined
        if count:
            changing[broker] = count
        else:
            changing.pop(broker, None)
    return changing.finish()
