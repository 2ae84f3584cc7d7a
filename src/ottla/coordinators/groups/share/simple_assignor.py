"""The assignor "simple": each partition is read by as many members as every other, and each member reads as many.

Members keep what they have as far as it goes. Who gets what depends on the order of Java's hash tables, as in Kafka
(`java_order.py`). If members read different topics, each topic is shared out apart.
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
    """The ids of the topics that it reads and that are there."""
    target: Target
    """What it should have read so far."""


def assign(
    readers: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]], *, uniform: bool
) -> dict[str, Target]:
    """A new target for all members; `partitions` are those of each topic that have a state."""
    if not any(reader.topics for reader in readers.values()):
        return {}
    return _assign_uniform(readers, partitions) if uniform else _assign_per_topic(readers, partitions)


def _assign_uniform(
    readers: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]]
) -> dict[str, Target]:
    members = list(readers)
    topics = next(iter(readers.values())).topics
    sharing: _Sharing[tuple[bytes, int]] = _Sharing(
        [(topic_id, number) for topic_id in topics for number in partitions.get(topic_id, ())],
        list(range(len(members))),
        _partition_hash,
    )
    kept: list[dict[bytes, set[int]]] = []
    for index, reader in enumerate(readers.values()):
        ordered = hash_order(reader.target, uuid_hash, grown_table_size(len(reader.target)))
        mine = {topic_id: set(reader.target[topic_id]) for topic_id in ordered if topic_id in topics}
        kept.append(mine)
        sharing.has(
            index, [(topic_id, number) for topic_id in mine for number in number_order(reader.target[topic_id])]
        )
    sharing.balance()
    for index, (gained, lost) in sharing.changes().items():
        for topic_id, number in lost:
            kept[index][topic_id].discard(number)
        for topic_id, number in gained:
            kept[index].setdefault(topic_id, set()).add(number)
    return _targets(members, kept)


def _assign_per_topic(
    readers: Mapping[str, AssignorMember], partitions: Mapping[bytes, Sequence[int]]
) -> dict[str, Target]:
    members = list(readers)
    kept = [{topic_id: set(numbers) for topic_id, numbers in reader.target.items()} for reader in readers.values()]
    subscribed: dict[bytes, list[int]] = {}
    for index, reader in enumerate(readers.values()):
        for topic_id in reader.topics:
            subscribed.setdefault(topic_id, []).append(index)
    for topic_id, indexes in subscribed.items():
        sharing: _Sharing[int] = _Sharing(list(partitions.get(topic_id, ())), indexes, number_hash)
        for index, mine in enumerate(kept):
            if topic_id in mine:
                sharing.has(index, number_order(sorted(mine[topic_id])))
        sharing.balance()
        for index, (gained, lost) in sharing.changes().items():
            numbers = kept[index].setdefault(topic_id, set())
            numbers.difference_update(lost)
            numbers.update(gained)
    return _targets(members, kept)


def _targets(members: Sequence[str], kept: Sequence[Mapping[bytes, set[int]]]) -> dict[str, Target]:
    return {
        member: {topic_id: tuple(sorted(numbers)) for topic_id, numbers in mine.items()}
        for member, mine in zip(members, kept, strict=True)
    }


def _partition_hash(partition: tuple[bytes, int]) -> int:
    topic_id, number = partition
    return (31 * uuid_hash(topic_id) + number) & _MASK


class _Sharing(Generic[P]):
    """Partitions and the members that read them, by their numbers."""

    def __init__(self, partitions: Sequence[P], members: Sequence[int], hash_of: Callable[[P], int]) -> None:
        self._partitions = partitions
        self._members = members
        self._hash_of = hash_of
        count = len(partitions)
        self._most = -(-len(members) // count) if count else 0
        """So many members read each partition."""
        exact = self._most * count / len(members)
        self._wanted = {
            member: ceil(exact * (number + 1)) - ceil(exact * number) for number, member in enumerate(members)
        }
        self._readers: dict[P, dict[int, None]] = {}
        self._reads: dict[int, dict[P, None]] = {}
        self._before: dict[int, frozenset[P]] = {}

    def has(self, member: int, partitions: Iterable[P]) -> None:
        """What a member has read so far, in the order of its numbers."""
        mine = dict.fromkeys(partitions)
        self._before[member] = frozenset(mine)
        self._reads[member] = mine
        for partition in mine:
            self._readers.setdefault(partition, {})[member] = None

    def balance(self) -> None:
        """Take from members that read too much, then from partitions that are read by too many, then deal out."""
        for member in sorted(self._reads):
            mine = self._reads[member]
            surplus = len(mine) - self._wanted.get(member, 0)
            for partition in hash_order(mine, self._hash_of, grown_table_size(len(mine)))[: max(surplus, 0)]:
                self._take(member, partition)
        for partition in self._ordered():
            readers = self._readers[partition]
            surplus = len(readers) - self._most
            for member in hash_order(readers, number_hash, grown_table_size(len(readers)))[: max(surplus, 0)]:
                self._take(member, partition)
        for partition in self._partitions:
            self._readers.setdefault(partition, {})
        self._deal()

    def changes(self) -> dict[int, tuple[list[P], list[P]]]:
        """What each member gained and lost."""
        found = {}
        for member, mine in self._reads.items():
            before = self._before.get(member, frozenset())
            gained = [partition for partition in mine if partition not in before]
            lost = [partition for partition in before if partition not in mine]
            if gained or lost:
                found[member] = gained, lost
        return found

    def _take(self, member: int, partition: P) -> None:
        del self._reads[member][partition]
        del self._readers[partition][member]

    def _deal(self) -> None:
        unfilled = [
            member for member in sorted(self._members) if len(self._reads.get(member, ())) < self._wanted[member]
        ]
        transition = iter(list(unfilled))
        has_dealt = False
        for partition in self._ordered():
            readers = self._readers[partition]
            while len(readers) < self._most:
                member = next(transition, None)
                if member is None:
                    if not has_dealt or not unfilled:
                        break
                    transition, has_dealt = iter(list(unfilled)), False
                    continue
                if member in readers:
                    continue
                mine = self._reads.setdefault(member, {})
                mine[partition] = readers[member] = None
                has_dealt = True
                if len(mine) >= self._wanted[member]:
                    unfilled.remove(member)
            if not unfilled:
                break

    def _ordered(self) -> list[P]:
        """The partitions in the order of the table that Kafka keeps them in, which has room for all from the start."""
        room = int((len(self._partitions) + 1) / _LOAD + 1)
        buckets = max(1 << (room - 1).bit_length(), 1)
        while len(self._readers) > buckets * _LOAD:
            buckets *= 2
        # What came last is first in its bucket: so does Java where a value is made if it is absent.
        return hash_order(reversed(self._readers), self._hash_of, buckets)
