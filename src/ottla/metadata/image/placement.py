"""The placement of partitions: for each broker its replicas, ISR and ELR memberships and leaderships, and the
partitions without a leader, in reassignment, or not led by their preferred leader.

The controller needs them whenever a broker fails, and cannot search the image each time; brokers never need them. The
placement is built from an image on first use. From then on each delta updates it with the partitions that it changed.

The partitions of one topic are a bit mask of their numbers: union and difference are one operation, a topic of 10,000
partitions takes 1.2 kB for each broker, and a partition joins or leaves a set with the same flip of a bit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from immutables import Map

from ottla.metadata.image.values import NO_ENTRIES, NO_LEADER, Partition, Topic

TopicMasks: TypeAlias = Map[bytes, int]
"""A set of partitions: by topic id, the mask of partition numbers."""
BrokerMasks: TypeAlias = Map[int, TopicMasks]
Flips: TypeAlias = defaultdict[bytes, list[int]]
"""By topic id, the partitions that join or leave a set, each once."""
PartitionMove: TypeAlias = tuple[Topic, int, Partition | None, Partition | None]
"""A changed partition: topic, number, old and new state; None where the partition does not exist."""


def partition_numbers(mask: int) -> Iterator[int]:
    """Return the partition numbers of a mask, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def count_partitions(masks: TopicMasks) -> int:
    """Return the number of partitions in a set."""
    return sum(mask.bit_count() for mask in masks.values())


@dataclass(frozen=True, slots=True)
class Placement:
    """Sets of partitions, some of them by broker. No set has empty entries."""

    replicas: BrokerMasks = NO_ENTRIES
    isr: BrokerMasks = NO_ENTRIES
    elr: BrokerMasks = NO_ENTRIES
    leaders: BrokerMasks = NO_ENTRIES
    leaderless: TopicMasks = NO_ENTRIES
    reassigning: TopicMasks = NO_ENTRIES
    imbalanced: TopicMasks = NO_ENTRIES
    """Partitions that their preferred leader does not lead."""
    partition_count: int = 0
    replica_count: int = 0
    isr_counts: Map[int, int] = NO_ENTRIES
    """By broker, the number of ISRs that it is in; counting the masks would visit every topic."""

    def apply(self, moves: Iterable[PartitionMove]) -> "Placement":
        """Return the placement after these changes, at most one for each partition."""
        replicas, isr, elr, leaders = (defaultdict[int, Flips](_no_flips) for _ in range(4))
        leaderless, reassigning, imbalanced = _no_flips(), _no_flips(), _no_flips()
        partition_count, replica_count = self.partition_count, self.replica_count
        for (_, topic, _), number, was, now in moves:
            # A partition that does not exist has no leader, but is neither leaderless nor imbalanced.
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
            isr_counts=_update_counts(self.isr_counts, self.isr, in_sync, isr),
        )


_ABSENT = Partition((), (), (), (), NO_LEADER, 0, 0, (), 0, (), ())


def build_placement(topics: Iterable[Topic]) -> Placement:
    """Return the placement of all partitions of these topics."""
    moves = ((topic, number, None, new) for topic in topics for number, new in enumerate(topic.partitions))
    return Placement().apply(moves)


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
    """Return the mask of these partition numbers.

    A large mask is assembled byte by byte: an integer that grows bit by bit would be copied for each bit.
    """
    if len(numbers) == 1:
        return 1 << numbers[0]
    mask = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        mask[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(mask, "little")


def _apply(masks: TopicMasks, flips: Flips) -> TopicMasks:
    if not flips:
        return masks
    mutation = masks.mutate()
    for topic, numbers in flips.items():
        mask = mutation.get(topic, 0) ^ _mask_of(numbers)
        if mask:
            mutation[topic] = mask
        else:
            del mutation[topic]
    return mutation.finish()


def _apply_by_broker(masks: BrokerMasks, flips: dict[int, Flips]) -> BrokerMasks:
    if not flips:
        return masks
    mutation = masks.mutate()
    for broker, changes in flips.items():
        after = _apply(mutation.get(broker, NO_ENTRIES), changes)
        if after:
            mutation[broker] = after
        else:
            del mutation[broker]
    return mutation.finish()


def _update_counts(
    counts: Map[int, int], before: BrokerMasks, after: BrokerMasks, flips: dict[int, Flips]
) -> Map[int, int]:
    """Return the sizes of the brokers' sets, counting only the masks that changed."""
    if not flips:
        return counts
    mutation = counts.mutate()
    for broker, changes in flips.items():
        old, new = before.get(broker, NO_ENTRIES), after.get(broker, NO_ENTRIES)
        joined = sum(new.get(topic, 0).bit_count() - old.get(topic, 0).bit_count() for topic in changes)
        count = mutation.get(broker, 0) + joined
        if count:
            mutation[broker] = count
        else:
            mutation.pop(broker, None)
    return mutation.finish()
