"""The group that a record is about, of whichever of the newer kinds; and records that all of them have."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, TypeVar

from ottla.groups.epoch_group import NO_ASSIGNMENT
from ottla.groups.state import GroupsState

logger = logging.getLogger(__name__)

G = TypeVar("G", bound=Any)


def known_group(state: GroupsState, group_id: str, kind: type[G]) -> G | None:
    """A group of a kind that a deletion is about."""
    group = state.groups.get(group_id)
    return group if isinstance(group, kind) else None


def new_or_known(state: GroupsState, group_id: str, kind: type[G]) -> G:
    """The group that a record is about. A group that only kept offsets until now has no records, and gives way."""
    group = state.groups.get(group_id)
    if isinstance(group, kind):
        return group
    made: G = kind(group_id)
    if group is not None and not group.is_empty:
        logger.error("%s was a %s group, and has records of a %s group", group_id, group.kind, made.kind)
    return made


def with_target_epoch(state: GroupsState, group_id: str, value: Any | None, kind: type[Any]) -> GroupsState:
    """For which epoch a target was made, and when."""
    if value is None:
        group = known_group(state, group_id, kind)
        if group is None:
            return state
        return state.with_group(replace(group, target_epoch=NO_ASSIGNMENT, target_timestamp=0))
    group = new_or_known(state, group_id, kind)
    return state.with_group(
        replace(group, target_epoch=value.assignment_epoch, target_timestamp=value.assignment_timestamp)
    )


def without_target(state: GroupsState, group_id: str, member_id: str, kind: type[Any]) -> GroupsState:
    group = known_group(state, group_id, kind)
    return state if group is None else state.with_group(group.without_target(member_id))


def without_member(state: GroupsState, group_id: str, member_id: str, kind: type[Any]) -> GroupsState:
    group = known_group(state, group_id, kind)
    if group is None or member_id not in group.members:
        return state
    return state.with_group(group.without_member(member_id))
