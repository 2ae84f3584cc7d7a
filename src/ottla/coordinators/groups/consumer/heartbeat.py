"""ConsumerGroupHeartbeat: a member joins, stays or leaves, and gets its assignment.

A heartbeat has up to four effects. It writes the member's subscription, bumps the group epoch if the subscription or
the topics changed, computes a new target if the target is of an older epoch, and takes the member one step towards it.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinators.groups.consumer.group_lookup import get_or_create_group
from ottla.coordinators.groups.consumer.joining import (
    RequestingMember,
    check_size,
    find_dynamic_member,
    find_static_member,
    new_member_id,
)
from ottla.coordinators.groups.consumer.leaving import leave
from ottla.coordinators.groups.consumer.member import JOINING, LEAVING, LEAVING_STATIC, ConsumerGroupMember
from ottla.coordinators.groups.consumer.member_transition import MemberTransition
from ottla.coordinators.groups.consumer.reconciling import Reported
from ottla.coordinators.groups.consumer.settings import heartbeat_interval_ms, session_timeout_ms
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_timer
from ottla.protocol.messages.rpc.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.storage.state_machine.decision import Decision

_UNCHANGED = -1


def heartbeat(
    state: GroupsState, request: ConsumerGroupHeartbeatRequest, context: Context
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """Decide on a heartbeat that passed `check_heartbeat`."""
    if request.member_epoch in (LEAVING, LEAVING_STATIC):
        return leave(state, request, context)
    is_joining = request.member_epoch == JOINING
    lookup = get_or_create_group(state, request.group_id, context, may_create=is_joining)
    group = lookup.group
    check_size(group, request.member_id, context)
    reported = _reported(request)
    member_id = request.member_id or new_member_id(context)
    if request.instance_id is None:
        requester = find_dynamic_member(group, member_id, request.member_epoch, reported, is_joining=is_joining)
    else:
        requester = find_static_member(
            group, member_id, request.member_epoch, request.instance_id, reported, is_joining=is_joining
        )
    transition = MemberTransition(state, lookup, requester, _updated_member(requester, request, context), context)
    transition.update_subscription()
    transition.reconcile(reported)
    member = transition.member
    session_ends = context.now_ms + session_timeout_ms(group.id, context)
    transition.timers.append((session_timer(group.id, member.id), session_ends))
    reply = ConsumerGroupHeartbeatResponse(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(group.id, context),
    )
    if is_joining or _is_full(request) or requester.member.assigned != member.assigned:
        reply.assignment = _assignment(member)
    return transition.to_decision(reply)


def _updated_member(
    requester: RequestingMember, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupMember:
    """Return the member with the fields of the request; fields that the request omits stay."""
    member = requester.member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == _UNCHANGED
        else request.rebalance_timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported:
    topics = request.topic_partitions
    return None if topics is None else [(topic.topic_id, topic.partitions) for topic in topics]


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as a client sends it when it may have missed a response."""
    return (
        request.rebalance_timeout_ms != _UNCHANGED
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(member: ConsumerGroupMember) -> Assignment:
    topics = [TopicPartitions(topic_id=topic_id, partitions=list(owned)) for topic_id, owned in member.assigned.items()]
    return Assignment(topic_partitions=topics)
