"""ShareGroupHeartbeat: a member joins, stays or leaves, and gets its assignment.

A heartbeat writes the member's subscription, bumps the group epoch if the subscription or the topics changed, computes
a new target if the target is of an older epoch, and assigns the member its part. Share partitions that the group has
not read before must be initialized at the share coordinator. The reply names them, and the runtime initializes them
once the decision is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import RefreshDeadline
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.request_checks import check_not_blank
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.member import JOINING, LEAVING, ShareGroupMember, Target
from ottla.coordinators.groups.share.partitions import NO_PARTITIONS
from ottla.coordinators.groups.share.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    partitions_record,
    target_assignment_epoch_record,
    target_assignment_record,
)
from ottla.coordinators.groups.share.settings import (
    MAX_SIZE,
    RETRY_INTERVAL,
    assignment_interval_ms,
    heartbeat_interval_ms,
    session_timeout_ms,
)
from ottla.coordinators.groups.share.targets import compute_targets
from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.coordinators.groups.timers import session_timer
from ottla.protocol.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, InvalidRequest
from ottla.protocol.messages.rpc.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")

_LONGEST_ID: Final = 36


class StatesToInitialize(NamedTuple):
    """The share partitions to initialize, with their start offsets; -1 lets the partition's leader choose."""

    group_id: str
    epoch: int
    offsets: Mapping[bytes, Mapping[int, int]]


class HeartbeatReply(NamedTuple):
    """The response to a heartbeat, and the share partitions to initialize."""

    response: ShareGroupHeartbeatResponse
    states: StatesToInitialize | None = None


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise InvalidRequest, with Kafka's messages, before the group is looked up."""
    for text, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        check_not_blank(text, name)
    if request.member_epoch == JOINING:
        if not request.subscribed_topic_names:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING:
        raise InvalidRequest("MemberEpoch is invalid.")


def check_member_id(member_id: str | None) -> None:
    """Raise InvalidRequest unless the member id has a valid length."""
    if not member_id or len(member_id) > _LONGEST_ID:
        raise InvalidRequest("Invalid member id in the request.")


def heartbeat(state: GroupsState, request: ShareGroupHeartbeatRequest, context: Context) -> Decision[HeartbeatReply]:
    """Decide on a heartbeat that passed `check_heartbeat`."""
    if request.member_epoch == LEAVING:
        group = find_group(state, request.group_id, ShareGroup)
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return fence(group, group.member(request.member_id), HeartbeatReply(response), context)
    transition = _MemberTransition(state, request, context)
    transition.update_subscription()
    transition.reconcile()
    states = transition.initialize_missing_states()
    group, member = transition.group, transition.member
    reply = ShareGroupHeartbeatResponse(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(group.id, context),
    )
    is_full = request.member_epoch == JOINING or request.subscribed_topic_names is not None
    if is_full or transition.old.assigned != member.assigned:
        reply.assignment = _assignment(member.assigned)
    session_ends = context.now_ms + session_timeout_ms(group.id, context)
    return Decision(
        transition.records,
        HeartbeatReply(reply, states),
        state=transition.unrecorded_changes(),
        timers=((session_timer(group.id, member.id), session_ends),),
    )


def fence(group: ShareGroup, member: ShareGroupMember, reply: R, context: Context) -> Decision[R]:
    """Remove a member and bump the group epoch, so that the next heartbeat computes a new target."""
    remaining = group.without_member(member.id)
    epoch = epoch_record(group.id, group.epoch + 1, topics_hash(remaining.subscriber_counts, context.image))
    timers = ((session_timer(group.id, member.id), None),)
    return Decision([*member_tombstones(group.id, member.id), epoch], reply, timers=timers)


class _MemberTransition:
    """The changes that one heartbeat causes."""

    def __init__(self, state: GroupsState, request: ShareGroupHeartbeatRequest, context: Context) -> None:
        self.state = state
        self.context = context
        self.records: list[Stored] = []
        self.group = _get_or_create_group(state, request)
        """The group before the heartbeat."""
        max_size = context.settings(MAX_SIZE)
        if len(self.group.members) >= max_size and request.member_id not in self.group.members:
            raise GroupMaxSizeReached(f"The share group has reached its maximum capacity of {max_size} members.")
        self.old = _find_member(self.group, request)
        self.member = replace(
            self.old,
            rack_id=self.old.rack_id if request.rack_id is None else request.rack_id,
            topics=self.old.topics
            if request.subscribed_topic_names is None
            else frozenset(request.subscribed_topic_names),
            client_id=context.client_id,
            client_host=context.client_host,
        )
        self.after = self.group.with_member(self.member)
        self.epoch = self.group.epoch
        self.is_bumped = False
        self._refresh_deadline: RefreshDeadline | None = None

    def update_subscription(self) -> None:
        """Write the member's subscription; bump the group epoch if it or the topics changed."""
        group, old, new = self.group, self.old, self.member
        if new != old:
            self.records.append(member_record(group.id, new))
        self.is_bumped = new.topics != old.topics
        if group.target_epoch >= group.epoch:
            self.is_bumped |= group.lacks_assignment()
        if not self.is_bumped and not group.must_refresh(self.context.now_ms):
            return
        metadata_hash = topics_hash(self.after.subscriber_counts, self.context.image)
        self.is_bumped |= metadata_hash != group.metadata_hash
        if self.is_bumped:
            self.epoch += 1
            self.records.append(epoch_record(group.id, self.epoch, metadata_hash))
        self._refresh_deadline = RefreshDeadline.after(self.context.now_ms, self.epoch)

    def reconcile(self) -> None:
        """Assign the member its part of the target; compute a new target if it is outdated and old enough."""
        epoch, target = self._update_target()
        old = self.member
        if old.epoch == epoch and not self.is_bumped:
            return
        assigned = self._subscribed(target)
        if old.epoch != epoch:
            self.member = replace(old, epoch=epoch, previous_epoch=old.epoch, assigned=assigned)
        else:
            self.member = replace(old, assigned=assigned)
        if self.member != old:
            self.records.append(current_assignment_record(self.group.id, self.member))

    def initialize_missing_states(self) -> StatesToInitialize | None:
        """Return the share partitions to initialize, and write that their initialization begins."""
        context, partitions = self.context, self.group.partitions or NO_PARTITIONS
        retry_ms = context.settings(RETRY_INTERVAL)
        missing = partitions.missing(self.after.subscriber_counts, context.image, context.now_ms, retry_ms)
        if not missing:
            return None
        self.records.append(partitions_record(self.group.id, partitions.with_initializing(missing), context.image))
        offsets = {topic_id: dict.fromkeys(sorted(topic.partitions), -1) for topic_id, topic in missing.items()}
        return StatesToInitialize(self.group.id, self.epoch, offsets)

    def unrecorded_changes(self) -> GroupsState | None:
        """Return the state with the changes that have no record, or None if there are none."""
        if self._refresh_deadline is None:
            return None
        return self.state.with_group(replace(self.group, refresh_deadline=self._refresh_deadline))

    def _update_target(self) -> tuple[int, Target]:
        group, context = self.group, self.context
        is_due = group.may_replace_target(assignment_interval_ms(group.id, context), context.now_ms)
        if group.target_epoch >= self.epoch or not is_due:
            return group.target_epoch, group.target_of(self.member)
        new_member_id = None if self.member.id in group.members else self.member.id
        targets = compute_targets(self.after, context.image, new_member_id=new_member_id)
        self.records += [
            target_assignment_record(group.id, member_id, target)
            for member_id, target in targets.items()
            if group.targets.get(member_id) != target
        ]
        self.records.append(target_assignment_epoch_record(group.id, self.epoch, context.now_ms))
        return self.epoch, targets[self.member.id]

    def _subscribed(self, target: Target) -> Target:
        """Return the target without topics that the member is no longer subscribed to."""
        image, names = self.context.image, self.member.topics
        return {
            topic_id: numbers
            for topic_id, numbers in target.items()
            if (topic := image.topic_by_id(topic_id)) is not None and topic.name in names
        }


def _get_or_create_group(state: GroupsState, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    group = state.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None:
        raise GroupIdNotFound(f"Group {request.group_id} is not a share group.")
    if request.member_epoch != JOINING:
        raise GroupIdNotFound(f"Share group {request.group_id} not found.")
    return ShareGroup(request.group_id)


def _find_member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareGroupMember:
    """Return the requesting member. The request may have the previous epoch: the response may have been lost."""
    epoch = request.member_epoch
    if epoch == JOINING:
        return group.members.get(request.member_id) or ShareGroupMember(id=request.member_id)
    member = group.member(request.member_id)
    if epoch > member.epoch:
        raise FencedMemberEpoch(
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin."
        )
    if epoch < member.epoch and epoch != member.previous_epoch:
        raise FencedMemberEpoch(
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch}). The member "
            "must abandon all its partitions and rejoin."
        )
    return member


def _assignment(assigned: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in assigned.items()
        ]
    )
