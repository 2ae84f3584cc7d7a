"""Computation of a share group's target assignment."""

from __future__ import annotations

from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.member import NO_TARGET, Target
from ottla.coordinators.groups.share.simple_assignor import AssignorMember, assign
from ottla.metadata.image.image import Image
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash, versioned_order


def compute_targets(group: ShareGroup, image: Image, *, new_member_id: str | None) -> dict[str, Target]:
    """Return the new target of each member. `group` already includes the new member."""
    ids = versioned_order([member_id for member_id in group.members if member_id != new_member_id])
    if new_member_id is not None:
        ids.append(new_member_id)
    topics: dict[frozenset[str], list[bytes]] = {}
    members = {}
    for member_id in hash_order(ids, string_hash, grown_table_size(len(ids))):
        names = group.members[member_id].topics
        if names not in topics:
            ordered = hash_order(sorted(names), string_hash, grown_table_size(len(names)))
            topics[names] = [topic.id for name in ordered if (topic := image.topic(name)) is not None]
        members[member_id] = AssignorMember(topics[names], group.targets.get(member_id, NO_TARGET))
    targets = assign(members, _initialized_partitions(group, image), uniform=group.is_uniform())
    return {member_id: targets.get(member_id, NO_TARGET) for member_id in members}


def _initialized_partitions(group: ShareGroup, image: Image) -> dict[bytes, list[int]]:
    """Return the initialized partitions of existing topics."""
    if group.partitions is None:
        return {}
    return {
        topic_id: [number for number in range(len(topic.partitions)) if number in initialized.partitions]
        for topic_id, initialized in group.partitions.initialized.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    }
