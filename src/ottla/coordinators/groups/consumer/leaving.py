"""Members that leave or are fenced: the next target distributes their partitions."""

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
    """Let a member leave: for good, or temporarily as a static member."""
    group = find_group(state, request.group_id, ConsumerGroup)
    reply = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence_members(state, group, [group.member(request.member_id)], reply, context)
    member = find_instance_holder(group, request.member_id, request.instance_id)
    if request.member_epoch != LEAVING_STATIC:
        return fence_members(state, group, [member], reply, context)
    left_member = replace(
        member,
        epoch=LEAVING_STATIC,
        revoking=NOTHING_OWNED,
        # The successor owns them from epoch 0 on.
        assigned={topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assigned.items()},
    )
    return Decision([current_assignment_record(group.id, left_member)], reply)


def fence_members(
    state: GroupsState, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], reply: R, context: Context
) -> Decision[R]:
    """Remove members and bump the group epoch, so that the next heartbeat computes a new target."""
    if not members:
        return Decision((), reply)
    if must_downgrade(group, members, context):
        return downgrade(state, group, members, reply, context)
    records: list[Stored] = []
    timers: Timers = []
    remaining = group
    for member in members:
        records += member_tombstones(group.id, member.id)
        timers += cancelled_timers(group.id, member.id)
        remaining = remaining.without_member(member.id)
    unused = sorted({member.regex for member in members if member.regex and member.regex not in remaining.regex_counts})
    for regex in unused:
        records.append(regex_tombstone(group.id, regex))
        if regex in remaining.resolved_regexes:
            remaining = replace(remaining, resolved_regexes=remaining.resolved_regexes.delete(regex))
    records.append(epoch_record(group.id, group.epoch + 1, topics_hash(remaining.subscribed_topics(), context.image)))
    return Decision(records, reply, timers=timers)


def find_instance_holder(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Return the holder of an instance id; raise unless it is the requesting member."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        )
    return member
