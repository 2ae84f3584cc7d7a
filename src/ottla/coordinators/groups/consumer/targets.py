"""A new target: who should have what, now that members, subscriptions or topics are others than before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, Assignor, AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import NO_TARGET, ConsumerGroupMember, Target
from ottla.coordinators.groups.consumer.range_assignor import assign_ranges
from ottla.coordinators.groups.consumer.uniform_assignor import assign_uniformly
from ottla.metadata.image.image import Image
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash, versioned_order

ASSIGNORS: Final[Mapping[str, Callable[[GroupSpec], dict[str, Target]]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
"""Those that the coordinator has, by the names that members and settings know them by."""


def compute_targets(
    group: ConsumerGroup, image: Image, assignor: str | Assignor, *, new_member: ConsumerGroupMember | None
) -> dict[str, Target]:
    """What each member should have. A newcomer that takes a static member's place takes its target as well.

    `group` is the group with the newcomer in it, and with the targets as they were before it came.
    """
    seen = _group_spec(group, image, new_member)
    try:
        found = ASSIGNORS[assignor](seen) if isinstance(assignor, str) else assignor.assign(seen, image)
    except AssignmentFailed as error:
        raise UnknownServerError(
            f"Failed to compute a new target assignment for epoch {group.epoch}: {error}"
        ) from error
    return {member_id: found.get(member_id, NO_TARGET) for member_id in seen.members}


def _group_spec(group: ConsumerGroup, image: Image, new_member: ConsumerGroupMember | None) -> GroupSpec:
    """The group as assignors see it, its members in the order in which Kafka's see them."""
    known = [member_id for member_id in group.members if new_member is None or member_id != new_member.id]
    ids = versioned_order(known)
    if new_member is not None:
        ids.append(new_member.id)
    ids = hash_order(ids, string_hash, grown_table_size(len(ids)))
    topics: dict[tuple[frozenset[str], str | None], dict[bytes, None]] = {}
    partitions: dict[bytes, int] = {}
    readers = {}
    for member_id in ids:
        member = group.members[member_id]
        subscription = (member.topics, member.regex)
        if subscription not in topics:
            found = [topic for name in sorted(group.topics_of(member)) if (topic := image.topic(name)) is not None]
            partitions.update((topic.id, len(topic.partitions)) for topic in found)
            topics[subscription] = dict.fromkeys(topic.id for topic in found)
        readers[member_id] = AssignorMember(
            topics[subscription], group.targets.get(member_id, NO_TARGET), member.instance_id, member.rack_id
        )
    assigned = frozenset(
        (topic_id, number)
        for target in group.targets.values()
        for topic_id, numbers in target.items()
        for number in numbers
    )
    return GroupSpec(readers, partitions, group.is_uniform(), assigned)
