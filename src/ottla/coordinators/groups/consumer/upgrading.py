"""Conversion of a classic group to a consumer group when the first member of the consumer protocol joins (KIP-848).

The classic members keep their partitions. Members that wait for a generation must join again, and then become classic
members of the consumer group. As in Kafka, a group whose assignments carry user data, such as those of librdkafka's
cooperative-sticky assignor, cannot be converted.
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
    """The result of a conversion."""

    group: ConsumerGroup
    records: Sequence[Stored]
    timers: Timers
    answers: Sequence[tuple[Ticket, Any]]


def upgrade_group(old: classic.ClassicGroup, context: Context) -> Upgrade:
    """Convert a classic group; raise GroupIdNotFound if that is not possible."""
    _check(old, context)
    prefix = f"Cannot upgrade classic group {old.id} to consumer group because"
    try:
        group = _convert(old, context.image)
    except ProtocolError as error:
        logger.warning("classic group %s cannot be converted to a consumer group: %s", old.id, error)
        raise GroupIdNotFound(f"{prefix} the embedded consumer protocol is malformed.") from error
    except _CustomAssignor as error:
        raise GroupIdNotFound(
            f"{prefix} an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
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
    """An assignment has user data, which only its own assignor understands."""


def _check(old: classic.ClassicGroup, context: Context) -> None:
    prefix = f"Cannot upgrade classic group {old.id} to consumer group because"
    if not may_upgrade(context):
        raise GroupIdNotFound(f"{prefix} online upgrade is disabled.")
    if old.type != classic.CONSUMER:
        raise GroupIdNotFound(f"{prefix} the group does not use the consumer embedded protocol.")
    if len(old.members) > context.settings(MAX_SIZE):
        raise GroupIdNotFound(f"{prefix} the group size exceeds the consumer group maximum size.")


def _convert(old: classic.ClassicGroup, image: Image) -> ConsumerGroup:
    group = ConsumerGroup(old.id, epoch=old.generation, target_epoch=old.generation)
    # A group has no protocol before its first generation.
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
                tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in member.protocols),
            ),
        )
        group = group.with_target(new.id, target).with_member(new)
    return replace(group, metadata_hash=topics_hash(group.subscribed_topics(), image))


def _target_of(assignment: bytes, image: Image) -> Target:
    """Return a classic member's partitions of existing topics; empty if it has no assignment yet."""
    if not assignment:
        return {}
    decoded = read_assignment(assignment)
    if decoded.user_data:
        raise _CustomAssignor
    return {
        topic.id: tuple(sorted(set(assigned.partitions)))
        for assigned in decoded.assigned_partitions
        if (topic := image.topic(assigned.topic)) is not None
    }


def _rejoin_answers(old: classic.ClassicGroup) -> Sequence[tuple[Ticket, Any]]:
    """Return the responses that tell waiting members to join again."""
    code = RebalanceInProgress.code
    answers: list[tuple[Ticket, Any]] = []
    for member in old.members.values():
        if member.join_ticket is not None:
            response = JoinGroupResponse(error_code=code, member_id=member.id, protocol_name=None)
            answers.append((member.join_ticket, response))
        if member.sync_ticket is not None:
            answers.append((member.sync_ticket, SyncGroupResponse(error_code=code)))
    return answers
