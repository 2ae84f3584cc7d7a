"""Offsets that are no longer needed: those that expired, and those of topics that were deleted.

An offset expires when its group has been empty for as long as offsets are kept, or, in a group without members or with
members that read other topics, when it was committed that long ago (KIP-211). A group without offsets and members goes
with its last offset.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.offset_records import offset_tombstone
from ottla.coordinators.groups.state import NO_OFFSETS, NO_TIMESTAMP, Committed, Group, GroupsState, OffsetKey
from ottla.coordinators.groups.timers import OFFSET_EXPIRY, TimerKey
from ottla.metadata.image.values import Topic
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

_MS_PER_MINUTE: Final = 60_000


def next_expiry(context: Context) -> tuple[Hashable, int | None]:
    """The timer of the next look."""
    return OFFSET_EXPIRY, context.now_ms + context.settings("offsets.retention.check.interval.ms")


def expire_offsets(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Delete what has expired, and groups of which nothing is left."""
    retention_ms = context.settings("offsets.retention.minutes") * _MS_PER_MINUTE
    records: list[Stored] = []
    for group in state.groups.values():
        is_bare = True
        for where, committed in state.offsets.get(group.id, NO_OFFSETS).items():
            if _has_expired(state, group, where, committed, retention_ms, context.now_ms):
                records.append(offset_tombstone(group.id, where))
            else:
                is_bare = False
        if is_bare and group.is_empty and group.kind in _KINDS_THAT_GO and group.id not in state.open:
            records.extend(group.tombstones())
    return Decision(records, None, timers=(next_expiry(context),))


def forget_topics(state: GroupsState, topics: Sequence[Topic]) -> list[Stored]:
    """The records that delete the offsets of topics that were deleted."""
    if not topics:
        return []
    names = {topic.name for topic in topics}
    gone = {
        (group_id, where)
        for offsets in (state.offsets, *state.pending.values())
        for group_id, known in offsets.items()
        for where in known
        if where.topic in names
    }
    return [offset_tombstone(*each) for each in sorted(gone)]


_KINDS_THAT_GO: Final = ("classic", "consumer", "streams")


def _has_expired(
    state: GroupsState, group: Group, where: OffsetKey, committed: Committed, retention_ms: int, now_ms: int
) -> bool:
    since_ms = group.expires_since(committed)
    if since_ms is None or group.is_subscribed_to(where.topic) or state.has_pending(group.id, where):
        return False
    if committed.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp
    return now_ms - since_ms >= retention_ms
