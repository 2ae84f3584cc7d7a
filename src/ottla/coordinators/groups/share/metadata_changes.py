"""The effect of new metadata on share groups: the next heartbeat looks at the changed topics again.

The share coordinator deletes the states of deleted topics by itself.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ottla.coordinators.groups.epoch_group import REFRESH_DUE
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.records import partitions_record
from ottla.coordinators.groups.state import GroupsState
from ottla.metadata.image.changes import Changes
from ottla.storage.state_machine.entries import Stored


def mark_groups_for_refresh(state: GroupsState, changed: Set[str]) -> GroupsState:
    """Mark the groups that must look at their topics again; return the same state if there are none."""
    for group in state.groups.values():
        if not isinstance(group, ShareGroup) or group.refresh_deadline == REFRESH_DUE:
            continue
        if group.reads_any(changed):
            state = state.with_group(replace(group, refresh_deadline=REFRESH_DUE))
    return state


def deleted_topic_records(state: GroupsState, changes: Changes) -> list[Stored]:
    """Return the state records of the groups that had deleted topics, without these."""
    deleted = {topic.id for topic in changes.topics_deleted}
    if not deleted:
        return []
    records = []
    for group in state.groups.values():
        if isinstance(group, ShareGroup) and group.partitions is not None:
            remaining = group.partitions.without_topics(deleted)
            if remaining is not group.partitions:
                records.append(partitions_record(group.id, remaining, changes.new))
    return records
