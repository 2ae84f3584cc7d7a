"""The decisions of the share coordinator: initialize, read, write, delete and summarize the state of a share partition.

Most changes are written as update records, and after a number of updates as a snapshot. Leaders with an older leader
epoch or an older state epoch, which rises with each initialization, are fenced.

The start offset that the coordinator stores lags behind the leader's by one write. The stored count of finished records
behind it corrects the lag that clients see.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.coordinators.share.batches import StateBatch, combine
from ottla.coordinators.share.context import Context
from ottla.coordinators.share.records import snapshot_record, tombstone, update_record
from ottla.coordinators.share.state import NO_COUNT, NO_EPOCH, NO_START, SharePartitionKey, ShareState, ShareStates
from ottla.protocol.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, UnknownTopicOrPartition
from ottla.protocol.messages.rpc import delete_share_group_state as deleting
from ottla.protocol.messages.rpc import initialize_share_group_state as initializing
from ottla.protocol.messages.rpc import read_share_group_state as reading
from ottla.protocol.messages.rpc import read_share_group_state_summary as summarizing
from ottla.protocol.messages.rpc import write_share_group_state as writing
from ottla.storage.state_machine.decision import Decision

_UNKNOWN: Final = "This server does not host this topic-partition."
_FENCED_LEADER: Final = "The leader epoch in the request is older than the epoch on the broker."
_FENCED_STATE: Final = "The share coordinator rejected the request because the share-group state epoch did not match."


def initialize(
    states: ShareStates, key: SharePartitionKey, data: initializing.PartitionData, context: Context
) -> Decision[initializing.PartitionResult]:
    """Initialize a state, or replace it by a new one."""
    _check_number(key)
    current = states.partitions.get(key)
    _check_state_epoch(current, data.state_epoch)
    _check_exists(key, context)
    state = ShareState(
        snapshot_epoch=0 if current is None else current.snapshot_epoch + 1,
        state_epoch=data.state_epoch,
        leader_epoch=0,
        start_offset=data.start_offset,
        complete_count=NO_COUNT if data.start_offset == NO_START else 0,
        batches=(),
        created_ms=context.now_ms,
        written_ms=context.now_ms,
    )
    return Decision([snapshot_record(key, state)], initializing.PartitionResult(partition=key.partition))


def read(
    states: ShareStates, key: SharePartitionKey, data: reading.PartitionData, context: Context
) -> Decision[reading.PartitionResult]:
    """Return a state to the partition's leader, and write the leader epoch if it is new."""
    _check_number(key)
    current = states.partitions.get(key)
    if current is None:
        raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
    _check_leader_epoch(current, data.leader_epoch)
    _check_exists(key, context)
    result = reading.PartitionResult(
        partition=key.partition,
        state_epoch=current.state_epoch,
        start_offset=current.start_offset,
        state_batches=[
            reading.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in current.batches
        ],
    )
    if data.leader_epoch in (NO_EPOCH, current.highest_leader_epoch):
        return Decision((), result)
    changed = current._replace(leader_epoch=data.leader_epoch, batches=())
    return Decision([_next_record(key, current, changed, context)], result)


def write(
    states: ShareStates, key: SharePartitionKey, data: writing.PartitionData, context: Context
) -> Decision[writing.PartitionResult]:
    """Apply the state batches of the partition's leader."""
    _check_number(key)
    current = states.partitions.get(key)
    if current is None:
        raise InvalidRequest("Write operation on uninitialized share partition not allowed.")
    _check_leader_epoch(current, data.leader_epoch)
    _check_state_epoch(current, data.state_epoch)
    _check_exists(key, context)
    changed = current._replace(
        start_offset=data.start_offset,
        complete_count=data.delivery_complete_count,
        batches=combine(_batches(data.state_batches), data.start_offset),
    )
    return Decision([_next_record(key, current, changed, context)], writing.PartitionResult(partition=key.partition))


def delete(
    states: ShareStates, key: SharePartitionKey, data: deleting.PartitionData, context: Context
) -> Decision[deleting.PartitionResult]:
    """Delete a state, if there is one."""
    _check_number(key)
    _check_exists(key, context)
    records = [tombstone(key)] if key in states.partitions else []
    return Decision(records, deleting.PartitionResult(partition=key.partition))


def summarize(
    states: ShareStates, key: SharePartitionKey, data: summarizing.PartitionData, context: Context
) -> Decision[summarizing.PartitionResult]:
    """Return where a share partition starts; -1 if it has no state."""
    _check_number(key)
    _check_exists(key, context)
    current = states.partitions.get(key)
    result = summarizing.PartitionResult(partition=key.partition, start_offset=NO_START)
    if current is not None:
        result.state_epoch = current.state_epoch
        result.leader_epoch = current.leader_epoch
        result.start_offset = current.start_offset
        result.delivery_complete_count = current.complete_count
    return Decision((), result)


def snapshot_cold(states: ShareStates, context: Context) -> list[Any]:
    """Return snapshots of share partitions that have not changed for long, so that the older log can be deleted."""
    partitions = states.partitions
    if all(state.created_ms != state.written_ms for state in partitions.values()):
        return []  # unchanged since their last cold snapshots
    return [
        snapshot_record(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=context.now_ms))
        for key, state in partitions.items()
        if context.now_ms - state.written_ms >= context.cold_ms
    ]


def forget_topics(states: ShareStates, topic_ids: Iterable[bytes]) -> list[Any]:
    """Return the tombstones of the share partitions of deleted topics."""
    deleted = set(topic_ids)
    return [tombstone(key) for key in sorted(states.partitions) if key.topic_id in deleted] if deleted else []


def _next_record(key: SharePartitionKey, current: ShareState, changed: ShareState, context: Context) -> Any:
    """Return an update record, or a snapshot after enough updates."""
    if current.updates < context.updates_per_snapshot:
        return update_record(key, changed)
    start = current.start_offset if changed.start_offset == NO_START else changed.start_offset
    return snapshot_record(
        key,
        changed._replace(
            snapshot_epoch=current.snapshot_epoch + 1,
            start_offset=start,
            batches=combine((*current.batches, *changed.batches), start),
            created_ms=context.now_ms,
            written_ms=context.now_ms,
        ),
    )


def _batches(batches: Iterable[Any]) -> list[StateBatch]:
    return [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    ]


def _check_number(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise InvalidRequest("The partition id cannot be a negative number.")


def _check_exists(key: SharePartitionKey, context: Context) -> None:
    topic = context.image.topic_by_id(key.topic_id)
    if topic is None or key.partition >= len(topic.partitions):
        raise UnknownTopicOrPartition(_UNKNOWN)


def _check_leader_epoch(current: ShareState, epoch: int) -> None:
    if epoch != NO_EPOCH and current.highest_leader_epoch > epoch:
        raise FencedLeaderEpoch(_FENCED_LEADER)


def _check_state_epoch(current: ShareState | None, epoch: int) -> None:
    if current is not None and epoch != NO_EPOCH and current.highest_state_epoch > epoch:
        raise FencedStateEpoch(_FENCED_STATE)
