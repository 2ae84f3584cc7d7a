"""A consumer group becomes a classic group when its last member of the new protocol goes (KIP-848).

The classic members that are left keep what they have, and join again in a rebalance of the classic kind.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from ottla.coordinators.groups.classic import group as classic
from ottla.coordinators.groups.classic.rebalance import GroupTransition, prepare_rebalance
from ottla.coordinators.groups.consumer.embedded import version_of, write_assignment
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import NO_TARGET, Member, Target
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


def must_downgrade(group: ConsumerGroup, leaving: Collection[Member], context: Context) -> bool:
    """Whether only classic members are left when some have gone, and may be by themselves."""
    left = len(group.members) - len(leaving)
    classic_left = len(group.classic_members) - sum(member.is_classic for member in leaving)
    if left <= 0 or classic_left != left:
        return False
    return _may(group, left, context)


def must_downgrade_for(group: ConsumerGroup, replaced: Member | None, context: Context) -> bool:
    """Whether only classic members are left when a classic one takes a static member's place."""
    if replaced is None or replaced.is_classic or len(group.classic_members) != len(group.members) - 1:
        return False
    return _may(group, len(group.members), context)


def _may(group: ConsumerGroup, size: int, context: Context) -> bool:
    if not may_downgrade(context):
        logger.info("%s has only classic members now, and may not become a classic group", group.id)
        return False
    if size > context.settings(CLASSIC_MAX_SIZE):
        logger.info("%s has only classic members now, which are too many for a classic group", group.id)
        return False
    return True


def downgrade(
    state: GroupsState,
    group: ConsumerGroup,
    leaving: Collection[Member],
    reply: R,
    context: Context,
    *,
    rebalances: bool = True,
    newcomer: Member | None = None,
) -> Decision[R]:
    """Make a classic group of those who are left; a newcomer has what the one that leaves should have had."""
    gone = {member.id for member in leaving}
    targets = {member_id: target for member_id, target in group.targets.items() if member_id not in gone}
    members = [member for member in group.members.values() if member.id not in gone]
    if newcomer is not None:
        members.append(newcomer)
        targets[newcomer.id] = group.target_of(newcomer)
    transition = GroupTransition(state, _classic(group, members, targets, context), context)
    transition.records += group.tombstones()
    transition.append_group_record()
    transition.timers += [timer for member in group.members.values() for timer in cancelled_timers(group.id, member.id)]
    for member in list(transition.group.members.values()):
        transition.extend_session(member)
    if rebalances:
        prepare_rebalance(transition)
    return transition.to_decision(reply)


def _classic(
    group: ConsumerGroup, members: Collection[Member], targets: Mapping[str, Target], context: Context
) -> classic.ClassicGroup:
    """A classic group in which everyone has what the target gives it."""
    by_id = {member.id: member for member in members}
    ordered = versioned_order(by_id)  # the first one leads
    made = classic.ClassicGroup(
        group.id,
        state=classic.ClassicGroupState.STABLE,
        state_since_ms=context.now_ms,
        type=classic.CONSUMER,
        generation=group.epoch,
        leader=ordered[0],
        members={member_id: _member(by_id[member_id]) for member_id in ordered},
    )
    made = replace(made, protocol=made.choose_protocol())
    for member in made.members.values():
        try:
            version = version_of(member.metadata(made.protocol))
        except ProtocolError as error:
            raise GroupIdNotFound(f"Cannot downgrade the classic group {group.id}: {error}.") from error
        assignment = write_assignment(targets.get(member.id, NO_TARGET), context.image, version)
        made = made.with_member(replace(member, assignment=assignment))
    return replace(made, topics=made.subscribed_topics())


def _member(member: Member) -> classic.ClassicGroupMember:
    side = member.classic
    assert side is not None, "only classic members are in a classic group"
    return classic.ClassicGroupMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=side.session_timeout_ms,
        protocols=tuple(classic.ClassicProtocol(each.name, each.metadata) for each in side.protocols),
    )
