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

from ottla.image.values import NO_ENTRIES, NO_LEADER, Partition, Topic

TopicMasks: TypeAlias = Map[bytes, int]
"""A set of partitions: for each topic's id the mask of its partitions."""
BrokerMasks: TypeAlias = Map[int, TopicMasks]
Flips: TypeAlias = dict[bytes, int]
"""For each topic the partitions that join or leave a set."""
Move: TypeAlias = tuple[bytes, int, Partition | None, Partition | None]
"""A partition that changed: topic id, number, old, new; None where there is none."""


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

    def updated(self, moves: Iterable[Move]) -> "Placement":
        """The placement after partitions changed, each named once."""
        replicas, isr, elr, leaders = (defaultdict[int, Flips](dict) for _ in range(4))
        leaderless: Flips = {}
        reassigning: Flips = {}
        imbalanced: Flips = {}
        for (topic, was, now), bits in _alike(moves).items():
            old, new = was or _ABSENT, now or _ABSENT
            if old.replicas != new.replicas:
                _flip_members(replicas, topic, bits, old.replicas, new.replicas)
            if old.isr != new.isr:
                _flip_members(isr, topic, bits, old.isr, new.isr)
            if old.elr != new.elr:
                _flip_members(elr, topic, bits, old.elr, new.elr)
            if old.leader != new.leader:
                _flip_leader(leaders, topic, bits, old.leader)
                _flip_leader(leaders, topic, bits, new.leader)
            # The one that is absent has no leader, but is not leaderless.
            if (old.leader == NO_LEADER and old is not _ABSENT) != (new.leader == NO_LEADER and new is not _ABSENT):
                leaderless[topic] = leaderless.get(topic, 0) | bits
            if old.is_reassigning != new.is_reassigning:
                reassigning[topic] = reassigning.get(topic, 0) | bits
            if (old.leader != old.preferred_leader) != (new.leader != new.preferred_leader):
                imbalanced[topic] = imbalanced.get(topic, 0) | bits
        return Placement(
            replicas=_apply_by_broker(self.replicas, replicas),
            isr=_apply_by_broker(self.isr, isr),
            elr=_apply_by_broker(self.elr, elr),
            leaders=_apply_by_broker(self.leaders, leaders),
            leaderless=_apply(self.leaderless, leaderless),
            reassigning=_apply(self.reassigning, reassigning),
            imbalanced=_apply(self.imbalanced, imbalanced),
        )


_ABSENT = Partition((), (), (), (), NO_LEADER, 0, 0, (), 0, (), ())


def _alike(moves: Iterable[Move]) -> dict[tuple[bytes, Partition | None, Partition | None], int]:
    """The partitions of each topic that change in the same way, as a mask: those of a new topic mostly do."""
    found: defaultdict[tuple[bytes, Partition | None, Partition | None], int] = defaultdict(int)
    for topic, number, old, new in moves:
        found[topic, old, new] |= 1 << number
    return found


def placement_of(topics: Iterable[Topic]) -> Placement:
    """The placement of all partitions of these topics."""
    moves = ((topic.id, number, None, new) for topic in topics for number, new in enumerate(topic.partitions))
    return Placement().updated(moves)


def _flip_members(
    flips: defaultdict[int, Flips], topic: bytes, bits: int, was: tuple[int, ...], now: tuple[int, ...]
) -> None:
    for broker in was:
        if broker not in now:
            found = flips[broker]
            found[topic] = found.get(topic, 0) | bits
    for broker in now:
        if broker not in was:
            found = flips[broker]
            found[topic] = found.get(topic, 0) | bits


def _flip_leader(flips: defaultdict[int, Flips], topic: bytes, bits: int, leader: int) -> None:
    if leader != NO_LEADER:
        found = flips[leader]
        found[topic] = found.get(topic, 0) | bits


def _apply(masks: TopicMasks, flips: Flips) -> TopicMasks:
    if not flips:
        return masks
    if not masks:
        return Map(flips)
    changing = masks.mutate()
    for topic, flipped in flips.items():
        mask = changing.get(topic, 0) ^ flipped
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
