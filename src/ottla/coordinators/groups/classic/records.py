"""Conversion of classic groups to records of `__consumer_offsets` and back.

A record holds the outcome of a generation. It does not hold parked requests, pending member ids and the protocols that
were not chosen: they are lost with the coordinator, and members join again if they need to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupMember, ClassicGroupState, ClassicProtocol
from ottla.coordinators.groups.state import GroupsState
from ottla.protocol.messages.records.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.storage.state_machine.entries import Stored

VERSION: Final = 3
"""The version that Kafka writes: the latest non-flexible one."""


def record_group(group: ClassicGroup) -> tuple[ClassicGroup, Stored]:
    """Return the group, which remembers its new record, and the record."""
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


def record_new_group(group: ClassicGroup) -> tuple[ClassicGroup, Stored]:
    """Return a new group, which has no generation yet, and its record."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_since_ms
    )
    return _with_record(group, value)


def _with_record(group: ClassicGroup, value: GroupMetadataValue) -> tuple[ClassicGroup, Stored]:
    return replace(group, last_record=value), Stored(GroupMetadataKey(group=group.id), value, VERSION)


def replay_group(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
    """Return the state after a group's record."""
    key, value = entry.key, entry.value
    assert isinstance(key, GroupMetadataKey)
    group = state.groups.get(key.group)
    if value is None:
        return state.without_group(key.group) if isinstance(group, ClassicGroup) else state
    assert isinstance(value, GroupMetadataValue)
    if isinstance(group, ClassicGroup) and group.last_record is value:
        return state
    return state.with_group(group_from_record(key.group, value))


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group that a record describes."""
    members = {member.member_id: _member_from_record(member, value.protocol or "") for member in value.members}
    group = ClassicGroup(
        group_id,
        state=ClassicGroupState.STABLE if members else ClassicGroupState.EMPTY,
        state_since_ms=value.current_state_timestamp,
        type=value.protocol_type or None,
        protocol=value.protocol,
        generation=value.generation,
        leader=value.leader,
        members=members,
    )
    return replace(group, topics=group.subscribed_topics())


def _member_from_record(record: MemberMetadata, protocol: str) -> ClassicGroupMember:
    return ClassicGroupMember(
        id=record.member_id,
        instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.session_timeout if record.rebalance_timeout == -1 else record.rebalance_timeout,
        session_timeout_ms=record.session_timeout,
        protocols=(ClassicProtocol(protocol, record.subscription),),
        assignment=record.assignment,
    )
