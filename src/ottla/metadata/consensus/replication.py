"""Replication: followers fetch, the leader answers; snapshots for those that are too far behind.

The offset that a follower fetches from tells the leader what it has, so a voter fetches only when its log is durable.
A leader answers a fetch at once if it has anything to say, else when it has, or when the follower's patience ends.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.metadata.consensus import replies
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.metadata.consensus.control import read_fetched
from ottla.metadata.consensus.core import ConsensusBroken, Core
from ottla.metadata.consensus.effects import Append, SnapshotChunk, Truncate
from ottla.metadata.consensus.elections import handled_commonly
from ottla.metadata.consensus.leading import Leader, Parked
from ottla.metadata.consensus.log_view import BOOTSTRAP_SNAPSHOT, Kind, OffsetAndEpoch, truncation_offset, validate
from ottla.metadata.consensus.states import Follower, SnapshotFetch
from ottla.metadata.consensus.voters import ReplicaKey
from ottla.protocol.errors import (
    NONE,
    BrokerNotAvailable,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    NotLeader,
    PositionOutOfRange,
    SnapshotNotFound,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.rpc import fetch as fetching
from ottla.protocol.messages.rpc import fetch_snapshot as snapshots

KNOWS_HIGH_WATERMARK = 18
"""The version of Fetch from which followers say which high watermark they know (KIP-1166)."""


def refuse_to_lead(core: Core, epoch: int) -> int:
    """Why this node does not answer for the leader of that epoch."""
    if epoch < core.state.epoch:
        return FencedLeaderEpoch.code
    if epoch > core.state.epoch:
        return UnknownLeaderEpoch.code
    if not isinstance(core.state, Leader):
        return NotLeader.code
    return BrokerNotAvailable.code if core.stopping else NONE


# -- the leader's side --


def on_fetch(
    core: Core, ticket: Hashable, request: fetching.FetchRequest, version: int, listener: str, now_ms: int
) -> None:
    if request.cluster_id is not None and request.cluster_id != core.config.cluster_id:
        core.reply(ticket, fetching.FetchResponse(error_code=InconsistentClusterId.code))
        return
    if not _is_metadata(request, version):
        core.reply(ticket, fetching.FetchResponse(error_code=InvalidRequest.code))
        return
    asked = request.topics[0].partitions[0]
    if (
        request.max_wait_ms < 0
        or asked.fetch_offset < 0
        or not 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
    ):
        start = core.log.start_offset
        core.reply(
            ticket, replies.fetch(core.known, version, listener, error=InvalidRequest.code, log_start_offset=start)
        )
        return
    answer, urgent = serve_fetch(core, request, version, listener, now_ms)
    if urgent or request.max_wait_ms == 0:
        core.reply(ticket, answer)
        return
    leader = core.state
    assert isinstance(leader, Leader)
    deadline = now_ms + request.max_wait_ms
    leader.parked.append(Parked(ticket, request, version, listener, asked.fetch_offset, deadline))


def _is_metadata(request: fetching.FetchRequest, version: int) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    named = topic.topic == METADATA_TOPIC if version < 13 else topic.topic_id == METADATA_TOPIC_ID
    return named and topic.partitions[0].partition == METADATA_PARTITION


def serve_fetch(
    core: Core, request: fetching.FetchRequest, version: int, listener: str, now_ms: int
) -> tuple[fetching.FetchResponse, bool]:
    """The answer as of now, and whether it says anything worth sending before the follower's patience ends."""
    asked, start = request.topics[0].partitions[0], core.log.start_offset
    error = refuse_to_lead(core, asked.current_leader_epoch)
    key = ReplicaKey(_replica_id(request, version), bytes(asked.replica_directory_id))
    if not error and key.id == core.config.local.id:
        error = UnknownServerError.code  # two nodes with one id, or a node that asks itself
    if error:
        return replies.fetch(core.known, version, listener, error=error, log_start_offset=start), True
    leader = core.state
    assert isinstance(leader, Leader)
    validity = validate(core.log, asked.fetch_offset, asked.last_fetched_epoch)
    records = None
    if validity.kind is Kind.VALID:
        records = core.log.read(asked.fetch_offset, request.max_bytes)
        if key.id >= 0 and leader.fetched(key, asked.fetch_offset, core.log.end_offset, now_ms):
            on_high_watermark(core, now_ms)
    high_watermark = leader.high_watermark
    answer = replies.fetch(
        core.known,
        version,
        listener,
        records=b"" if records is None else records,
        validity=validity,
        high_watermark=high_watermark,
        log_start_offset=start,
    )
    news = version >= KNOWS_HIGH_WATERMARK and asked.high_watermark < (-1 if high_watermark is None else high_watermark)
    return answer, news or validity.kind is not Kind.VALID or (records is not None and len(records) > 0)


def _replica_id(request: fetching.FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    return request.replica_state.replica_id if request.replica_state is not None else -1


def on_high_watermark(core: Core, now_ms: int) -> None:
    """The leader committed more: membership changes may be complete, and every waiting follower is told."""
    leader = core.state
    assert isinstance(leader, Leader)
    assert leader.high_watermark is not None
    core.raise_high_watermark(leader.high_watermark)
    change = leader.change
    if change is not None and change.last_offset is not None and leader.high_watermark > change.last_offset:
        core.finish_change(NONE)
    if not core.is_voter and (core.history.voters_offset or 0) < leader.high_watermark:
        leader.resign_requested = True  # removed, and that is committed
    wake_parked(core, leader.parked, now_ms)


def wake_parked(core: Core, parked: list[Parked], now_ms: int) -> None:
    """Answer these waiting fetches with what there is now."""
    leader = core.state
    assert isinstance(leader, Leader)
    woken = list(parked)
    leader.parked = [fetch for fetch in leader.parked if fetch not in woken]
    for fetch in woken:
        assert isinstance(fetch.request, fetching.FetchRequest)
        answer, _ = serve_fetch(core, fetch.request, fetch.version, fetch.listener, now_ms)
        core.reply(fetch.ticket, answer)


def on_fetch_snapshot(
    core: Core, ticket: Hashable, request: snapshots.FetchSnapshotRequest, version: int, listener: str, now_ms: int
) -> None:
    if request.cluster_id is not None and request.cluster_id != core.config.cluster_id:
        core.reply(ticket, snapshots.FetchSnapshotResponse(error_code=InconsistentClusterId.code))
        return
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        core.reply(ticket, snapshots.FetchSnapshotResponse(error_code=InvalidRequest.code))
        return
    topic, asked = request.topics[0].name, request.topics[0].partitions[0]
    if topic != METADATA_TOPIC or asked.partition != METADATA_PARTITION:
        error = UnknownTopicOrPartition.code
        part = snapshots.ResponsePartitionSnapshot(index=asked.partition, error_code=error, unaligned_records=b"")
    else:
        part = _serve_snapshot(core, request, asked, now_ms)
    core.reply(ticket, replies.fetch_snapshot(core.known, version, listener, part, topic))


def _serve_snapshot(
    core: Core, request: snapshots.FetchSnapshotRequest, asked: snapshots.PartitionSnapshot, now_ms: int
) -> snapshots.ResponsePartitionSnapshot:
    part = snapshots.ResponsePartitionSnapshot(index=METADATA_PARTITION, unaligned_records=b"")
    part.error_code = refuse_to_lead(core, asked.current_leader_epoch)
    if part.error_code:
        return part
    snapshot = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    size = core.log.snapshot_bytes(snapshot)
    if size is None or snapshot == BOOTSTRAP_SNAPSHOT:
        part.error_code = SnapshotNotFound.code
        return part
    if not 0 <= asked.position < size:
        part.error_code = PositionOutOfRange.code
        return part
    leader = core.state
    assert isinstance(leader, Leader)
    leader.heard_from(ReplicaKey(request.replica_id, bytes(asked.replica_directory_id)), now_ms)
    part.snapshot_id = snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    part.size, part.position = size, asked.position
    part.unaligned_records = core.log.read_snapshot(snapshot, asked.position, request.max_bytes)
    return part


# -- the follower's side --


def on_fetch_answer(core: Core, node_id: int, answer: fetching.FetchResponse, now_ms: int) -> bool:
    error, done = handled_commonly(core, answer, now_ms)
    if done is not None:
        return done
    follower, part = core.state, answer.responses[0].partitions[0]
    if error != NONE or not isinstance(follower, Follower):
        return False
    if part.diverging_epoch is not None and part.diverging_epoch.epoch >= 0:
        _truncate(core, OffsetAndEpoch(part.diverging_epoch.end_offset, part.diverging_epoch.epoch))
    elif part.snapshot_id is not None and (part.snapshot_id.epoch >= 0 or part.snapshot_id.end_offset >= 0):
        if part.snapshot_id.epoch < 0 or part.snapshot_id.end_offset < 0:
            return False
        follower.snapshot = SnapshotFetch(OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch))
    else:
        good = _append(core, follower, part)
        if part.high_watermark >= 0:
            raise_follower_high_watermark(core, follower, part.high_watermark)
        if not good:
            return False
    _heard_from_leader(core, follower, now_ms)
    return True


def _truncate(core: Core, diverging: OffsetAndEpoch) -> None:
    offset = truncation_offset(core.log, diverging)
    if offset < core.told_high_watermark:
        raise ConsensusBroken(f"leader has truncated to {offset}, below the high watermark {core.told_high_watermark}")
    if offset < core.log.end_offset:
        core.out.writes.append(Truncate(offset))
        core.flushed_offset = min(core.flushed_offset, offset)
        # A flush under way reaches beyond the new end and will not count; what is left must be durable all the same.
        core.out.flush = core.out.flush or core.flushed_offset < offset
        core.history.truncate_to(offset)


def _append(core: Core, follower: Follower, part: fetching.PartitionData) -> bool:
    """False when the records are of no use, so that they are asked for again only after a pause."""
    data = part.records
    if data is None or len(data) == 0:
        return True
    assert isinstance(data, bytes | bytearray | memoryview)
    end, last_epoch = core.log.end_offset, core.log.last_epoch
    fetched = read_fetched(data, end_offset=end, last_epoch=last_epoch, epoch=follower.epoch)
    if fetched.size_bytes == 0:
        return False
    core.out.writes.append(Append(end, fetched.end_offset, memoryview(data)[: fetched.size_bytes]))
    core.out.flush = True
    for offset, record in fetched.history:
        core.history.add(offset, record)
    return True


def raise_follower_high_watermark(core: Core, follower: Follower, leaders: int) -> None:
    offset = min(leaders, core.write_end)
    if follower.high_watermark is None or offset > follower.high_watermark:
        follower.high_watermark = offset
        core.raise_high_watermark(offset)


def _heard_from_leader(core: Core, follower: Follower, now_ms: int) -> None:
    follower.fetch_deadline = now_ms + core.config.fetch_timeout_ms
    follower.has_fetched, follower.is_leader_lost = True, False


def on_fetch_snapshot_answer(core: Core, node_id: int, answer: snapshots.FetchSnapshotResponse, now_ms: int) -> bool:
    error, done = handled_commonly(core, answer, now_ms)
    if done is not None:
        return done
    follower, part = core.state, answer.topics[0].partitions[0]
    if not isinstance(follower, Follower) or follower.snapshot is None:
        return False
    if (
        error in (SnapshotNotFound.code, PositionOutOfRange.code)
        or min(part.snapshot_id.epoch, part.snapshot_id.end_offset) < 0
    ):
        follower.snapshot = None  # deleted meanwhile; a fetch will name a newer one
        _heard_from_leader(core, follower, now_ms)
        return True
    expected = follower.snapshot
    got = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    data = part.unaligned_records
    assert isinstance(data, bytes | bytearray | memoryview)
    if error != NONE or got != expected.snapshot or part.position != expected.position or len(data) == 0:
        return False
    expected.position += len(data)
    expected.installing = expected.position >= part.size
    core.out.writes.append(SnapshotChunk(got, part.position, data, expected.installing))
    _heard_from_leader(core, follower, now_ms)
    return True
