"""The records of `__share_group_state`: writing and replaying them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.coordinators.share.batches import StateBatch, combine
from ottla.coordinators.share.state import NO_EPOCH, NO_START, SharePartitionKey, ShareState, ShareStates
from ottla.protocol.messages.records.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.protocol.messages.records.share_state_records import StateBatch as BatchRecord
from ottla.storage.state_machine.entries import Stored

VERSION: Final = 0
_NO_TIME: Final = 0
_FIRST_EPOCH: Final = 0


def snapshot_record(key: SharePartitionKey, state: ShareState) -> Stored:
    """Return the snapshot record of a share partition."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_written(state.batches),
        delivery_complete_count=state.complete_count,
    )
    return Stored(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value, VERSION
    )


def update_record(key: SharePartitionKey, state: ShareState) -> Stored:
    """Return the update record with the changed fields of `state`."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        state_batches=_written(state.batches),
        delivery_complete_count=state.complete_count,
    )
    return Stored(ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value, VERSION)


def tombstone(key: SharePartitionKey) -> Stored:
    return Stored(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None)


def replay(states: ShareStates, entry: Stored, offset: int, updates_per_snapshot: int) -> ShareStates:
    """Return the state after a record at an offset."""
    key = SharePartitionKey(entry.key.group_id, entry.key.topic_id, entry.key.partition)
    current = states.partitions.get(key)
    if entry.value is None:
        return states if current is None else ShareStates(states.partitions.delete(key))
    if isinstance(entry.key, ShareSnapshotKey):
        after = _after_snapshot(current, entry.value, offset, updates_per_snapshot)
    else:
        after = _after_update(current, entry.value, offset)
    return ShareStates(states.partitions.set(key, after))


def _after_snapshot(current: ShareState | None, value: ShareSnapshotValue, offset: int, limit: int) -> ShareState:
    updates = 0 if current is None or current.updates >= limit else current.updates
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        complete_count=value.delivery_complete_count,
        batches=_read(value.state_batches),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        updates=updates,
        highest_leader_epoch=max(value.leader_epoch, NO_EPOCH if current is None else current.highest_leader_epoch),
        highest_state_epoch=max(value.state_epoch, NO_EPOCH if current is None else current.highest_state_epoch),
        snapshot_offset=offset,
    )


def _after_update(current: ShareState | None, value: ShareUpdateValue, offset: int) -> ShareState:
    batches = _read(value.state_batches)
    if current is None:  # its snapshot was deleted: start from this update
        return ShareState(
            value.snapshot_epoch, _FIRST_EPOCH, value.leader_epoch, value.start_offset, value.delivery_complete_count,
            batches, _NO_TIME, _NO_TIME, updates=1, highest_leader_epoch=value.leader_epoch, snapshot_offset=offset,
        )  # fmt: skip
    start = current.start_offset if value.start_offset == NO_START else value.start_offset
    return current._replace(
        start_offset=start,
        complete_count=value.delivery_complete_count,
        leader_epoch=current.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
        batches=combine((*current.batches, *batches), start),
        updates=current.updates + 1,
        highest_leader_epoch=max(current.highest_leader_epoch, value.leader_epoch),
    )


def _written(batches: Iterable[StateBatch]) -> list[BatchRecord]:
    return [
        BatchRecord(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _read(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )
