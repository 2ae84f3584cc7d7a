"""The "uniform" assignor for groups whose members have different subscriptions.

Members keep the partitions of topics that they are still subscribed to. Free partitions go to the subscribers with the
fewest, starting with the topics that have the most partitions per subscriber. Then partitions move from the members
with the most to those with the fewest, topic by topic, until they are balanced or the round limit is reached.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, GroupSpec
from ottla.coordinators.groups.consumer.member import Target

_MAX_ROUNDS: Final = 16
_FREE: Final = -1
_NOBODY: Final = -1


def assign_mixed(group: GroupSpec) -> dict[str, Target]:
    """Return the new target of each member; empty if no member has a subscription."""
    board = _Board(group)
    if not board.subscribers:
        return {}
    board.keep()
    board.give()
    board.balance()
    return board.targets()


class _Board:
    """The owner of each partition, by the members' numbers."""

    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.ids = list(group.members)
        self.subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic_id in member.topics:
                if topic_id not in group.partitions:
                    raise AssignmentFailed(
                        f"Members are subscribed to topic {topic_id.hex()} which doesn't exist in the topic metadata."
                    )
                self.subscribers.setdefault(topic_id, []).append(number)
        self.owners = {topic_id: [_FREE] * group.partitions[topic_id] for topic_id in self.subscribers}
        self.sizes = [0] * len(self.ids)

    def keep(self) -> None:
        """Keep the partitions of topics that members are still subscribed to."""
        for number, member in enumerate(self.group.members.values()):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topics:
                    owners = self.owners[topic_id]
                    for partition in partitions:
                        owners[partition] = number
                    self.sizes[number] += len(partitions)

    def give(self) -> None:
        """Give free partitions to the members with the fewest."""
        free = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == _FREE]
            for topic_id, owners in self.owners.items()
        }
        ranks = _Ranks(self.sizes)
        for topic_id in self._sorted([topic_id for topic_id, partitions in free.items() if partitions]):
            ranks.begin(self.subscribers[topic_id])
            for partition in free[topic_id]:
                self._move(topic_id, partition, ranks.next_least())

    def balance(self) -> None:
        """Move partitions of topics with several subscribers until a whole round changes nothing."""
        topics = self._sorted([topic_id for topic_id, subscribers in self.subscribers.items() if len(subscribers) > 1])
        ranks = _Ranks(self.sizes)
        last_moved: bytes | None = None
        for _ in range(_MAX_ROUNDS):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id, ranks) or last_moved is None:
                    last_moved = topic_id

    def targets(self) -> dict[str, Target]:
        owned: list[dict[bytes, list[int]]] = [{} for _ in self.ids]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                if owner != _FREE:
                    owned[owner].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: tuple(numbers) for topic_id, numbers in target.items()}
            for member_id, target in zip(self.ids, owned, strict=True)
        }

    def _balance_topic(self, topic_id: bytes, ranks: _Ranks) -> bool:
        if ranks.begin(self.subscribers[topic_id]) <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            held.setdefault(owner, []).append(partition)
        has_moved = False
        while not ranks.is_balanced:
            while (giver := ranks.next_most()) != _NOBODY and not held.get(giver):
                ranks.exclude_last_most()
            if giver == _NOBODY:
                break
            partition = held[giver].pop()
            taker = ranks.next_least()
            if ranks.is_balanced:
                break
            self._move(topic_id, partition, taker)
            has_moved = True
        return has_moved

    def _move(self, topic_id: bytes, partition: int, taker: int) -> None:
        owners = self.owners[topic_id]
        if owners[partition] != _FREE:
            self.sizes[owners[partition]] -= 1
        owners[partition] = taker
        self.sizes[taker] += 1

    def _sorted(self, topics: list[bytes]) -> list[bytes]:
        """Sort topics by partitions per subscriber, descending, then by number of subscribers, then by id."""
        partitions = self.group.partitions

        def rank(topic_id: bytes) -> tuple[float, int, int, int]:
            count = len(self.subscribers[topic_id])
            high, low = (
                int.from_bytes(topic_id[:8], "big", signed=True),
                int.from_bytes(topic_id[8:], "big", signed=True),
            )
            return -(partitions[topic_id] / count), count, high, low

        return sorted(topics, key=rank)


class _Ranks:
    """The subscribers of a topic by number of partitions: a growing range with the fewest, and one with the most.

    All members of a range had equal numbers when the range was last extended. Each member of the lower range gets one
    partition in turn; then the range takes in the members that have as many. The upper range works the same way.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.members: list[int] = []
        self.least_end = 0
        self.least_size = 0
        self.least_next = 0
        self.most_start = 0
        self.most_end = 0
        self.most_size = 0
        self.most_next = 0

    def begin(self, members: list[int]) -> int:
        """Rank the members; return the difference between the largest and the smallest number."""
        sizes = self.sizes
        self.members = sorted(members, key=lambda member: (sizes[member], member))
        least, most = sizes[self.members[0]], sizes[self.members[-1]]
        self.least_end, self.least_size, self.least_next = 0, least - 1, 0
        self.most_start = self.most_end = len(members)
        self.most_size, self.most_next = most + 1, len(members) - 1
        return most - least

    @property
    def is_balanced(self) -> bool:
        return self.most_size - self.least_size <= 1

    def next_least(self) -> int:
        """Return the member that gets the next partition."""
        if self.least_next >= self.least_end:
            self.least_size += 1
            while self.least_end < len(self.members) and self._size(self.least_end) == self.least_size:
                self.least_end += 1
            self.least_next = 0
        self.least_next += 1
        return self.members[self.least_next - 1]

    def next_most(self) -> int:
        """Return the member that gives the next partition; -1 if no member can."""
        if self.most_next < self.most_start:
            if self.most_end <= self.most_start and self.most_start > 0:
                self.most_size = self._size(self.most_start - 1)  # no member of the range had a partition of this topic
            else:
                self.most_size -= 1
            while self.most_start > 0 and self._size(self.most_start - 1) == self.most_size:
                self.most_start -= 1
            self.most_next = self.most_end - 1
        if self.most_next < 0:
            return _NOBODY
        self.most_next -= 1
        return self.members[self.most_next + 1]

    def exclude_last_most(self) -> None:
        """Remove the member that `next_most` returned last, because it has no partition of this topic."""
        members, position, end = self.members, self.most_next + 1, self.most_end - 1
        members[position], members[end] = members[end], members[position]
        self.most_end -= 1

    def _size(self, position: int) -> int:
        return self.sizes[self.members[position]]
