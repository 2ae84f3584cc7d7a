"""Committed offsets as records of `__consumer_offsets`: writing and replaying them.

Offsets of a transaction stay pending until its marker is replayed. Of two commits of an offset the one written last
counts, even if the first was part of a transaction that ended later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from immutables import Map

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.state import NO_OFFSETS, NO_TIMESTAMP, CommittedOffset, GroupsState, OffsetKey, Offsets
from ottla.protocol.messages.records.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.wire.types import ZERO_UUID
from ottla.storage.state_machine.entries import Marker, Stored

_WITH_EXPIRY: Final = 1
"""The only version with an expiry time, which clients may set up to v4 of OffsetCommit."""
_WITHOUT_TOPIC_ID: Final = 3
_WITH_TOPIC_ID: Final = 4


def offset_record(
    group_id: str,
    key: OffsetKey,
    committed: CommittedOffset,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> Stored:
    """Return the record of a commit, in the version that Kafka chooses."""
    if committed.expire_timestamp != NO_TIMESTAMP:
        version = _WITH_EXPIRY
    else:
        version = _WITHOUT_TOPIC_ID if committed.topic_id == ZERO_UUID else _WITH_TOPIC_ID
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    return Stored(
        OffsetCommitKey(group=group_id, topic=key.topic, partition=key.partition),
        value,
        version,
        producer_id,
        producer_epoch,
    )


def offset_tombstone(group_id: str, key: OffsetKey) -> Stored:
    """Return the record that deletes an offset, and the pending offsets of the same partition."""
    return Stored(OffsetCommitKey(group=group_id, topic=key.topic, partition=key.partition), None)


def replay_offset(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
    """Return the state after a commit or a deletion."""
    key, value = entry.key, entry.value
    assert isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
    group_id, offset_key = key.group, OffsetKey(key.topic, key.partition)
    if value is None:
        return _without_offset(state, group_id, offset_key)
    if group_id not in state.groups:
        state = state.with_group(ClassicGroup(group_id, state_since_ms=now_ms))
    commit_count = state.commit_count + 1
    committed = _committed_offset(value, commit_count)
    if entry.producer_id == NO_PRODUCER_ID:
        offsets = state.offsets.get(group_id, NO_OFFSETS).set(offset_key, committed)
        return replace(state, offsets=state.offsets.set(group_id, offsets), commit_count=commit_count)
    by_group = state.pending_offsets.get(entry.producer_id, _NO_PENDING_OFFSETS)
    by_group = by_group.set(group_id, by_group.get(group_id, NO_OFFSETS).set(offset_key, committed))
    producers = state.open_producers.get(group_id, frozenset()) | {entry.producer_id}
    return replace(
        state,
        pending_offsets=state.pending_offsets.set(entry.producer_id, by_group),
        open_producers=state.open_producers.set(group_id, producers),
        commit_count=commit_count,
    )


def replay_marker(state: GroupsState, marker: Marker) -> GroupsState:
    """Return the state after the end of a transaction."""
    by_group = state.pending_offsets.get(marker.producer_id)
    if by_group is None:
        return state
    all_offsets, all_open = state.offsets, state.open_producers
    for group_id, pending_offsets in by_group.items():
        others = all_open.get(group_id, frozenset()) - {marker.producer_id}
        all_open = all_open.set(group_id, others) if others else _without_group(all_open, group_id)
        if marker.is_commit:
            offsets = all_offsets.get(group_id, NO_OFFSETS)
            for offset_key, committed in pending_offsets.items():
                current = offsets.get(offset_key)
                if current is None or committed.order > current.order:
                    offsets = offsets.set(offset_key, committed)
            if offsets:
                all_offsets = all_offsets.set(group_id, offsets)
    return replace(
        state,
        offsets=all_offsets,
        open_producers=all_open,
        pending_offsets=state.pending_offsets.delete(marker.producer_id),
    )


_NO_PENDING_OFFSETS: Final[Map[str, Offsets]] = Map()


def _committed_offset(value: OffsetCommitValue | LegacyOffsetCommitValue, order: int) -> CommittedOffset:
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp, order=order)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        order,
    )


def _without_offset(state: GroupsState, group_id: str, offset_key: OffsetKey) -> GroupsState:
    all_offsets, all_pending = state.offsets, state.pending_offsets
    offsets = all_offsets.get(group_id, NO_OFFSETS)
    if offset_key in offsets:
        remaining = offsets.delete(offset_key)
        all_offsets = all_offsets.set(group_id, remaining) if remaining else all_offsets.delete(group_id)
    for producer_id in state.open_producers.get(group_id, ()):
        by_group = all_pending[producer_id]
        pending_offsets = by_group.get(group_id, NO_OFFSETS)
        if offset_key in pending_offsets:
            all_pending = all_pending.set(producer_id, by_group.set(group_id, pending_offsets.delete(offset_key)))
    return replace(state, offsets=all_offsets, pending_offsets=all_pending)


def _without_group(open_producers: Map[str, frozenset[int]], group_id: str) -> Map[str, frozenset[int]]:
    return open_producers.delete(group_id) if group_id in open_producers else open_producers
