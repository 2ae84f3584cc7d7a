"""What new metadata mean for streams groups: those whose topics changed look at them with their next heartbeat."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ottla.coordinators.groups.epoch_group import NEVER_REFRESHED
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup


def notice(state: GroupsState, changed: Set[str]) -> GroupsState:
    """The state in which groups know that they must look; the same one if none must."""
    if not changed:
        return state
    for group in state.groups.values():
        if (
            isinstance(group, StreamsGroup)
            and group.refresh != NEVER_REFRESHED
            and group.topology is not None
            and not changed.isdisjoint(group.topology.required_topics)
        ):
            state = state.with_group(replace(group, refresh=NEVER_REFRESHED))
    return state
