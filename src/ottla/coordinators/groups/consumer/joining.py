"""Lookup of the member that sent a request: existing, new, or the successor of a static member."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.leaving import find_instance_holder
from ottla.coordinators.groups.consumer.member import JOINING, LEAVING_STATIC, NO_TARGET, ConsumerGroupMember
from ottla.coordinators.groups.consumer.reconciling import Reported
from ottla.coordinators.groups.consumer.records import (
    current_assignment_record,
    member_record,
    member_tombstones,
    target_assignment_record,
)
from ottla.coordinators.groups.consumer.settings import MAX_SIZE
from ottla.coordinators.groups.context import Context
from ottla.protocol.errors import FencedMemberEpoch, GroupMaxSizeReached, UnreleasedInstanceId
from ottla.storage.state_machine.entries import Stored


class RequestingMember(NamedTuple):
    """The member that sent a request, before the request is applied."""

    member: ConsumerGroupMember
    replaced: ConsumerGroupMember | None = None
    """The static member that it replaces."""


def new_member_id(context: Context) -> str:
    """Generate a member id, in Kafka's base64 form of UUIDs."""
    while True:
        member_id = urlsafe_b64encode(UUID(context.new_id()).bytes).decode().rstrip("=")
        if not member_id.startswith("-"):  # command-line tools would take it for an option
            return member_id


def check_size(group: ConsumerGroup, member_id: str, context: Context) -> None:
    """Raise if the group is full and the member is new."""
    max_size = context.settings(MAX_SIZE)
    if len(group.members) >= max_size and (not member_id or member_id not in group.members):
        raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {max_size} members.")


def find_dynamic_member(
    group: ConsumerGroup, member_id: str, epoch: int, reported: Reported, *, is_joining: bool
) -> RequestingMember:
    """Return the requesting member, which has no instance id."""
    if is_joining and member_id not in group.members:
        return RequestingMember(ConsumerGroupMember(id=member_id))
    member = group.member(member_id)
    check_epoch(member, epoch, reported)
    return RequestingMember(member)


def find_static_member(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str,
    reported: Reported,
    *,
    is_joining: bool,
    is_classic: bool = False,
) -> RequestingMember:
    """Return the requesting static member. A new one replaces the holder of the instance id, if that has left."""
    if not is_joining:
        member = find_instance_holder(group, member_id, instance_id)
        if not is_classic:
            check_epoch(member, epoch, reported)
        return RequestingMember(member)
    replaced = group.static_member(instance_id)
    if replaced is None:
        return RequestingMember(group.members.get(member_id) or ConsumerGroupMember(id=member_id))
    if not is_classic and not replaced.is_classic and replaced.epoch != LEAVING_STATIC:
        raise UnreleasedInstanceId(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {replaced.id} member."
        )
    return RequestingMember(replace(replaced, id=member_id, epoch=JOINING, previous_epoch=JOINING), replaced)


def replacement_records(group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember) -> list[Stored]:
    """Return the records that replace a static member by its successor, which inherits its target."""
    return [
        *member_tombstones(group.id, old.id),
        member_record(group.id, new),
        target_assignment_record(group.id, new.id, group.targets.get(old.id, NO_TARGET)),
        current_assignment_record(group.id, new),
    ]


def with_requester(group: ConsumerGroup, old: ConsumerGroupMember | None, new: ConsumerGroupMember) -> ConsumerGroup:
    """Return the group with the updated member, without the static member that it replaces."""
    if old is not None and old.id in group.members:
        target = group.targets.get(old.id)
        group = group.without_member(old.id).without_target(old.id)
        if target is not None:
            group = group.with_target(new.id, target)
    return group.with_member(new)


def check_epoch(member: ConsumerGroupMember, epoch: int, reported: Reported) -> None:
    """Raise unless the request has the member's epoch, or the previous one: the response may have been lost."""
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_all(reported, member):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _owns_all(reported: Reported, member: ConsumerGroupMember) -> bool:
    if reported is None:
        return False
    return all(
        partition in member.assigned.get(topic_id, ()) for topic_id, partitions in reported for partition in partitions
    )
