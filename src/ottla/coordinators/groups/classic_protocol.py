"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, for classic groups and for consumer groups with classic members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinators.groups.classic import joining, membership
from ottla.coordinators.groups.consumer import classic_members
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest
from ottla.storage.state_machine.decision import Decision, Ticket


def join_group(state: GroupsState, request: JoinGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Let a member join. A consumer or streams group without members becomes a classic group."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return classic_members.join(state, group, request, context)
    if not isinstance(group, ConsumerGroup | StreamsGroup) or not group.is_empty:
        return joining.join_group(state, request, ticket, context)
    decision = joining.join_group(state.without_group(group.id), request, ticket, context)
    if not decision.records:
        return decision  # the request failed: the group stays as it is
    return replace(decision, records=[*group.tombstones(), *decision.records])


def sync_group(state: GroupsState, request: SyncGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Answer a member with its assignment."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return classic_members.sync(state, group, request, context)
    return membership.sync_group(state, request, ticket, context)


def heartbeat(state: GroupsState, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Extend a member's session."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.heartbeat(state, group, request, context)
    return membership.heartbeat(state, request, context)


def leave_group(state: GroupsState, request: LeaveGroupRequest, context: Context) -> Decision[LeaveGroupResponse]:
    """Remove members."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.leave(state, group, request, context)
    return membership.leave_group(state, request, context)
