"""The effect of new metadata on streams groups: the next heartbeat looks at the changed topics again."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ottla.coordinators.groups.epoch_group import REFRESH_DUE
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup


def mark_groups_for_refresh(state: GroupsState, changed: Set[str]) -> GroupsState:
    """Mark the groups that must look at their topics again; return the same state if there are none."""
    for group in state.groups.values():
        if (
            isinstance(group, StreamsGroup)
            and group.refresh_deadline != REFRESH_DUE
            and group.topology is not None
            and not changed.isdisjoint(group.topology.required_topics)
        ):
            state = state.with_group(replace(group, refresh_deadline=REFRESH_DUE))
    return state
