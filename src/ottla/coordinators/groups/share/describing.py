"""ShareGroupDescribe: a group's epochs and members, with their assignments."""

from __future__ import annotations

from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.member import ShareGroupMember
from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.metadata.image.image import Image
from ottla.protocol.java.hash_order import versioned_order
from ottla.protocol.messages.rpc.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

ASSIGNOR: Final = "simple"


def describe_group(state: GroupsState, group_id: str, context: Context) -> DescribedGroup:
    """Describe a share group; raise GroupIdNotFound if it does not exist."""
    group = find_group(state, group_id, ShareGroup)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(group.members[member_id], context.image) for member_id in versioned_order(group.members)],
    )


def _member(member: ShareGroupMember, image: Image) -> Member:
    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=list(numbers))
                for topic_id, numbers in member.assigned.items()
                if (topic := image.topic_by_id(topic_id)) is not None
            ]
        ),
    )
