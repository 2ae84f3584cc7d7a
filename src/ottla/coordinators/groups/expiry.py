"""Deletion of committed offsets: of expired ones, and of those of deleted topics.

The retention of an offset counts from the time when the group became empty or, if no member is subscribed to the topic,
from the commit (KIP-211). An empty group is deleted with its last offset.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.offset_records import offset_tombstone
from ottla.coordinators.groups.state import NO_OFFSETS, NO_TIMESTAMP, CommittedOffset, Group, GroupsState, OffsetKey
from ottla.coordinators.groups.timers import OFFSET_EXPIRY, TimerKey
from ottla.metadata.image.values import Topic
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

_MS_PER_MINUTE: Final = 60_000


def next_expiry(context: Context) -> tuple[Hashable, int | None]:
    """Return the timer of the next expiry check."""
    return OFFSET_EXPIRY, context.now_ms + context.settings("offsets.retention.check.interval.ms")


def expire_offsets(state: GroupsState, key: TimerKey, context: Context) -> Decision[None]:
    """Delete expired offsets, and empty groups without offsets."""
    retention_ms = context.settings("offsets.retention.minutes") * _MS_PER_MINUTE
    records: list[Stored] = []
    for group in state.groups.values():
        has_no_offsets = True
        for offset_key, committed in state.offsets.get(group.id, NO_OFFSETS).items():
            if _has_expired(state, group, offset_key, committed, retention_ms, context.now_ms):
                records.append(offset_tombstone(group.id, offset_key))
            else:
                has_no_offsets = False
        if (
            has_no_offsets
            and group.is_empty
            and group.kind in _KINDS_DELETED_WHEN_EMPTY
            and group.id not in state.open_producers
        ):
            records.extend(group.tombstones())
    return Decision(records, None, timers=(next_expiry(context),))


def deleted_topic_tombstones(state: GroupsState, topics: Sequence[Topic]) -> list[Stored]:
    """Return the records that delete the offsets of deleted topics."""
    if not topics:
        return []
    names = {topic.name for topic in topics}
    deleted = {
        (group_id, offset_key)
        for offsets_by_group in (state.offsets, *state.pending_offsets.values())
        for group_id, offsets in offsets_by_group.items()
        for offset_key in offsets
        if offset_key.topic in names
    }
    return [offset_tombstone(group_id, offset_key) for group_id, offset_key in sorted(deleted)]


_KINDS_DELETED_WHEN_EMPTY: Final = ("classic", "consumer", "streams")


def _has_expired(
    state: GroupsState, group: Group, offset_key: OffsetKey, committed: CommittedOffset, retention_ms: int, now_ms: int
) -> bool:
    since_ms = group.retention_start_ms(committed)
    if since_ms is None or group.is_subscribed_to(offset_key.topic) or state.has_pending(group.id, offset_key):
        return False
    if committed.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp
    return now_ms - since_ms >= retention_ms
