"""What new metadata mean for consumer groups: readers of a topic that changed look at it with their next heartbeat."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.epoch_group import NEVER_REFRESHED
from ottla.coordinators.groups.state import GroupsState
from ottla.metadata.image.changes import Changes


def notice(state: GroupsState, changes: Changes, changed: Set[str]) -> GroupsState:
    """The state in which groups know that they must look; the same one if none must."""
    if not changed:
        return state
    has_new = bool(changes.topics_created)
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        noticed = group
        if group.refresh != NEVER_REFRESHED and group.reads_any(changed):
            noticed = replace(noticed, refresh=NEVER_REFRESHED)
        if has_new and group.regexes:
            noticed = replace(noticed, new_topics_version=changes.new.offset)
        if noticed is not group:
            state = state.with_group(noticed)
    return state
