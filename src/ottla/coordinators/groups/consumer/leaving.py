"""Members that leave or are fenced: what they own is free, and the others share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ottla.coordinators.groups.consumer.downgrading import downgrade, must_downgrade
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import LEAVING_STATIC, NOTHING_OWNED, ConsumerGroupMember
from ottla.coordinators.groups.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from ottla.coordinators.groups.consumer.timer_keys import Timers, cancelled_timers
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.protocol.errors import FencedInstanceId, UnknownMemberId
from ottla.protocol.messages.rpc.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")


def leave(
    state: GroupsState, request: ConsumerGroupHeartbeatRequest, context: Context
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """A member goes: for good, or as a static member that may come back."""
    group = find_group(state, request.group_id, ConsumerGroup)
    reply = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence_members(state, group, [group.member(request.member_id)], reply, context)
    member = find_instance_holder(group, request.member_id, request.instance_id)
    if request.member_epoch != LEAVING_STATIC:
        return fence_members(state, group, [member], reply, context)
    gone = replace(
        member,
        epoch=LEAVING_STATIC,
        revoking=NOTHING_OWNED,
        # Whoever takes its place has them from the beginning.
        assigned={topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assigned.items()},
    )
    return Decision([current_assignment_record(group.id, gone)], reply)


def fence_members(
    state: GroupsState, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], reply: R, context: Context
) -> Decision[R]:
    """Remove members; the group's epoch rises, so that the next heartbeat of another brings a new target."""
    if not members:
        return Decision((), reply)
    if must_downgrade(group, members, context):
        return downgrade(state, group, members, reply, context)
    records: list[Stored] = []
    timers: Timers = []
    left = group
    for member in members:
        records += member_tombstones(group.id, member.id)
        timers += cancelled_timers(group.id, member.id)
        left = left.without_member(member.id)
    unused = sorted({member.regex for member in members if member.regex and member.regex not in left.regex_counts})
    for regex in unused:
        records.append(regex_tombstone(group.id, regex))
        if regex in left.resolved_regexes:
            left = replace(left, resolved_regexes=left.resolved_regexes.delete(regex))
    records.append(epoch_record(group.id, group.epoch + 1, topics_hash(left.subscribed_topics(), context.image)))
    return Decision(records, reply, timers=timers)


def find_instance_holder(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """The member that holds an instance id, if that is the one that speaks; raises otherwise."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        )
    return member
