"""The group that a member of the consumer protocol speaks to: a known one, a new one, or a classic one that changes."""

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
    """A group, and what must be written and answered before it is what it is."""

    group: ConsumerGroup
    records: Sequence[Stored] = ()
    timers: Sequence[tuple[TimerKey, int | None]] = ()
    answers: Sequence[tuple[Ticket, Any]] = ()
    is_existing: bool = True
    """Whether what is not recorded can be kept with it: a group that replaces another one begins without."""


def get_or_create_group(state: GroupsState, group_id: str, context: Context, *, may_create: bool) -> GroupLookup:
    """The group of a member that stays, or that a member joins; raises GroupIdNotFound."""
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
