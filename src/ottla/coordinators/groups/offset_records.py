"""Committed offsets as records of `__consumer_offsets`: how they are written, and what they do to the state.

Offsets of a transaction wait until its marker comes. Whichever of two commits of a partition was written last counts,
also when the first was part of a transaction that ended later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from immutables import Map

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.state import NO_OFFSETS, NO_TIMESTAMP, Committed, GroupsState, OffsetKey, Offsets
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
"""The one version that can say when an offset expires: clients up to v4 of OffsetCommit may ask for it."""
_WITHOUT_TOPIC_ID: Final = 3
_WITH_TOPIC_ID: Final = 4


def offset_record(
    group_id: str,
    key: OffsetKey,
    committed: Committed,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> Stored:
    """The record of a commit, in the version that Kafka would choose."""
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
    """The record that deletes an offset, and those of open transactions for the same partition."""
    return Stored(OffsetCommitKey(group=group_id, topic=key.topic, partition=key.partition), None)


def replay_offset(state: GroupsState, entry: Stored, now_ms: int) -> GroupsState:
    """The state after a commit or a deletion."""
    key, value = entry.key, entry.value
    assert isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
    group_id, where = key.group, OffsetKey(key.topic, key.partition)
    if value is None:
        return _without_offset(state, group_id, where)
    if group_id not in state.groups:
        state = state.with_group(ClassicGroup(group_id, state_since_ms=now_ms))
    commits = state.commits + 1
    committed = _committed(value, commits)
    if entry.producer_id == NO_PRODUCER_ID:
        offsets = state.offsets.get(group_id, NO_OFFSETS).set(where, committed)
        return replace(state, offsets=state.offsets.set(group_id, offsets), commits=commits)
    by_group = state.pending.get(entry.producer_id, _NONE_BY_GROUP)
    by_group = by_group.set(group_id, by_group.get(group_id, NO_OFFSETS).set(where, committed))
    producers = state.open.get(group_id, frozenset()) | {entry.producer_id}
    return replace(
        state,
        pending=state.pending.set(entry.producer_id, by_group),
        open=state.open.set(group_id, producers),
        commits=commits,
    )


def replay_marker(state: GroupsState, marker: Marker) -> GroupsState:
    """The state after the end of a transaction."""
    by_group = state.pending.get(marker.producer_id)
    if by_group is None:
        return state
    all_offsets, all_open = state.offsets, state.open
    for group_id, pending in by_group.items():
        others = all_open.get(group_id, frozenset()) - {marker.producer_id}
        all_open = all_open.set(group_id, others) if others else _deleted(all_open, group_id)
        if marker.is_commit:
            offsets = all_offsets.get(group_id, NO_OFFSETS)
            for where, committed in pending.items():
                known = offsets.get(where)
                if known is None or committed.order > known.order:
                    offsets = offsets.set(where, committed)
            if offsets:
                all_offsets = all_offsets.set(group_id, offsets)
    return replace(state, offsets=all_offsets, open=all_open, pending=state.pending.delete(marker.producer_id))


_NONE_BY_GROUP: Final[Map[str, Offsets]] = Map()


def _committed(value: OffsetCommitValue | LegacyOffsetCommitValue, order: int) -> Committed:
    if isinstance(value, LegacyOffsetCommitValue):
        return Committed(value.offset, -1, value.metadata, value.commit_timestamp, order=order)
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        order,
    )


def _without_offset(state: GroupsState, group_id: str, where: OffsetKey) -> GroupsState:
    all_offsets, all_pending = state.offsets, state.pending
    offsets = all_offsets.get(group_id, NO_OFFSETS)
    if where in offsets:
        left = offsets.delete(where)
        all_offsets = all_offsets.set(group_id, left) if left else all_offsets.delete(group_id)
    for producer_id in state.open.get(group_id, ()):
        by_group = all_pending[producer_id]
        pending = by_group.get(group_id, NO_OFFSETS)
        if where in pending:
            all_pending = all_pending.set(producer_id, by_group.set(group_id, pending.delete(where)))
    return replace(state, offsets=all_offsets, pending=all_pending)


def _deleted(known: Map[str, frozenset[int]], group_id: str) -> Map[str, frozenset[int]]:
    return known.delete(group_id) if group_id in known else known
