"""A classic group as a record of `__consumer_offsets`, and back.

Only what a generation settles is written. Who waits, who was given an id and not heard of again, and which protocols a
member has beside the chosen one, is lost with the coordinator; members then join again, or never notice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicGroup, Member, Protocol, State
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.messages.records.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.storage.state_machine.entries import Stored

VERSION: Final = 3
"""What Kafka writes: the latest version that is not flexible."""


def recorded(group: ClassicGroup) -> tuple[ClassicGroup, Stored]:
    """A group with its generation written down, and the record of it."""
    value = GroupMetadataValue(
        protocol_type=group.type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return _with_record(group, value)


def recorded_as_empty(group: ClassicGroup) -> tuple[ClassicGroup, Stored]:
    """A group that has just come into being: written down before it has its first generation."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_since_ms
    )
    return _with_record(group, value)


def _with_record(group: ClassicGroup, value: GroupMetadataValue) -> tuple[ClassicGroup, Stored]:
    return replace(group, recorded=value), Stored(GroupMetadataKey(group=group.id), value, VERSION)


def replay_group(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
    """The state after a group's record."""
    key, value = entry.key, entry.value
    assert isinstance(key, GroupMetadataKey)
    known = state.groups.get(key.group)
    if value is None:
        return state.without_group(key.group) if isinstance(known, ClassicGroup) else state
    assert isinstance(value, GroupMetadataValue)
    if isinstance(known, ClassicGroup) and known.recorded is value:
        return state
    return state.with_group(group_of(key.group, value))


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """A group as its record tells it."""
    members = {each.member_id: _member(each, value.protocol or "") for each in value.members}
    group = ClassicGroup(
        group_id,
        state=State.STABLE if members else State.EMPTY,
        state_since_ms=value.current_state_timestamp,
        type=value.protocol_type or None,
        protocol=value.protocol,
        generation=value.generation,
        leader=value.leader,
        members=members,
    )
    return replace(group, topics=group.subscribed_topics())


def _member(each: MemberMetadata, protocol: str) -> Member:
    return Member(
        id=each.member_id,
        instance_id=each.group_instance_id,
        client_id=each.client_id,
        client_host=each.client_host,
        rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
        session_timeout_ms=each.session_timeout,
        protocols=(Protocol(protocol, each.subscription),),
        assignment=each.assignment,
    )
