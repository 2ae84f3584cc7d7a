"""Voter changes (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the upgrade to kraft.version 1.

There is one change at a time, and each is committed before the next one starts: majorities of neighbouring voter sets
then overlap. A leader first commits a record of its own epoch, so that no change of an earlier leader can reappear. A
voter set is in force from its record on, committed or not. So a removed leader commits its own removal, then resigns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ottla.metadata.consensus import requests, responses
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC
from ottla.metadata.consensus.leader import Leader, Progress, VoterChange
from ottla.metadata.consensus.raft_state import RaftState
from ottla.metadata.consensus.replication import leadership_error
from ottla.metadata.consensus.roles import Follower
from ottla.metadata.consensus.voters import (
    KRAFT_VERSION_FEATURE,
    RECONFIGURABLE,
    Endpoint,
    Endpoints,
    Node,
    ReplicaKey,
    Voter,
    find_endpoint,
)
from ottla.protocol.errors import (
    NONE,
    ApiError,
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    InvalidUpdateVersion,
    NotLeader,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
    by_code,
)
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord
from ottla.protocol.messages.rpc import add_raft_voter as adding
from ottla.protocol.messages.rpc import describe_quorum as describing
from ottla.protocol.messages.rpc import remove_raft_voter as removing
from ottla.protocol.messages.rpc import update_raft_voter as updating
from ottla.protocol.messages.rpc.api_versions import ApiVersionsResponse


def on_add_voter(raft: RaftState, ticket: Hashable, request: adding.AddRaftVoterRequest, now_ms: int) -> None:
    try:
        leader = _require_leader(raft, request.cluster_id, raft.role.epoch)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        endpoints = _endpoints(request.listeners)
        endpoint = find_endpoint(endpoints, raft.config.listener)
        if key.id < 0 or not any(key.directory):
            raise InvalidRequest("the voter to add has no valid id or directory")
        if endpoint is None:
            raise InvalidRequest(f"the voter to add has no endpoint for the listener {raft.config.listener}")
        _check_change_allowed(raft, leader, now_ms)
        if key.id in raft.voters.by_id:
            raise DuplicateVoter(f"node {key.id} is already a voter; the voters are {sorted(raft.voters.by_id)}")
        if raft.in_flight.ready_at(key.id, now_ms) > now_ms:
            raise RequestTimedOut("a request to the new voter is still in flight; retry")
    except ApiError as error:
        raft.reply(ticket, adding.AddRaftVoterResponse(error_code=error.code, error_message=error.message))
        return
    request_id = raft.send(Node(key.id, endpoint.host, endpoint.port), requests.api_versions(raft.config), now_ms)
    leader.change = VoterChange(
        ticket,
        now_ms + raft.config.request_timeout_ms,
        Voter(key, endpoints),
        request_id,
        acknowledge_when_committed=request.ack_when_committed,
    )


def on_api_versions_response(raft: RaftState, request_id: int, response: ApiVersionsResponse, now_ms: int) -> bool:
    """Check the kraft.versions and the log of the new voter, then append the new voter set."""
    leader = raft.role
    if not isinstance(leader, Leader) or leader.change is None or leader.change.request_id != request_id:
        return True
    change = leader.change
    assert change.adding is not None
    change.request_id = None
    if response.error_code != NONE:
        raft.finish_change(RequestTimedOut.code, f"the new voter answered {by_code(response.error_code).name}")
        return False
    ranges = (
        (feature.min_version, feature.max_version)
        for feature in response.supported_features
        if feature.name == KRAFT_VERSION_FEATURE
    )
    supported = next(ranges, None)
    version = raft.history.kraft_version
    if supported is None or not supported[0] <= version <= supported[1]:
        raft.finish_change(InvalidRequest.code, f"the new voter does not support {KRAFT_VERSION_FEATURE} {version}")
        return True
    if not leader.is_caught_up(change.adding.key, now_ms):
        raft.finish_change(RequestTimedOut.code, "the new voter is not caught up; retry when it is")
        return True
    voters = raft.voters.with_voter(Voter(change.adding.key, change.adding.endpoints, supported))
    assert voters is not None, "changes do not overlap"
    change.last_offset = raft.append_control([voters.to_record()], now_ms)
    if not change.acknowledge_when_committed:
        raft.reply(change.ticket, adding.AddRaftVoterResponse(error_message=None))
        change.ticket = None
    return True


def on_remove_voter(raft: RaftState, ticket: Hashable, request: removing.RemoveRaftVoterRequest, now_ms: int) -> None:
    try:
        leader = _require_leader(raft, request.cluster_id, raft.role.epoch)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        if key.id < 0 or not any(key.directory):
            raise InvalidRequest("the voter to remove has no valid id or directory")
        _check_change_allowed(raft, leader, now_ms)
        voters = raft.voters.without_voter(key)
        if voters is None:
            raise VoterNotFound(f"node {key.id} cannot be removed; the voters are {sorted(raft.voters.by_id)}")
    except ApiError as error:
        raft.reply(ticket, removing.RemoveRaftVoterResponse(error_code=error.code, error_message=error.message))
        return
    last_offset = raft.append_control([voters.to_record()], now_ms)
    leader.change = VoterChange(ticket, now_ms + raft.config.request_timeout_ms, last_offset=last_offset)


def on_update_voter(
    raft: RaftState, ticket: Hashable, request: updating.UpdateRaftVoterRequest, listener: str, now_ms: int
) -> None:
    """Append the voter's endpoints and kraft.versions, and answer before they are committed.

    At kraft.version 0 the leader only keeps them in memory, for the upgrade.
    """
    error = NONE
    try:
        _update(raft, request, now_ms)
    except ApiError as raised:
        error = raised.code
    raft.reply(ticket, responses.update_voter(raft.leader_and_epoch, listener, error))


def _update(raft: RaftState, request: updating.UpdateRaftVoterRequest, now_ms: int) -> None:
    leader = _require_leader(raft, request.cluster_id, request.current_leader_epoch)
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    endpoints, feature = _endpoints(request.listeners), request.kraft_version_feature
    lowest, highest = feature.min_supported_version, feature.max_supported_version
    if key.id < 0 or not any(key.directory) or find_endpoint(endpoints, raft.config.listener) is None:
        raise InvalidRequest
    if not 0 <= lowest <= highest:
        raise InvalidRequest
    dynamic = raft.history.kraft_version >= RECONFIGURABLE
    _check_change_allowed(raft, leader, now_ms, allow_static=True)
    if not lowest <= raft.history.kraft_version <= highest:
        raise InvalidRequest
    voter = Voter(key, endpoints, (lowest, highest))
    if not dynamic:
        if leader.upgrade_voters is None:
            raise RequestTimedOut
        updated = leader.upgrade_voters.with_update(voter, any_directory=True)
        if updated is None:
            raise VoterNotFound
        leader.upgrade_voters = updated
        return
    updated = raft.voters.with_update(voter)
    if updated is None:
        raise VoterNotFound
    raft.append_control([updated.to_record()], now_ms)


def upgrade_kraft_version(raft: RaftState, epoch: int, version: int, now_ms: int) -> None:
    """Append a higher kraft.version. From 1 on the log holds the voters, so the leader must know them exactly."""
    leader = raft.role
    if not isinstance(leader, Leader) or leader.epoch != epoch:
        raise NotLeader
    current = raft.history.kraft_version
    if version == current:
        return
    if version < current:
        raise InvalidUpdateVersion(f"{KRAFT_VERSION_FEATURE} cannot go down from {current} to {version}")
    voters = leader.upgrade_voters
    if voters is None or not voters.all_support(version) or not all(any(key.directory) for key in voters.replicas):
        raise InvalidUpdateVersion(f"not all voters have reported that they support {KRAFT_VERSION_FEATURE} {version}")
    raft.append_control([KRaftVersionRecord(kraft_version=version), voters.to_record()], now_ms)
    leader.upgrade_voters = None


def on_update_voter_response(raft: RaftState, response: updating.UpdateRaftVoterResponse, now_ms: int) -> bool:
    current = response.current_leader
    if current is not None and current.leader_epoch > raft.role.epoch:
        if current.host:
            endpoints: Endpoints = (Endpoint(raft.config.listener, current.host, current.port),)
        else:
            endpoints = raft.voters.endpoints_of(current.leader_id)
        raft.learn_leader(responses.LeaderAndEpoch(max(current.leader_id, -1), current.leader_epoch, endpoints), now_ms)
        return True
    if response.error_code in (NONE, UnsupportedVersion.code) and isinstance(raft.role, Follower):
        raft.role.has_updated_leader = True
        raft.role.has_fetched = True
        raft.role.fetch_deadline = now_ms + raft.config.fetch_timeout_ms
        return True
    return False


def on_auto_join_response(
    raft: RaftState, response: adding.AddRaftVoterResponse | removing.RemoveRaftVoterResponse, now_ms: int
) -> bool:
    """Delay the next attempt to join if this one succeeded, or cannot succeed now."""
    expected = (NONE, RequestTimedOut.code, DuplicateVoter.code, VoterNotFound.code)
    if response.error_code in expected and isinstance(raft.role, Follower):
        raft.role.update_voter_at = now_ms + raft.config.fetch_timeout_ms
        return True
    return False


def on_describe_quorum(
    raft: RaftState, ticket: Hashable, request: describing.DescribeQuorumRequest, version: int, now_ms: int
) -> None:
    topics = request.topics
    is_metadata = (
        len(topics) == 1
        and topics[0].topic_name == METADATA_TOPIC
        and [partition.partition_index for partition in topics[0].partitions] == [METADATA_PARTITION]
    )
    leader = raft.role
    if not is_metadata or not isinstance(leader, Leader):
        raft.reply(ticket, responses.describe_quorum_error(request, is_metadata=is_metadata))
        return
    voters = list(leader.voters.values())
    partition = describing.ResponsePartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=[_describe_replica(raft, progress, version, now_ms) for progress in voters],
        observers=[_describe_replica(raft, progress, version, now_ms) for progress in leader.active_observers(now_ms)],
    )
    raft.reply(
        ticket,
        describing.DescribeQuorumResponse(
            topics=[describing.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            nodes=[_describe_node(progress) for progress in voters] if version >= 2 else [],
        ),
    )


def _describe_replica(raft: RaftState, progress: Progress, version: int, now_ms: int) -> describing.ReplicaState:
    is_local = progress.key.id == raft.config.local.id
    return describing.ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory if version >= 2 else bytes(16),
        log_end_offset=raft.log.end_offset if is_local else progress.end_offset,
        last_fetch_timestamp=now_ms if is_local else progress.last_fetch_ms,
        last_caught_up_timestamp=now_ms if is_local else progress.last_caught_up_ms,
    )


def _describe_node(progress: Progress) -> describing.Node:
    listeners = [
        describing.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
        for endpoint in progress.endpoints
    ]
    return describing.Node(node_id=progress.key.id, listeners=listeners)


def _require_leader(raft: RaftState, cluster_id: str | None, epoch: int) -> Leader:
    if cluster_id is not None and cluster_id != raft.config.cluster_id:
        raise InconsistentClusterId(f"this is cluster {raft.config.cluster_id}, not {cluster_id}")
    error = leadership_error(raft, epoch)
    if error:
        raise by_code(error)
    assert isinstance(raft.role, Leader)
    return raft.role


def _check_change_allowed(raft: RaftState, leader: Leader, now_ms: int, *, allow_static: bool = False) -> None:
    """Raise unless voters can change now. A request that comes too early gets a timeout, which clients retry."""
    expire_change(raft, now_ms)
    if leader.change is not None:
        raise RequestTimedOut("another change of voters is in progress; retry")
    if leader.high_watermark is None:
        raise RequestTimedOut("the leader has not committed a record of its epoch yet; retry")
    if raft.history.kraft_version < RECONFIGURABLE:
        if allow_static:
            return
        raise UnsupportedVersion(f"voters cannot change with {KRAFT_VERSION_FEATURE} {raft.history.kraft_version}")
    voters_offset = raft.history.voters_offset
    if voters_offset is None or voters_offset >= leader.high_watermark:
        raise RequestTimedOut(f"the last change of voters, at offset {voters_offset}, is not committed yet; retry")


def expire_change(raft: RaftState, now_ms: int) -> None:
    if isinstance(raft.role, Leader) and raft.role.change is not None and raft.role.change.deadline <= now_ms:
        raft.finish_change(RequestTimedOut.code)


def _endpoints(listeners: Sequence[adding.Listener] | Sequence[updating.Listener]) -> Endpoints:
    return tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in listeners)
