"""Members of a consumer group that use the classic protocol, while a group migrates between the protocols.

To them the group looks like a classic group that another member leads. Their member epoch is their generation, and they
must join again whenever the coordinator has a new target for them. The metadata of their first protocol contain their
subscription and the partitions they own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.classic.group import CONSUMER, ClassicProtocol
from ottla.coordinators.groups.consumer.downgrading import downgrade, must_downgrade_for
from ottla.coordinators.groups.consumer.embedded_protocol import read_subscription, read_version, write_assignment
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.group_lookup import GroupLookup
from ottla.coordinators.groups.consumer.joining import RequestingMember, check_size, find_static_member, new_member_id
from ottla.coordinators.groups.consumer.leaving import fence_members, find_instance_holder
from ottla.coordinators.groups.consumer.member import ClassicMetadata, ConsumerGroupMember, MemberState
from ottla.coordinators.groups.consumer.member_transition import MemberTransition
from ottla.coordinators.groups.consumer.reconciling import Reported
from ottla.coordinators.groups.consumer.settings import allows_mixed_members
from ottla.coordinators.groups.consumer.timer_keys import Timers, rejoin_timer, sync_timer
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import session_timer
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    NONE,
    ApiError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.state_machine.decision import Decision

_NO_EPOCH: Final = -1
_FIRST_REQUIRING_MEMBER_ID: Final = 4


def join(
    state: GroupsState, group: ConsumerGroup, request: JoinGroupRequest, context: Context
) -> Decision[JoinGroupResponse]:
    """Let a classic member join a group that has members. The response is immediate: no join phase holds it up."""
    if not allows_mixed_members(context):
        raise InconsistentGroupProtocol(
            f"Cannot join the consumer group {group.id} with the classic protocol because the group migration is "
            "disabled."
        )
    is_unknown = not request.member_id
    member_id = request.member_id or new_member_id(context)
    check_size(group, member_id, context)
    _check_protocols(group, member_id, request)
    if is_unknown and request.group_instance_id is None and context.version >= _FIRST_REQUIRING_MEMBER_ID:
        response = JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id, protocol_name=None)
        return Decision((), response)
    instance_id = request.group_instance_id
    if instance_id is None:
        requester = RequestingMember(group.members.get(member_id) or ConsumerGroupMember(id=member_id))
    else:
        requester = find_static_member(
            group, member_id, _NO_EPOCH, instance_id, (), is_joining=is_unknown, is_classic=True
        )
    subscription = _subscription(request)
    transition = MemberTransition(
        state, GroupLookup(group), requester, _updated_member(requester, subscription, request, context), context
    )
    transition.update_subscription(is_classic=True)
    reported = _reported_partitions(subscription, context.image)
    if must_downgrade_for(group, group.static_member(instance_id), context):
        rebalances = group.target_epoch < transition.epoch
        if not rebalances:
            target = group.target_of(transition.member)
            transition.reconcile_to(
                group.target_epoch, target, reported, subscription_changed=transition.is_subscription_changed
            )
        replaced = group.static_member(instance_id)
        assert replaced is not None
        reply = _join_response(transition.member)
        return downgrade(state, group, [replaced], reply, context, rebalances=rebalances, new_member=transition.member)
    transition.reconcile(reported)
    member = transition.member
    transition.timers += [
        (rejoin_timer(group.id, member.id), None),
        (session_timer(group.id, member.id), context.now_ms + request.session_timeout_ms),
        (sync_timer(group.id, member.id), context.now_ms + request.rebalance_timeout_ms),
    ]
    transition.clear_rejoin(member.id)
    return transition.to_decision(_join_response(member))


def sync(
    state: GroupsState, group: ConsumerGroup, request: SyncGroupRequest, context: Context
) -> Decision[SyncGroupResponse]:
    """Answer a classic member with its assignment."""
    member = _member(group, request.member_id, request.group_instance_id)
    classic = _classic_metadata(member)
    _check_generation(member, request.generation_id)
    _check_protocol(member, classic, request.protocol_type, request.protocol_name)
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # The response is an error, but the deadline for joining again must be set.
        response = SyncGroupResponse(error_code=RebalanceInProgress.code)
        changed, timers = _await_rejoin(state, group, member, context)
        return Decision((), response, state=changed, timers=timers)
    try:
        version = read_version(classic.protocols[0].metadata)
    except ProtocolError as error:
        raise UnknownServerError(f"the subscription of member {member.id} cannot be decoded") from error
    assignment = {topic_id: tuple(owned) for topic_id, owned in member.assigned.items()}
    reply = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(assignment, context.image, version),
    )
    timers = [
        (sync_timer(group.id, member.id), None),
        (session_timer(group.id, member.id), context.now_ms + classic.session_timeout_ms),
    ]
    return Decision((), reply, timers=timers)


def heartbeat(
    state: GroupsState, group: ConsumerGroup, request: HeartbeatRequest, context: Context
) -> Decision[HeartbeatResponse]:
    """Extend a classic member's session; tell it to join again if it must revoke or may take partitions."""
    member = _member(group, request.member_id, request.group_instance_id)
    classic = _classic_metadata(member)
    _check_generation(member, request.generation_id)
    timers: Timers = [(session_timer(group.id, member.id), context.now_ms + classic.session_timeout_ms)]
    must_rejoin = (
        member.epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))
    )
    if not must_rejoin:
        return Decision((), HeartbeatResponse(), timers=timers)
    changed, rejoin_timers = _await_rejoin(state, group, member, context)
    response = HeartbeatResponse(error_code=RebalanceInProgress.code)
    return Decision((), response, state=changed, timers=[*timers, *rejoin_timers])


def leave(
    state: GroupsState, group: ConsumerGroup, request: LeaveGroupRequest, context: Context
) -> Decision[LeaveGroupResponse]:
    """Remove members of either protocol; the response has an error code for each."""
    leaving: dict[str, ConsumerGroupMember] = {}
    answers = []
    for identity in request.members:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            member = _leaving_member(group, identity.member_id, identity.group_instance_id)
            leaving[member.id] = member
        except ApiError as error:
            answer.error_code = error.code
        answers.append(answer)
    return fence_members(state, group, list(leaving.values()), LeaveGroupResponse(members=answers), context)


def _leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Return the member that leaves: administrators name a static member by its instance id alone."""
    if instance_id is None:
        return group.member(member_id)
    if member_id:
        return find_instance_holder(group, member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    return member


def _await_rejoin(
    state: GroupsState, group: ConsumerGroup, member: ConsumerGroupMember, context: Context
) -> tuple[GroupsState | None, Timers]:
    """Set the deadline for a member to join again, unless it is set already."""
    if member.id in group.rejoin_deadlines:
        return None, []
    until_ms = context.now_ms + member.rebalance_timeout_ms
    changed = replace(group, rejoin_deadlines=group.rejoin_deadlines.set(member.id, until_ms))
    return state.with_group(changed), [(rejoin_timer(group.id, member.id), until_ms)]


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        return group.member(member_id)
    if group.static_member(instance_id) is None:
        raise UnknownMemberId(f"Member with instance id {instance_id} is not a member of group {group.id}.")
    return find_instance_holder(group, member_id, instance_id)


def _classic_metadata(member: ConsumerGroupMember) -> ClassicMetadata:
    if member.classic is None:
        raise UnknownMemberId(f"Member {member.id} does not use the classic protocol.")
    return member.classic


def _check_generation(member: ConsumerGroupMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.id}."
        )


def _check_protocol(
    member: ConsumerGroupMember, classic: ClassicMetadata, protocol_type: str | None, protocol_name: str | None
) -> None:
    if protocol_type is not None and protocol_type != CONSUMER:
        raise InconsistentGroupProtocol(
            f"The protocol type {protocol_type} from member {member.id} request is not equal to the group protocol "
            f"type {CONSUMER}."
        )
    chosen = classic.protocols[0].name
    if protocol_name is not None and protocol_name != chosen:
        raise InconsistentGroupProtocol(
            f"The protocol name {protocol_name} from member {member.id} request is not equal to the protocol name "
            f"{chosen} returned in the join response."
        )


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
    """Raise unless the member shares a protocol with all classic members, so that they could form a classic group."""
    offered = {protocol.name for protocol in request.protocols}
    supported = [
        {protocol.name for protocol in classic.protocols}
        for member in group.classic_members
        if (classic := member.classic)
    ]
    if request.protocol_type != CONSUMER or not offered or not offered.intersection(*supported):
        raise InconsistentGroupProtocol(f"Member {member_id}'s protocols are not supported.")


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except ProtocolError as error:
        raise UnknownServerError("Malformed embedded consumer protocol in subscription deserialization.") from error


def _updated_member(
    requester: RequestingMember, subscription: ConsumerProtocolSubscription, request: JoinGroupRequest, context: Context
) -> ConsumerGroupMember:
    member = requester.member
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",  # classic members resolve regular expressions themselves
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMetadata(
            request.session_timeout_ms,
            tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


def _reported_partitions(subscription: ConsumerProtocolSubscription, image: Image) -> Reported:
    return [
        (topic.id, owned.partitions)
        for owned in subscription.owned_partitions
        if (topic := image.topic(owned.topic)) is not None
    ]


def _join_response(member: ConsumerGroupMember) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=NONE,
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=_classic_metadata(member).protocols[0].name,
        member_id=member.id,
    )
