"""What records of the newer kinds of groups do to the state, as far as it is the same for all kinds.

A kind says what a record does to its group: a change takes the group, key and value (None deletes), and gives the group
after it, or None where that is gone.
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
"""Takes the state, the record and the time."""


def replay_to(kind: type[G], change: Callable[[G, Any, Any], G | None]) -> Replay:
    """Let a change happen to the group that a record is about. A deletion may name one that is not there any more:
    compaction keeps deletions longer than what they delete."""

    def replay(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
        group_id = entry.key.group_id
        find = _known if entry.value is None else _new_or_known
        group = find(state, group_id, kind)
        if group is None:
            return state
        changed = change(group, entry.key, entry.value)
        return state.without_group(group_id) if changed is None else state.with_group(changed)

    return replay


def change_target_epoch(group: G, key: Any, value: Any | None) -> G:
    """For which epoch a target was made, and when."""
    if value is None:
        return replace(group, target_epoch=NO_ASSIGNMENT, target_timestamp=0)
    return replace(group, target_epoch=value.assignment_epoch, target_timestamp=value.assignment_timestamp)


def without_member(group: G, member_id: str) -> G:
    """The group after the deletion of a member, which is the last of three."""
    left: G = group.without_member(member_id) if member_id in group.members else group
    return left


def _known(state: GroupsState, group_id: str, kind: type[G]) -> G | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, kind) else None


def _new_or_known(state: GroupsState, group_id: str, kind: type[G]) -> G:
    """A group that only kept offsets until now has no records, and gives way."""
    group = state.groups.get(group_id)
    if isinstance(group, kind):
        return group
    made: G = kind(group_id)
    if group is not None and not group.is_empty:
        logger.error("%s was a %s group, and has records of a %s group", group_id, group.kind, made.kind)
    return made
