"""Conversion of a consumer group to a classic group when its last member of the consumer protocol leaves (KIP-848).

The remaining classic members keep their partitions, and join again in a classic rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from ottla.coordinators.groups.classic import group as classic
from ottla.coordinators.groups.classic.rebalance import GroupTransition, prepare_rebalance
from ottla.coordinators.groups.consumer.embedded_protocol import read_version, write_assignment
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import NO_TARGET, ConsumerGroupMember, Target
from ottla.coordinators.groups.consumer.settings import CLASSIC_MAX_SIZE, may_downgrade
from ottla.coordinators.groups.consumer.timer_keys import cancelled_timers
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.errors import GroupIdNotFound
from ottla.protocol.java.hash_order import versioned_order
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.state_machine.decision import Decision

logger = logging.getLogger(__name__)

R = TypeVar("R")


def must_downgrade(group: ConsumerGroup, leaving: Collection[ConsumerGroupMember], context: Context) -> bool:
    """Whether only classic members remain after some left, and the settings allow the conversion."""
    remaining = len(group.members) - len(leaving)
    classic_left = len(group.classic_members) - sum(member.is_classic for member in leaving)
    if remaining <= 0 or classic_left != remaining:
        return False
    return _is_downgrade_allowed(group, remaining, context)


def must_downgrade_for(group: ConsumerGroup, replaced: ConsumerGroupMember | None, context: Context) -> bool:
    """Whether only classic members remain when a classic member replaces a static one."""
    if replaced is None or replaced.is_classic or len(group.classic_members) != len(group.members) - 1:
        return False
    return _is_downgrade_allowed(group, len(group.members), context)


def _is_downgrade_allowed(group: ConsumerGroup, size: int, context: Context) -> bool:
    if not may_downgrade(context):
        logger.info(
            "consumer group %s has only classic members, but the migration policy forbids a downgrade", group.id
        )
        return False
    if size > context.settings(CLASSIC_MAX_SIZE):
        logger.info(
            "consumer group %s has only classic members, but %d are too many for a classic group", group.id, size
        )
        return False
    return True


def downgrade(
    state: GroupsState,
    group: ConsumerGroup,
    leaving: Collection[ConsumerGroupMember],
    reply: R,
    context: Context,
    *,
    rebalances: bool = True,
    new_member: ConsumerGroupMember | None = None,
) -> Decision[R]:
    """Convert the group to a classic group of the remaining members. A new member inherits the target it replaces."""
    leaving_ids = {member.id for member in leaving}
    targets = {member_id: target for member_id, target in group.targets.items() if member_id not in leaving_ids}
    members = [member for member in group.members.values() if member.id not in leaving_ids]
    if new_member is not None:
        members.append(new_member)
        targets[new_member.id] = group.target_of(new_member)
    transition = GroupTransition(state, _classic_group(group, members, targets, context), context)
    transition.records += group.tombstones()
    transition.append_group_record()
    transition.timers += [timer for member in group.members.values() for timer in cancelled_timers(group.id, member.id)]
    for member in list(transition.group.members.values()):
        transition.extend_session(member)
    if rebalances:
        prepare_rebalance(transition)
    return transition.to_decision(reply)


def _classic_group(
    group: ConsumerGroup, members: Collection[ConsumerGroupMember], targets: Mapping[str, Target], context: Context
) -> classic.ClassicGroup:
    """Return a classic group in which every member has its part of the target."""
    by_id = {member.id: member for member in members}
    ordered = versioned_order(by_id)  # the first member leads
    new_group = classic.ClassicGroup(
        group.id,
        state=classic.ClassicGroupState.STABLE,
        state_since_ms=context.now_ms,
        type=classic.CONSUMER,
        generation=group.epoch,
        leader=ordered[0],
        members={member_id: _classic_member(by_id[member_id]) for member_id in ordered},
    )
    new_group = replace(new_group, protocol=new_group.choose_protocol())
    for member in new_group.members.values():
        try:
            version = read_version(member.metadata(new_group.protocol))
        except ProtocolError as error:
            raise GroupIdNotFound(f"Cannot downgrade the classic group {group.id}: {error}.") from error
        assignment = write_assignment(targets.get(member.id, NO_TARGET), context.image, version)
        new_group = new_group.with_member(replace(member, assignment=assignment))
    return replace(new_group, topics=new_group.subscribed_topics())


def _classic_member(member: ConsumerGroupMember) -> classic.ClassicGroupMember:
    classic_metadata = member.classic
    assert classic_metadata is not None, "only classic members are in a classic group"
    return classic.ClassicGroupMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic_metadata.session_timeout_ms,
        protocols=classic_metadata.protocols,
    )
