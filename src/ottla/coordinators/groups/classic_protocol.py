"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests of the classic protocol, for groups of either protocol."""

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
    """Let a member join. A consumer or streams group without members becomes a classic one then."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return classic_members.join(state, group, request, context)
    if not isinstance(group, ConsumerGroup | StreamsGroup) or not group.is_empty:
        return joining.join_group(state, request, ticket, context)
    decision = joining.join_group(state.without_group(group.id), request, ticket, context)
    if not decision.records:
        return decision  # it was refused
    return replace(decision, records=[*group.tombstones(), *decision.records])


def sync_group(state: GroupsState, request: SyncGroupRequest, ticket: Ticket, context: Context) -> Decision[Any]:
    """Tell a member its assignment."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return classic_members.sync(state, group, request, context)
    return membership.sync_group(state, request, ticket, context)


def heartbeat(state: GroupsState, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Keep a member's session alive."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.heartbeat(state, group, request, context)
    return membership.heartbeat(state, request, context)


def leave_group(state: GroupsState, request: LeaveGroupRequest, context: Context) -> Decision[LeaveGroupResponse]:
    """Take members out."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return classic_members.leave(state, group, request, context)
    return membership.leave_group(state, request, context)
