"""ConsumerGroupDescribe: a group's epochs and members, with their current and target assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import NO_TARGET, ConsumerGroupMember
from ottla.coordinators.groups.consumer.settings import choose_assignor
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.metadata.image.image import Image
from ottla.protocol.java.hash_order import versioned_order
from ottla.protocol.messages.rpc.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC = 0
_CONSUMER = 1


def describe_group(state: GroupsState, group_id: str, context: Context) -> DescribedGroup:
    """Describe a consumer group; raise GroupIdNotFound if it does not exist."""
    group = find_group(state, group_id, ConsumerGroup)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=choose_assignor(group.preferred_assignor(), context),
        members=[
            _member(group, group.members[member_id], context.image) for member_id in versioned_order(group.members)
        ],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, image: Image) -> Member:
    # A member owns the partitions that it must revoke until it has revoked them.
    owned: dict[bytes, list[int]] = {topic_id: list(numbers) for topic_id, numbers in member.assigned.items()}
    for topic_id, numbers in member.revoking.items():
        owned[topic_id] = [*owned.get(topic_id, ()), *numbers]
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(group.targets.get(member.id, NO_TARGET), image),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], image: Image) -> Assignment:
    """Return the assignment without topics that no longer exist."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=list(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )
