"""What the share coordinator decides: to begin, read, change and forget the state of one share partition.

Most changes are written as what changed; after so many of them all of it is written anew, as a snapshot. A leader of an
earlier epoch may not read or write any more, nor one that knows an earlier life of the share partition (state epoch).
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
    states: ShareStates, key: SharePartitionKey, asked: initializing.PartitionData, context: Context
) -> Decision[initializing.PartitionResult]:
    """Begin a state, or begin it anew."""
    _check_number(key)
    known = states.partitions.get(key)
    _check_state_epoch(known, asked.state_epoch)
    _check_exists(key, context)
    state = ShareState(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=asked.state_epoch,
        leader_epoch=0,
        start_offset=asked.start_offset,
        complete_count=NO_COUNT if asked.start_offset == NO_START else 0,
        batches=(),
        created_ms=context.now_ms,
        written_ms=context.now_ms,
    )
    return Decision([snapshot_record(key, state)], initializing.PartitionResult(partition=key.partition))


def read(
    states: ShareStates, key: SharePartitionKey, asked: reading.PartitionData, context: Context
) -> Decision[reading.PartitionResult]:
    """Tell all of a state to the leader of a partition; its epoch is written down if it is a new one."""
    _check_number(key)
    known = states.partitions.get(key)
    if known is None:
        raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
    _check_leader_epoch(known, asked.leader_epoch)
    _check_exists(key, context)
    result = reading.PartitionResult(
        partition=key.partition,
        state_epoch=known.state_epoch,
        start_offset=known.start_offset,
        state_batches=[
            reading.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in known.batches
        ],
    )
    if asked.leader_epoch in (NO_EPOCH, known.highest_leader_epoch):
        return Decision((), result)
    changed = known._replace(leader_epoch=asked.leader_epoch, batches=())
    return Decision([_next_record(key, known, changed, context)], result)


def write(
    states: ShareStates, key: SharePartitionKey, asked: writing.PartitionData, context: Context
) -> Decision[writing.PartitionResult]:
    """Take in what a partition's leader says of its records."""
    _check_number(key)
    known = states.partitions.get(key)
    if known is None:
        raise InvalidRequest("Write operation on uninitialized share partition not allowed.")
    _check_leader_epoch(known, asked.leader_epoch)
    _check_state_epoch(known, asked.state_epoch)
    _check_exists(key, context)
    changed = known._replace(
        start_offset=asked.start_offset,
        complete_count=asked.delivery_complete_count,
        batches=combine(_batches(asked.state_batches), asked.start_offset),
    )
    return Decision([_next_record(key, known, changed, context)], writing.PartitionResult(partition=key.partition))


def delete(
    states: ShareStates, key: SharePartitionKey, asked: deleting.PartitionData, context: Context
) -> Decision[deleting.PartitionResult]:
    """Forget a state; there need not be one."""
    _check_number(key)
    _check_exists(key, context)
    records = [tombstone(key)] if key in states.partitions else []
    return Decision(records, deleting.PartitionResult(partition=key.partition))


def summarize(
    states: ShareStates, key: SharePartitionKey, asked: summarizing.PartitionData, context: Context
) -> Decision[summarizing.PartitionResult]:
    """Tell where a share partition starts; -1 if it has no state."""
    _check_number(key)
    _check_exists(key, context)
    known = states.partitions.get(key)
    result = summarizing.PartitionResult(partition=key.partition, start_offset=NO_START)
    if known is not None:
        result.state_epoch = known.state_epoch
        result.leader_epoch = known.leader_epoch
        result.start_offset = known.start_offset
        result.delivery_complete_count = known.complete_count
    return Decision((), result)


def snapshot_cold(states: ShareStates, context: Context) -> list[Any]:
    """Snapshots of share partitions that had none for long, so that the log before them can go."""
    partitions = states.partitions
    if all(state.created_ms != state.written_ms for state in partitions.values()):
        return []  # all that have not changed since are snapshots of this kind already
    return [
        snapshot_record(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=context.now_ms))
        for key, state in partitions.items()
        if context.now_ms - state.written_ms >= context.cold_ms
    ]


def forget_topics(states: ShareStates, topic_ids: Iterable[bytes]) -> list[Any]:
    """Tombstones for the share partitions of topics that were deleted."""
    gone = set(topic_ids)
    return [tombstone(key) for key in sorted(states.partitions) if key.topic_id in gone] if gone else []


def _next_record(key: SharePartitionKey, known: ShareState, changed: ShareState, context: Context) -> Any:
    """What changed, or all of it if it has changed often enough since the last snapshot."""
    if known.updates < context.updates_per_snapshot:
        return update_record(key, changed)
    start = known.start_offset if changed.start_offset == NO_START else changed.start_offset
    return snapshot_record(
        key,
        changed._replace(
            snapshot_epoch=known.snapshot_epoch + 1,
            start_offset=start,
            batches=combine((*known.batches, *changed.batches), start),
            created_ms=context.now_ms,
            written_ms=context.now_ms,
        ),
    )


def _batches(batches: Iterable[Any]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]


def _check_number(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise InvalidRequest("The partition id cannot be a negative number.")


def _check_exists(key: SharePartitionKey, context: Context) -> None:
    topic = context.image.topic_by_id(key.topic_id)
    if topic is None or key.partition >= len(topic.partitions):
        raise UnknownTopicOrPartition(_UNKNOWN)


def _check_leader_epoch(known: ShareState, epoch: int) -> None:
    if epoch != NO_EPOCH and known.highest_leader_epoch > epoch:
        raise FencedLeaderEpoch(_FENCED_LEADER)


def _check_state_epoch(known: ShareState | None, epoch: int) -> None:
    if known is not None and epoch != NO_EPOCH and known.highest_state_epoch > epoch:
        raise FencedStateEpoch(_FENCED_STATE)
