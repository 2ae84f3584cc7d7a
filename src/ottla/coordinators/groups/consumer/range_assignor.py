"""The "range" assignor: each topic's partitions are split into consecutive ranges, one for each subscriber in order.

If all members have the same subscription, topics with equal partition counts are split in the same way.
"""

from __future__ import annotations

from collections import Counter

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.member import Target


def assign_ranges(group: GroupSpec) -> dict[str, Target]:
    """Return the new target of each member."""
    members = sorted(group.members.items(), key=_rank)
    counts = Counter(topic_id for _, member in members for topic_id in member.topics)
    if not counts.keys() <= group.partitions.keys():
        raise AssignmentFailed("Member is subscribed to a non-existent topic")
    next_partition = dict.fromkeys(counts, 0)
    least = {topic_id: group.partitions[topic_id] // count for topic_id, count in counts.items()}
    extra = {topic_id: group.partitions[topic_id] % count for topic_id, count in counts.items()}
    targets: dict[str, Target] = {}
    for member_id, member in members:
        target: dict[bytes, tuple[int, ...]] = {}
        for topic_id in member.topics:
            start = next_partition[topic_id]
            end = next_partition[topic_id] = start + least[topic_id] + (extra[topic_id] > 0)
            extra[topic_id] -= 1
            if start < end:
                target[topic_id] = tuple(range(start, end))
        targets[member_id] = target
    return targets


def _rank(item: tuple[str, AssignorMember]) -> tuple[bool, bytes]:
    """Static members come first, by instance id, then the others by member id. Java compares strings as UTF-16."""
    member_id, member = item
    name = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")
