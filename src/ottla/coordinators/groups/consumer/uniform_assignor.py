"""The "uniform" assignor: members get equal numbers of partitions and keep as many of their own as possible.

This module assigns groups whose members have the same subscription, and `mixed_assignor` all others.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.member import Target
from ottla.coordinators.groups.consumer.mixed_assignor import assign_mixed
from ottla.protocol.java.hash_order import copied_table_size, grown_table_size, hash_order, number_order, uuid_hash


def assign_uniformly(group: GroupSpec) -> dict[str, Target]:
    """Return the new target of each member."""
    if not group.members:
        return {}
    return _assign_same_subscriptions(group) if group.is_uniform else assign_mixed(group)


def _assign_same_subscriptions(group: GroupSpec) -> dict[str, Target]:
    topics = next(iter(group.members.values())).topics
    if not topics:
        return {}
    free: list[tuple[bytes, int]] = []
    total = 0
    for topic_id in hash_order(topics, uuid_hash, copied_table_size(len(topics))):
        count = group.partitions.get(topic_id)
        if count is None:
            raise AssignmentFailed(
                f"Members are subscribed to topic {topic_id.hex()} which doesn't exist in the topic metadata."
            )
        free += [(topic_id, number) for number in range(count) if (topic_id, number) not in group.assigned]
        total += count
    dealer = _Dealer(len(group.members), total, topics.keys())
    targets = {member_id: dealer.trim(member_id, member) for member_id, member in group.members.items()}
    dealer.free[:0] = free
    dealer.deal(targets)
    return {
        member_id: {topic_id: tuple(sorted(numbers)) for topic_id, numbers in target.items()}
        for member_id, target in targets.items()
    }


class _Dealer:
    """Takes partitions from members above their quota, in member order, and gives them to members below it."""

    def __init__(self, members: int, total: int, topics: Collection[bytes]) -> None:
        self.members_left = members
        self.least, self.extras = divmod(total, members)
        self.topics = topics
        self.free: list[tuple[bytes, int]] = []
        self.unfilled: list[tuple[str, int]] = []

    def trim(self, member_id: str, member: AssignorMember) -> dict[bytes, list[int]]:
        """Return the partitions that a member keeps."""
        has_extra = self.extras > 0
        quota = self.least + has_extra
        kept: dict[bytes, list[int]] = {}
        for topic_id in hash_order(member.target, uuid_hash, grown_table_size(len(member.target))):
            if topic_id not in self.topics:
                continue
            numbers = member.target[topic_id]
            if len(numbers) <= quota:
                kept[topic_id] = list(numbers)
                quota -= len(numbers)
                continue
            ordered = list(number_order(numbers))
            if quota:
                kept[topic_id] = ordered[:quota]
            self.free += [(topic_id, number) for number in ordered[quota:]]
            quota = 0
        # A member below its quota leaves the extra partition to others, unless too few members are left for it.
        if quota > 0 and has_extra and self.members_left > self.extras:
            quota -= 1
            has_extra = False
        if quota > 0:
            self.unfilled.append((member_id, quota))
        self.extras -= has_extra
        self.members_left -= 1
        return kept

    def deal(self, targets: dict[str, dict[bytes, list[int]]]) -> None:
        """Give the free partitions to members below their quota."""
        position = 0
        for member_id, quota in self.unfilled:
            target = targets[member_id]
            for topic_id, number in self.free[position : position + quota]:
                target.setdefault(topic_id, []).append(number)
            position += quota
        if position < len(self.free):
            raise AssignmentFailed("Partitions were left unassigned")
