"""Which member of which group a heartbeat is from: one that is known, a new one, or one in a static member's place."""

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
    """The member that speaks, as it is before what it says is heard."""

    member: ConsumerGroupMember
    replaced: ConsumerGroupMember | None = None
    """The static member whose place it takes."""


def new_member_id(context: Context) -> str:
    """An id for a member that has none, in the short form in which Kafka writes UUIDs."""
    while True:
        shown = urlsafe_b64encode(UUID(context.new_id()).bytes).decode().rstrip("=")
        if not shown.startswith("-"):  # a tool would take it for an option
            return shown


def check_size(group: ConsumerGroup, member_id: str, context: Context) -> None:
    """Raise if a new member would be one too many."""
    most = context.settings(MAX_SIZE)
    if len(group.members) >= most and (not member_id or member_id not in group.members):
        raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {most} members.")


def find_dynamic_member(
    group: ConsumerGroup, member_id: str, epoch: int, reported: Reported, *, is_joining: bool
) -> RequestingMember:
    """The member without an instance id that speaks."""
    known = group.members.get(member_id)
    if known is None and is_joining:
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
    """The static member that speaks; a new one takes the place of who held the name before, if that one has left."""
    if not is_joining:
        member = find_instance_holder(group, member_id, instance_id)
        if not is_classic:
            check_epoch(member, epoch, reported)
        return RequestingMember(member)
    known = group.static_member(instance_id)
    if known is None:
        return RequestingMember(group.members.get(member_id) or ConsumerGroupMember(id=member_id))
    if not is_classic and not known.is_classic and known.epoch != LEAVING_STATIC:
        raise UnreleasedInstanceId(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {known.id} member."
        )
    return RequestingMember(replace(known, id=member_id, epoch=JOINING, previous_epoch=JOINING), known)


def replacement_records(group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember) -> list[Stored]:
    """The records that put one member in another's place, with all that it had."""
    return [
        *member_tombstones(group.id, old.id),
        member_record(group.id, new),
        target_assignment_record(group.id, new.id, group.targets.get(old.id, NO_TARGET)),
        current_assignment_record(group.id, new),
    ]


def with_requester(group: ConsumerGroup, old: ConsumerGroupMember | None, new: ConsumerGroupMember) -> ConsumerGroup:
    """The group after what a member said, and after the one whose place it takes has gone."""
    if old is not None and old.id in group.members:
        target = group.targets.get(old.id)
        group = group.without_member(old.id).without_target(old.id)
        if target is not None:
            group = group.with_target(new.id, target)
    return group.with_member(new)


def check_epoch(member: ConsumerGroupMember, epoch: int, reported: Reported) -> None:
    """Raise unless a member speaks in its epoch; or in the one before, for the answer may have got lost."""
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _has_only(reported, member):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _has_only(reported: Reported, member: ConsumerGroupMember) -> bool:
    if reported is None:
        return False
    return all(
        partition in member.assigned.get(topic_id, ()) for topic_id, partitions in reported for partition in partitions
    )
