"""What new metadata mean for share groups: readers of a topic that changed look at it with their next heartbeat.

Topics that are gone have no states any more: the share coordinator sees that by itself.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ottla.coordinators.groups.epoch_group import NEVER_REFRESHED
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.records import partitions_record
from ottla.coordinators.groups.state import GroupsState
from ottla.metadata.image.changes import Changes
from ottla.storage.state_machine.entries import Stored


def notice(state: GroupsState, changed: Set[str]) -> GroupsState:
    """The state in which groups know that they must look; the same one if none must."""
    for group in state.groups.values():
        if not isinstance(group, ShareGroup) or group.refresh == NEVER_REFRESHED:
            continue
        if group.reads_any(changed):
            state = state.with_group(replace(group, refresh=NEVER_REFRESHED))
    return state


def forget_topics(state: GroupsState, changes: Changes) -> list[Stored]:
    """The records of what groups know without the topics that were deleted."""
    gone = {topic.id for topic in changes.topics_deleted}
    if not gone:
        return []
    records = []
    for group in state.groups.values():
        if isinstance(group, ShareGroup) and group.partitions is not None:
            left = group.partitions.without_topics(gone)
            if left is not group.partitions:
                records.append(partitions_record(group.id, left, changes.new))
    return records
