"""The assignor "range": each topic's partitions in as many stretches as it has readers, for these in their order.

Readers of several topics that have equally many partitions get the same numbers of each, as long as all read the same.
"""

from __future__ import annotations

from collections import Counter

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.member import Target


def assign_ranges(group: GroupSpec) -> dict[str, Target]:
    """A new target for all members."""
    readers = sorted(group.members.items(), key=_rank)
    counts = Counter(topic_id for _, reader in readers for topic_id in reader.topics)
    if not counts.keys() <= group.partitions.keys():
        raise AssignmentFailed("Member is subscribed to a non-existent topic")
    given = dict.fromkeys(counts, 0)
    least = {topic_id: group.partitions[topic_id] // count for topic_id, count in counts.items()}
    extra = {topic_id: group.partitions[topic_id] % count for topic_id, count in counts.items()}
    found: dict[str, Target] = {}
    for member_id, reader in readers:
        target: dict[bytes, tuple[int, ...]] = {}
        for topic_id in reader.topics:
            start = given[topic_id]
            end = given[topic_id] = start + least[topic_id] + (extra[topic_id] > 0)
            extra[topic_id] -= 1
            if start < end:
                target[topic_id] = tuple(range(start, end))
        found[member_id] = target
    return found


def _rank(item: tuple[str, AssignorMember]) -> tuple[bool, bytes]:
    """Static members come first, by their instance ids; the others by their ids. Java compares UTF-16."""
    member_id, reader = item
    name = member_id if reader.instance_id is None else reader.instance_id
    return reader.instance_id is None, name.encode("utf-16-be", "surrogatepass")
