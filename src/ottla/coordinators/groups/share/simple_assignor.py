"""The "simple" assignor: all partitions get equal numbers of members, and all members equal numbers of partitions.

Members keep as many of their partitions as possible. As in Kafka, the result depends on the order of Java's hash tables
(`protocol/java/hash_order`): `computeIfAbsent` puts a new entry at the head of its bucket, and `put` at its end. If
members have different subscriptions, each topic is assigned separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.coordinators.groups.share.member import Target
from ottla.protocol.java.hash_order import grown_table_size, hash_order, number_hash, number_order, uuid_hash

_MASK: Final = 0xFFFF_FFFF
_LOAD: Final = 0.75

P = TypeVar("P")


class AssignorMember(NamedTuple):
    """A member as the assignor sees it."""

    topics: Sequence[bytes]
    """The ids of the existing subscribed topics."""
    target: Target
    """The member's part of the current target."""


def assign(
    members: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]], *, uniform: bool
) -> dict[str, Target]:
    """Return the new target of each member; `partitions` has the initialized partitions of each topic."""
    if not any(member.topics for member in members.values()):
        return {}
    return _assign_uniform(members, partitions) if uniform else _assign_per_topic(members, partitions)


def _assign_uniform(
    members: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]]
) -> dict[str, Target]:
    member_ids = list(members)
    topics = next(iter(members.values())).topics
    balancer: _Balancer[tuple[bytes, int]] = _Balancer(
        [(topic_id, number) for topic_id in topics for number in partitions.get(topic_id, ())],
        list(range(len(members))),
        _partition_hash,
    )
    kept: list[dict[bytes, set[int]]] = []
    for index, member in enumerate(members.values()):
        ordered = hash_order(member.target, uuid_hash, grown_table_size(len(member.target)))
        owned = {topic_id: set(member.target[topic_id]) for topic_id in ordered if topic_id in topics}
        kept.append(owned)
        balancer.set_current(
            index, [(topic_id, number) for topic_id in owned for number in number_order(member.target[topic_id])]
        )
    balancer.balance()
    for index, (gained, lost) in balancer.changes().items():
        for topic_id, number in lost:
            kept[index][topic_id].discard(number)
        for topic_id, number in gained:
            kept[index].setdefault(topic_id, set()).add(number)
    return _targets(member_ids, kept)


def _assign_per_topic(
    members: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]]
) -> dict[str, Target]:
    member_ids = list(members)
    kept = [{topic_id: set(numbers) for topic_id, numbers in member.target.items()} for member in members.values()]
    subscribed: dict[bytes, list[int]] = {}
    for index, member in enumerate(members.values()):
        for topic_id in member.topics:
            subscribed.setdefault(topic_id, []).append(index)
    for topic_id, indexes in subscribed.items():
        balancer: _Balancer[int] = _Balancer(list(partitions.get(topic_id, ())), indexes, number_hash)
        for index, owned in enumerate(kept):
            if topic_id in owned:
                balancer.set_current(index, number_order(sorted(owned[topic_id])))
        balancer.balance()
        for index, (gained, lost) in balancer.changes().items():
            numbers = kept[index].setdefault(topic_id, set())
            numbers.difference_update(lost)
            numbers.update(gained)
    return _targets(member_ids, kept)


def _targets(member_ids: Sequence[str], kept: Sequence[Mapping[bytes, set[int]]]) -> dict[str, Target]:
    return {
        member_id: {topic_id: tuple(sorted(numbers)) for topic_id, numbers in owned.items()}
        for member_id, owned in zip(member_ids, kept, strict=True)
    }


def _partition_hash(partition: tuple[bytes, int]) -> int:
    topic_id, number = partition
    return (31 * uuid_hash(topic_id) + number) & _MASK


class _Balancer(Generic[P]):
    """Partitions and the members that read them, by the members' numbers."""

    def __init__(self, partitions: Sequence[P], members: Sequence[int], hash_of: Callable[[P], int]) -> None:
        self._partitions = partitions
        self._members = members
        self._hash_of = hash_of
        count = len(partitions)
        self._members_per_partition = -(-len(members) // count) if count else 0
        """The number of members that read each partition."""
        exact = self._members_per_partition * count / len(members)
        self._quotas = {
            member: ceil(exact * (number + 1)) - ceil(exact * number) for number, member in enumerate(members)
        }
        self._readers: dict[P, dict[int, None]] = {}
        self._reads: dict[int, dict[P, None]] = {}
        self._before: dict[int, frozenset[P]] = {}

    def set_current(self, member: int, partitions: Iterable[P]) -> None:
        """Set the partitions that a member reads now, in order."""
        owned = dict.fromkeys(partitions)
        self._before[member] = frozenset(owned)
        self._reads[member] = owned
        for partition in owned:
            self._readers.setdefault(partition, {})[member] = None

    def balance(self) -> None:
        """Take partitions from members with too many, then members from partitions with too many, then fill up."""
        for member in sorted(self._reads):
            owned = self._reads[member]
            surplus = len(owned) - self._quotas.get(member, 0)
            for partition in hash_order(owned, self._hash_of, grown_table_size(len(owned)))[: max(surplus, 0)]:
                self._revoke(member, partition)
        for partition in self._ordered():
            readers = self._readers[partition]
            surplus = len(readers) - self._members_per_partition
            for member in hash_order(readers, number_hash, grown_table_size(len(readers)))[: max(surplus, 0)]:
                self._revoke(member, partition)
        for partition in self._partitions:
            self._readers.setdefault(partition, {})
        self._fill_up()

    def changes(self) -> dict[int, tuple[list[P], list[P]]]:
        """Return the partitions that each member gained and lost."""
        changes = {}
        for member, owned in self._reads.items():
            before = self._before.get(member, frozenset())
            gained = [partition for partition in owned if partition not in before]
            lost = [partition for partition in before if partition not in owned]
            if gained or lost:
                changes[member] = gained, lost
        return changes

    def _revoke(self, member: int, partition: P) -> None:
        del self._reads[member][partition]
        del self._readers[partition][member]

    def _fill_up(self) -> None:
        unfilled = [
            member for member in sorted(self._members) if len(self._reads.get(member, ())) < self._quotas[member]
        ]
        candidates = iter(list(unfilled))
        has_assigned = False
        for partition in self._ordered():
            readers = self._readers[partition]
            while len(readers) < self._members_per_partition:
                member = next(candidates, None)
                if member is None:
                    if not has_assigned or not unfilled:
                        break
                    candidates, has_assigned = iter(list(unfilled)), False
                    continue
                if member in readers:
                    continue
                owned = self._reads.setdefault(member, {})
                owned[partition] = readers[member] = None
                has_assigned = True
                if len(owned) >= self._quotas[member]:
                    unfilled.remove(member)
            if not unfilled:
                break

    def _ordered(self) -> list[P]:
        """Return the partitions in the order of Kafka's hash table, which is created with capacity for all of them."""
        capacity = int((len(self._partitions) + 1) / _LOAD + 1)
        buckets = max(1 << (capacity - 1).bit_length(), 1)
        while len(self._readers) > buckets * _LOAD:
            buckets *= 2
        # Java's computeIfAbsent puts the newest entry first in its bucket.
        return hash_order(reversed(self._readers), self._hash_of, buckets)
