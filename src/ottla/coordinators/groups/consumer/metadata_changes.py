"""The effect of new metadata on consumer groups: the next heartbeat looks at the changed topics again."""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.epoch_group import REFRESH_DUE
from ottla.coordinators.groups.state import GroupsState
from ottla.metadata.image.changes import Changes


def mark_groups_for_refresh(state: GroupsState, changes: Changes) -> GroupsState:
    """Mark the groups that must look at their topics again; return the same state if there are none."""
    has_new_topics = bool(changes.topics_created)
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        marked = group
        if group.refresh_deadline != REFRESH_DUE and group.reads_any(changes.topics_with_new_assignments):
            marked = replace(marked, refresh_deadline=REFRESH_DUE)
        if has_new_topics and group.regex_counts:
            marked = replace(marked, new_topics_version=changes.new.offset)
        if marked is not group:
            state = state.with_group(marked)
    return state
