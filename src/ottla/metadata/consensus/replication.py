"""Replication of the metadata log: Fetch, and FetchSnapshot for followers that are too far behind.

A fetch offset acknowledges all records before it, so a voter fetches only when its log is durable. The leader answers
a fetch at once if it has records, a higher high watermark, a divergence or an error to report. Otherwise the fetch
waits for one of these, for at most its `max_wait_ms`.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.metadata.consensus import responses
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.metadata.consensus.control_records import read_valid_batches
from ottla.metadata.consensus.effects import Append, SnapshotChunk, Truncate
from ottla.metadata.consensus.elections import handle_common_response
from ottla.metadata.consensus.leader import Leader, WaitingFetch
from ottla.metadata.consensus.log_view import (
    BOOTSTRAP_SNAPSHOT,
    OffsetAndEpoch,
    OffsetValidity,
    truncation_offset,
    validate_offset,
)
from ottla.metadata.consensus.raft_state import ConsensusBroken, RaftState
from ottla.metadata.consensus.roles import Follower, SnapshotFetch
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
"""From this version on, a Fetch carries the follower's high watermark (KIP-1166)."""


def leadership_error(raft: RaftState, epoch: int) -> int:
    """Return the error code if this node does not lead the epoch, or leaves the quorum."""
    if epoch < raft.role.epoch:
        return FencedLeaderEpoch.code
    if epoch > raft.role.epoch:
        return UnknownLeaderEpoch.code
    if not isinstance(raft.role, Leader):
        return NotLeader.code
    return BrokerNotAvailable.code if raft.is_stopping else NONE


# -- the leader's side --


def on_fetch(
    raft: RaftState, ticket: Hashable, request: fetching.FetchRequest, version: int, listener: str, now_ms: int
) -> None:
    if request.cluster_id is not None and request.cluster_id != raft.config.cluster_id:
        raft.reply(ticket, fetching.FetchResponse(error_code=InconsistentClusterId.code))
        return
    if not _is_metadata(request, version):
        raft.reply(ticket, fetching.FetchResponse(error_code=InvalidRequest.code))
        return
    partition = request.topics[0].partitions[0]
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or not 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch
    ):
        start = raft.log.start_offset
        raft.reply(
            ticket,
            responses.fetch(
                raft.leader_and_epoch, version, listener, error=InvalidRequest.code, log_start_offset=start
            ),
        )
        return
    response, has_news = serve_fetch(raft, request, version, listener, now_ms)
    if has_news or request.max_wait_ms == 0:
        raft.reply(ticket, response)
        return
    leader = raft.role
    assert isinstance(leader, Leader)
    deadline = now_ms + request.max_wait_ms
    leader.waiting_fetches.append(WaitingFetch(ticket, request, version, listener, partition.fetch_offset, deadline))


def _is_metadata(request: fetching.FetchRequest, version: int) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    is_topic = topic.topic == METADATA_TOPIC if version < 13 else topic.topic_id == METADATA_TOPIC_ID
    return is_topic and topic.partitions[0].partition == METADATA_PARTITION


def serve_fetch(
    raft: RaftState, request: fetching.FetchRequest, version: int, listener: str, now_ms: int
) -> tuple[fetching.FetchResponse, bool]:
    """Return the current response, and whether it tells the follower anything new."""
    partition, start = request.topics[0].partitions[0], raft.log.start_offset
    error = leadership_error(raft, partition.current_leader_epoch)
    key = ReplicaKey(_replica_id(request, version), bytes(partition.replica_directory_id))
    if not error and key.id == raft.config.local.id:
        error = UnknownServerError.code  # two nodes with the same id, or a node that fetches from itself
    if error:
        return responses.fetch(raft.leader_and_epoch, version, listener, error=error, log_start_offset=start), True
    leader = raft.role
    assert isinstance(leader, Leader)
    validity = validate_offset(raft.log, partition.fetch_offset, partition.last_fetched_epoch)
    records = None
    if validity.kind is OffsetValidity.VALID:
        records = raft.log.read(partition.fetch_offset, request.max_bytes)
        if key.id >= 0 and leader.record_fetch(key, partition.fetch_offset, raft.log.end_offset, now_ms):
            on_high_watermark(raft, now_ms)
    high_watermark = leader.high_watermark
    response = responses.fetch(
        raft.leader_and_epoch,
        version,
        listener,
        records=b"" if records is None else records,
        validity=validity,
        high_watermark=high_watermark,
        log_start_offset=start,
    )
    behind = version >= KNOWS_HIGH_WATERMARK and partition.high_watermark < (
        -1 if high_watermark is None else high_watermark
    )
    return response, behind or validity.kind is not OffsetValidity.VALID or (records is not None and len(records) > 0)


def _replica_id(request: fetching.FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    return request.replica_state.replica_id if request.replica_state is not None else -1


def on_high_watermark(raft: RaftState, now_ms: int) -> None:
    """Act on a higher high watermark: complete a committed change of voters, and answer the waiting fetches."""
    leader = raft.role
    assert isinstance(leader, Leader)
    assert leader.high_watermark is not None
    raft.raise_high_watermark(leader.high_watermark)
    change = leader.change
    if change is not None and change.last_offset is not None and leader.high_watermark > change.last_offset:
        raft.finish_change(NONE)
    if not raft.is_voter and (raft.history.voters_offset or 0) < leader.high_watermark:
        leader.resign_requested = True  # its own removal is committed
    answer_waiting_fetches(raft, leader.waiting_fetches, now_ms)


def answer_waiting_fetches(raft: RaftState, waiting_fetches: list[WaitingFetch], now_ms: int) -> None:

    leader = raft.role
    assert isinstance(leader, Leader)
    due = list(waiting_fetches)
    leader.waiting_fetches = [fetch for fetch in leader.waiting_fetches if fetch not in due]
    for fetch in due:
        assert isinstance(fetch.request, fetching.FetchRequest)
        response, _ = serve_fetch(raft, fetch.request, fetch.version, fetch.listener, now_ms)
        raft.reply(fetch.ticket, response)


def on_fetch_snapshot(
    raft: RaftState, ticket: Hashable, request: snapshots.FetchSnapshotRequest, version: int, listener: str, now_ms: int
) -> None:
    if request.cluster_id is not None and request.cluster_id != raft.config.cluster_id:
        raft.reply(ticket, snapshots.FetchSnapshotResponse(error_code=InconsistentClusterId.code))
        return
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raft.reply(ticket, snapshots.FetchSnapshotResponse(error_code=InvalidRequest.code))
        return
    topic, partition = request.topics[0].name, request.topics[0].partitions[0]
    if topic != METADATA_TOPIC or partition.partition != METADATA_PARTITION:
        error = UnknownTopicOrPartition.code
        part = snapshots.ResponsePartitionSnapshot(index=partition.partition, error_code=error, unaligned_records=b"")
    else:
        part = _serve_snapshot(raft, request, partition, now_ms)
    raft.reply(ticket, responses.fetch_snapshot(raft.leader_and_epoch, version, listener, part, topic))


def _serve_snapshot(
    raft: RaftState, request: snapshots.FetchSnapshotRequest, partition: snapshots.PartitionSnapshot, now_ms: int
) -> snapshots.ResponsePartitionSnapshot:
    part = snapshots.ResponsePartitionSnapshot(index=METADATA_PARTITION, unaligned_records=b"")
    part.error_code = leadership_error(raft, partition.current_leader_epoch)
    if part.error_code:
        return part
    snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    size = raft.log.snapshot_bytes(snapshot)
    if size is None or snapshot == BOOTSTRAP_SNAPSHOT:
        part.error_code = SnapshotNotFound.code
        return part
    if not 0 <= partition.position < size:
        part.error_code = PositionOutOfRange.code
        return part
    leader = raft.role
    assert isinstance(leader, Leader)
    leader.record_contact(ReplicaKey(request.replica_id, bytes(partition.replica_directory_id)), now_ms)
    part.snapshot_id = snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    part.size, part.position = size, partition.position
    part.unaligned_records = raft.log.read_snapshot(snapshot, partition.position, request.max_bytes)
    return part


# -- the follower's side --


def on_fetch_response(raft: RaftState, node_id: int, response: fetching.FetchResponse, now_ms: int) -> bool:
    error, succeeded = handle_common_response(raft, response, now_ms)
    if succeeded is not None:
        return succeeded
    follower, part = raft.role, response.responses[0].partitions[0]
    if error != NONE or not isinstance(follower, Follower):
        return False
    if part.diverging_epoch is not None and part.diverging_epoch.epoch >= 0:
        _truncate(raft, OffsetAndEpoch(part.diverging_epoch.end_offset, part.diverging_epoch.epoch))
    elif part.snapshot_id is not None and (part.snapshot_id.epoch >= 0 or part.snapshot_id.end_offset >= 0):
        if part.snapshot_id.epoch < 0 or part.snapshot_id.end_offset < 0:
            return False
        follower.snapshot = SnapshotFetch(OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch))
    else:
        is_valid = _append(raft, follower, part)
        if part.high_watermark >= 0:
            raise_follower_high_watermark(raft, follower, part.high_watermark)
        if not is_valid:
            return False
    _heard_from_leader(raft, follower, now_ms)
    return True


def _truncate(raft: RaftState, diverging: OffsetAndEpoch) -> None:
    offset = truncation_offset(raft.log, diverging)
    if offset < raft.reported_high_watermark:
        raise ConsensusBroken(
            f"the leader would truncate to {offset}, below the high watermark {raft.reported_high_watermark}"
        )
    if offset < raft.log.end_offset:
        raft.out.writes.append(Truncate(offset))
        raft.flushed_offset = min(raft.flushed_offset, offset)
        # A flush in progress reports an offset beyond the new end, which `report_flushed` ignores. Without another
        # flush this member would never fetch again, because a voter fetches only when its log is durable.
        raft.out.flush = raft.out.flush or raft.flushed_offset < offset
        raft.history.truncate_to(offset)


def _append(raft: RaftState, follower: Follower, part: fetching.PartitionData) -> bool:
    """Append the fetched records. Return False if none of them is valid, so that the next fetch is delayed."""
    data = part.records
    if data is None or len(data) == 0:
        return True
    assert isinstance(data, bytes | bytearray | memoryview)
    end, last_epoch = raft.log.end_offset, raft.log.last_epoch
    fetched = read_valid_batches(data, end_offset=end, last_epoch=last_epoch, epoch=follower.epoch)
    if fetched.size_bytes == 0:
        return False
    raft.out.writes.append(Append(end, fetched.end_offset, memoryview(data)[: fetched.size_bytes]))
    raft.out.flush = True
    for offset, record in fetched.history:
        raft.history.add(offset, record)
    return True


def raise_follower_high_watermark(raft: RaftState, follower: Follower, leader_high_watermark: int) -> None:
    offset = min(leader_high_watermark, raft.write_end)
    if follower.high_watermark is None or offset > follower.high_watermark:
        follower.high_watermark = offset
        raft.raise_high_watermark(offset)


def _heard_from_leader(raft: RaftState, follower: Follower, now_ms: int) -> None:
    follower.fetch_deadline = now_ms + raft.config.fetch_timeout_ms
    follower.has_fetched, follower.is_leader_lost = True, False


def on_fetch_snapshot_response(
    raft: RaftState, node_id: int, response: snapshots.FetchSnapshotResponse, now_ms: int
) -> bool:
    error, succeeded = handle_common_response(raft, response, now_ms)
    if succeeded is not None:
        return succeeded
    follower, part = raft.role, response.topics[0].partitions[0]
    if not isinstance(follower, Follower) or follower.snapshot is None:
        return False
    if (
        error in (SnapshotNotFound.code, PositionOutOfRange.code)
        or min(part.snapshot_id.epoch, part.snapshot_id.end_offset) < 0
    ):
        follower.snapshot = None  # the leader deleted it; the next fetch names a newer one
        _heard_from_leader(raft, follower, now_ms)
        return True
    expected = follower.snapshot
    received = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    data = part.unaligned_records
    assert isinstance(data, bytes | bytearray | memoryview)
    if error != NONE or received != expected.snapshot or part.position != expected.position or len(data) == 0:
        return False
    expected.position += len(data)
    expected.installing = expected.position >= part.size
    raft.out.writes.append(SnapshotChunk(received, part.position, data, expected.installing))
    _heard_from_leader(raft, follower, now_ms)
    return True
