"""Computation of a group's target assignment."""

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
"""The built-in assignors, by name."""


def compute_targets(
    group: ConsumerGroup, image: Image, assignor: str | Assignor, *, new_member: ConsumerGroupMember | None
) -> dict[str, Target]:
    """Return the new target of each member. A member that replaces a static member starts from its target.

    `group` includes the new member, and has the targets from before it joined.
    """
    spec = _group_spec(group, image, new_member)
    try:
        targets = ASSIGNORS[assignor](spec) if isinstance(assignor, str) else assignor.assign(spec, image)
    except AssignmentFailed as error:
        raise UnknownServerError(
            f"Failed to compute a new target assignment for epoch {group.epoch}: {error}"
        ) from error
    return {member_id: targets.get(member_id, NO_TARGET) for member_id in spec.members}


def _group_spec(group: ConsumerGroup, image: Image, new_member: ConsumerGroupMember | None) -> GroupSpec:
    """Return the assignors' view of a group, with the members in the order of Kafka's."""
    other_ids = [member_id for member_id in group.members if new_member is None or member_id != new_member.id]
    ids = versioned_order(other_ids)
    if new_member is not None:
        ids.append(new_member.id)
    ids = hash_order(ids, string_hash, grown_table_size(len(ids)))
    topics: dict[tuple[frozenset[str], str | None], dict[bytes, None]] = {}
    partitions: dict[bytes, int] = {}
    members = {}
    for member_id in ids:
        member = group.members[member_id]
        subscription = (member.topics, member.regex)
        if subscription not in topics:
            existing = [topic for name in sorted(group.topics_of(member)) if (topic := image.topic(name)) is not None]
            partitions.update((topic.id, len(topic.partitions)) for topic in existing)
            topics[subscription] = dict.fromkeys(topic.id for topic in existing)
        members[member_id] = AssignorMember(
            topics[subscription], group.targets.get(member_id, NO_TARGET), member.instance_id, member.rack_id
        )
    assigned = frozenset(
        (topic_id, number)
        for target in group.targets.values()
        for topic_id, numbers in target.items()
        for number in numbers
    )
    return GroupSpec(members, partitions, group.is_uniform(), assigned)
