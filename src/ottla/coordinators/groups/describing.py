"""ListGroups, DescribeGroups and DeleteGroups, for the groups of one partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.offset_records import offset_tombstone
from ottla.coordinators.groups.state import NO_OFFSETS, GroupsState
from ottla.protocol.errors import GroupIdNotFound
from ottla.protocol.messages.rpc.delete_groups import DeletableGroupResult
from ottla.protocol.messages.rpc.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.rpc.list_groups import ListedGroup, ListGroupsRequest
from ottla.storage.state_machine.decision import Decision

DEAD: Final = "Dead"
"""The state of a group that does not exist."""
_FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 6


def list_groups(state: GroupsState, request: ListGroupsRequest) -> Iterator[ListedGroup]:
    """Yield the groups that pass the state and type filters of a request; an empty filter passes all."""
    states = {name.lower() for name in request.states_filter}
    kinds = {name.lower() for name in request.types_filter}
    for group in state.groups.values():
        if states and group.state_name.lower() not in states:
            continue
        if kinds and group.kind not in kinds:
            continue
        yield ListedGroup(
            group_id=group.id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.kind,
        )


def describe_group(state: GroupsState, group_id: str, version: int) -> DescribedGroup:
    """Describe a classic group and its members."""
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return _dead_group(group_id, version, "not found" if group is None else "is not a classic group")
    protocol = group.protocol if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def _dead_group(group_id: str, version: int, reason: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=DEAD)
    if version >= _FIRST_WITH_GROUP_ID_NOT_FOUND:
        described.error_code = GroupIdNotFound.code
        described.error_message = f"Group {group_id} {reason}."
    return described


def delete_group(state: GroupsState, group_id: str) -> Decision[DeletableGroupResult]:
    """Delete a group without members and its offsets, including those of open transactions."""
    group = state.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    group.check_delete()
    keys = set(state.offsets.get(group_id, NO_OFFSETS))
    for producer_id in state.open_producers.get(group_id, ()):
        keys.update(state.pending_offsets[producer_id].get(group_id, NO_OFFSETS))
    records = [offset_tombstone(group_id, key) for key in sorted(keys)]
    return Decision([*records, *group.tombstones()], DeletableGroupResult(group_id=group_id))
