"""The group that a record is about, of whichever of the newer kinds."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

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
