"""Lookup of the group that a consumer member addresses: existing, new, or converted from a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.upgrading import upgrade_group
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.timers import TimerKey
from ottla.protocol.errors import GroupIdNotFound
from ottla.storage.state_machine.decision import Ticket
from ottla.storage.state_machine.entries import Stored


class GroupLookup(NamedTuple):
    """A group, with the records, timers and responses of its creation or conversion."""

    group: ConsumerGroup
    records: Sequence[Stored] = ()
    timers: Sequence[tuple[TimerKey, int | None]] = ()
    answers: Sequence[tuple[Ticket, Any]] = ()
    is_existing: bool = True
    """False if the group replaces another one: its unrecorded fields cannot be kept before its records are replayed."""


def get_or_create_group(state: GroupsState, group_id: str, context: Context, *, may_create: bool) -> GroupLookup:
    """Return the group; raise GroupIdNotFound if it does not exist and may not be created."""
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return GroupLookup(group)
    if group is None:
        if not may_create:
            raise GroupIdNotFound(f"Consumer group {group_id} not found.")
        return GroupLookup(ConsumerGroup(group_id))
    if may_create and isinstance(group, ClassicGroup):
        if group.is_empty:
            return GroupLookup(ConsumerGroup(group_id), group.tombstones(), is_existing=False)
        upgrade = upgrade_group(group, context)
        return GroupLookup(upgrade.group, upgrade.records, upgrade.timers, upgrade.answers, is_existing=False)
    raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
