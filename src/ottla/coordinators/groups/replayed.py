"""Replay of the records of consumer, share and streams groups, as far as it is the same for all three.

Each kind has one function for each of its records. It takes the group, the key and the value (None for a tombstone) and
returns the changed group, or None if the record deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from ottla.coordinators.groups.epoch_group import NO_ASSIGNMENT
from ottla.coordinators.groups.state import GroupsState
from ottla.storage.state_machine.entries import Stored

logger = logging.getLogger(__name__)

G = TypeVar("G", bound=Any)
Replay = Callable[[GroupsState, Stored, int], GroupsState]
"""Takes the state, a record and the time, and returns the state after the record."""


def replay_to(kind: type[G], change: Callable[[G, Any, Any], G | None]) -> Replay:
    """Return the replay function that applies a change to the group of a record.

    A tombstone may name a group that no longer exists: compaction keeps tombstones longer than the records they delete.
    """

    def replay(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
        group_id = entry.key.group_id
        find = _find_group if entry.value is None else _find_or_create_group
        group = find(state, group_id, kind)
        if group is None:
            return state
        changed = change(group, entry.key, entry.value)
        return state.without_group(group_id) if changed is None else state.with_group(changed)

    return replay


def change_target_epoch(group: G, key: Any, value: Any | None) -> G:
    """Apply the record of a target assignment's epoch and time."""
    if value is None:
        return replace(group, target_epoch=NO_ASSIGNMENT, target_timestamp=0)
    return replace(group, target_epoch=value.assignment_epoch, target_timestamp=value.assignment_timestamp)


def without_member(group: G, member_id: str) -> G:
    """Apply the tombstone of a member: the last of the three that delete it."""
    changed: G = group.without_member(member_id) if member_id in group.members else group
    return changed


def _find_group(state: GroupsState, group_id: str, kind: type[G]) -> G | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, kind) else None


def _find_or_create_group(state: GroupsState, group_id: str, kind: type[G]) -> G:
    """Return the group. It replaces a group that only keeps offsets, which has no records."""
    group = state.groups.get(group_id)
    if isinstance(group, kind):
        return group
    new_group: G = kind(group_id)
    if group is not None and not group.is_empty:
        logger.error(
            "group %s is a %s group with members, but a record of a %s group follows: replacing the group",
            group_id,
            group.kind,
            new_group.kind,
        )
    return new_group
