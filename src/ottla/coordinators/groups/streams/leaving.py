"""Members that leave or are fenced: the next target distributes their tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.records import epoch_record, member_tombstones
from ottla.coordinators.groups.streams.timer_keys import cancelled_timers
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.storage.state_machine.decision import Decision

R = TypeVar("R")


def leave(state: GroupsState, request: StreamsGroupHeartbeatRequest) -> Decision[StreamsGroupHeartbeatResponse]:
    """Let a member leave. It may also request the shutdown of the whole application."""
    group = find_group(state, request.group_id, StreamsGroup)
    reply = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
    decision = fence(group, group.member(request.member_id), reply)
    if request.shutdown_application and group.shutdown_by is None:
        return replace(decision, state=state.with_group(replace(group, shutdown_by=request.member_id)))
    return decision


def fence(group: StreamsGroup, member: StreamsGroupMember, reply: R) -> Decision[R]:
    """Remove a member and bump the group epoch, so that the next heartbeat computes a new target."""
    records = [
        *member_tombstones(group.id, member.id),
        epoch_record(group.id, group.epoch + 1, group.metadata_hash, group.validated_epoch, group.settings),
    ]
    return Decision(records, reply, timers=cancelled_timers(group.id, member.id))
