"""A classic group becomes a consumer group when the first member of the new protocol joins it (KIP-848).

The classic members stay with what they have; whoever waits for a generation is told to join again, and will then be
served as a classic member of a consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.coordinators.groups.classic import group as classic
from ottla.coordinators.groups.classic.group import ClassicProtocol
from ottla.coordinators.groups.consumer.embedded_protocol import read_assignment, read_subscription
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ClassicMetadata, ConsumerGroupMember, Target, owned_partitions
from ottla.coordinators.groups.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    target_assignment_epoch_record,
    target_assignment_record,
)
from ottla.coordinators.groups.consumer.settings import MAX_SIZE, may_upgrade
from ottla.coordinators.groups.consumer.timer_keys import Timers
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.timers import join_timer, session_timer, sync_timer
from ottla.metadata.image.image import Image
from ottla.protocol.errors import GroupIdNotFound, RebalanceInProgress
from ottla.protocol.messages.rpc.join_group import JoinGroupResponse
from ottla.protocol.messages.rpc.sync_group import SyncGroupResponse
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.state_machine.decision import Ticket
from ottla.storage.state_machine.entries import Stored

logger = logging.getLogger(__name__)


class Upgrade(NamedTuple):
    """What a classic group becomes, and how."""

    group: ConsumerGroup
    records: Sequence[Stored]
    timers: Timers
    answers: Sequence[tuple[Ticket, Any]]


def upgrade_group(old: classic.ClassicGroup, context: Context) -> Upgrade:
    """The consumer group with all members of a classic one; raises GroupIdNotFound if it cannot become one."""
    _check(old, context)
    why = f"Cannot upgrade classic group {old.id} to consumer group because"
    try:
        group = _convert(old, context.image)
    except ProtocolError as error:
        logger.warning("%s cannot become a consumer group: %s", old.id, error)
        raise GroupIdNotFound(f"{why} the embedded consumer protocol is malformed.") from error
    except _CustomAssignor as error:
        raise GroupIdNotFound(
            f"{why} an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade."
        ) from error
    members = list(group.members.values())
    records = [
        *old.tombstones(),
        *(member_record(group.id, member) for member in members),
        epoch_record(group.id, group.epoch, group.metadata_hash),
        *(target_assignment_record(group.id, member.id, group.targets[member.id]) for member in members),
        target_assignment_epoch_record(group.id, group.target_epoch, group.target_timestamp),
        *(current_assignment_record(group.id, member) for member in members),
    ]
    timers: Timers = [(join_timer(group.id), None), (sync_timer(group.id), None)]
    timers += [
        (session_timer(group.id, member.id), context.now_ms + member.session_timeout_ms)
        for member in old.members.values()
    ]
    return Upgrade(group, records, timers, list(_rejoin_answers(old)))


class _CustomAssignor(Exception):
    """An assignment holds what only its own assignor understands."""


def _check(old: classic.ClassicGroup, context: Context) -> None:
    why = f"Cannot upgrade classic group {old.id} to consumer group because"
    if not may_upgrade(context):
        raise GroupIdNotFound(f"{why} online upgrade is disabled.")
    if old.type != classic.CONSUMER:
        raise GroupIdNotFound(f"{why} the group does not use the consumer embedded protocol.")
    if len(old.members) > context.settings(MAX_SIZE):
        raise GroupIdNotFound(f"{why} the group size exceeds the consumer group maximum size.")


def _convert(old: classic.ClassicGroup, image: Image) -> ConsumerGroup:
    group = ConsumerGroup(old.id, epoch=old.generation, target_epoch=old.generation)
    # Before its first generation a group has chosen no protocol yet.
    protocol = old.protocol or old.choose_protocol()
    for member in old.members.values():
        target = _target_of(member.assignment, image)
        subscription = read_subscription(member.metadata(protocol))
        new = ConsumerGroupMember(
            id=member.id,
            epoch=old.generation,
            previous_epoch=old.generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=frozenset(subscription.topics),
            assigned=owned_partitions(target, old.generation),
            classic=ClassicMetadata(
                member.session_timeout_ms,
                tuple(ClassicProtocol(each.name, bytes(each.metadata)) for each in member.protocols),
            ),
        )
        group = group.with_target(new.id, target).with_member(new)
    return replace(group, metadata_hash=topics_hash(group.subscribed_topics(), image))


def _target_of(assignment: bytes, image: Image) -> Target:
    """A classic member's partitions, of those topics that are there; none if it was not told yet."""
    if not assignment:
        return {}
    found = read_assignment(assignment)
    if found.user_data:
        raise _CustomAssignor
    return {
        topic.id: tuple(sorted(set(each.partitions)))
        for each in found.assigned_partitions
        if (topic := image.topic(each.topic)) is not None
    }


def _rejoin_answers(old: classic.ClassicGroup) -> Sequence[tuple[Ticket, Any]]:
    """Whoever waits is told to join again."""
    code = RebalanceInProgress.code
    answers: list[tuple[Ticket, Any]] = []
    for member in old.members.values():
        if member.join_ticket is not None:
            told = JoinGroupResponse(error_code=code, member_id=member.id, protocol_name=None)
            answers.append((member.join_ticket, told))
        if member.sync_ticket is not None:
            answers.append((member.sync_ticket, SyncGroupResponse(error_code=code)))
    return answers
