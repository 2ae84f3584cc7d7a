"""Elections: requests and responses of Vote, BeginQuorumEpoch and EndQuorumEpoch.

A vote goes to a candidate of the current epoch whose log is at least as complete: last epoch first, end offset second.
A VoteResponse does not say whether it belongs to a pre-vote. The role that sent the request knows, and responses to an
earlier role are dropped (see `in_flight_requests`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ottla.metadata.consensus import responses
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC
from ottla.metadata.consensus.leader import Leader
from ottla.metadata.consensus.raft_state import RaftState
from ottla.metadata.consensus.responses import LeaderAndEpoch
from ottla.metadata.consensus.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.metadata.consensus.voters import Endpoint, ReplicaKey
from ottla.protocol.errors import (
    NONE,
    BrokerNotAvailable,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    NotLeader,
    UnknownLeaderEpoch,
    UnsupportedVersion,
)
from ottla.protocol.messages.rpc import begin_quorum_epoch as beginning
from ottla.protocol.messages.rpc import end_quorum_epoch as ending
from ottla.protocol.messages.rpc import vote as voting
from ottla.protocol.wire.types import ZERO_UUID

_Topics = Sequence[voting.TopicData] | Sequence[beginning.TopicData] | Sequence[ending.TopicData]


def request_error(raft: RaftState, cluster_id: str | None, topics: _Topics) -> int:
    """Return an error code if the request is for another cluster or another partition."""
    if cluster_id is not None and cluster_id != raft.config.cluster_id:
        return InconsistentClusterId.code
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return InvalidRequest.code
    return NONE if topics[0].partitions[0].partition_index == METADATA_PARTITION else InvalidRequest.code


def on_vote(
    raft: RaftState, ticket: Hashable, request: voting.VoteRequest, version: int, listener: str, now_ms: int
) -> None:
    error = request_error(raft, request.cluster_id, request.topics)
    if error:
        raft.reply(ticket, voting.VoteResponse(error_code=error))
        return
    error, granted = _decide_vote(raft, request, now_ms)
    raft.reply(ticket, responses.vote(raft.leader_and_epoch, version, listener, error, granted=granted))


def _decide_vote(raft: RaftState, request: voting.VoteRequest, now_ms: int) -> tuple[int, bool]:
    partition = request.topics[0].partitions[0]
    # A candidate's epoch is higher than all epochs in its log; a pre-vote does not raise the epoch.
    highest_log_epoch = partition.replica_epoch if partition.pre_vote else partition.replica_epoch - 1
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or partition.last_offset_epoch > highest_log_epoch:
        return InvalidRequest.code, False
    if partition.replica_epoch < raft.role.epoch:
        return FencedLeaderEpoch.code, False
    if partition.replica_id < 0:
        return InvalidRequest.code, False
    if partition.replica_epoch > raft.role.epoch:
        raft.become_unattached(partition.replica_epoch, -1, now_ms)
    if not _is_addressed_here(raft, request.voter_id, partition.voter_directory_id):
        return InvalidVoterKey.code, False
    key = ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id))
    up_to_date = (partition.last_offset_epoch, partition.last_offset) >= (raft.log.last_epoch, raft.log.end_offset)
    granted = raft.role.can_grant_vote(key, up_to_date=up_to_date, pre_vote=partition.pre_vote)
    if granted and not partition.pre_vote:
        role = raft.role
        assert isinstance(role, Unattached | Prospective)
        if role.voted is None:
            raft.add_vote(key, now_ms)
    return NONE, granted


def _is_addressed_here(raft: RaftState, voter_id: int, directory: bytes) -> bool:
    """Whether the request names this node. Old versions name no voter; a named directory must match."""
    local = raft.config.local
    return voter_id < 0 or (voter_id == local.id and bytes(directory) in (ZERO_UUID, local.directory))


def on_vote_response(raft: RaftState, node_id: int, response: voting.VoteResponse, now_ms: int) -> bool:
    if response.error_code == UnsupportedVersion.code and isinstance(raft.role, Prospective):
        raft.become_candidate(now_ms)  # a voter from before KIP-996 knows no pre-vote
        return True
    error, succeeded = handle_common_response(raft, response, now_ms)
    if succeeded is not None:
        return succeeded
    if error != NONE:
        return False
    role = raft.role
    if isinstance(role, Prospective | Candidate):
        role.tally.record(node_id, response.topics[0].partitions[0].vote_granted)
        raft.conclude_round(now_ms)
    return True


def on_begin_quorum_epoch(
    raft: RaftState,
    ticket: Hashable,
    request: beginning.BeginQuorumEpochRequest,
    version: int,
    listener: str,
    now_ms: int,
) -> None:
    error = request_error(raft, request.cluster_id, request.topics)
    if error:
        raft.reply(ticket, beginning.BeginQuorumEpochResponse(error_code=error))
        return
    partition = request.topics[0].partitions[0]
    error = _leader_request_error(raft, partition.leader_id, partition.leader_epoch)
    if not error:
        _learn_leader_of_request(raft, partition.leader_id, partition.leader_epoch, request.leader_endpoints, now_ms)
        if not _is_addressed_here(raft, request.voter_id, partition.voter_directory_id):
            error = InvalidVoterKey.code
    raft.reply(ticket, responses.begin_epoch(raft.leader_and_epoch, version, listener, error))


def on_begin_quorum_epoch_response(
    raft: RaftState, node_id: int, response: beginning.BeginQuorumEpochResponse, now_ms: int
) -> bool:
    """A voter that accepts the leader fetches from it; the leader repeats the request to the others."""
    error, succeeded = handle_common_response(raft, response, now_ms)
    return error == NONE if succeeded is None else succeeded


def on_end_quorum_epoch(
    raft: RaftState, ticket: Hashable, request: ending.EndQuorumEpochRequest, version: int, listener: str, now_ms: int
) -> None:
    error = request_error(raft, request.cluster_id, request.topics)
    if error:
        raft.reply(ticket, ending.EndQuorumEpochResponse(error_code=error))
        return
    partition = request.topics[0].partitions[0]
    error = _leader_request_error(raft, partition.leader_id, partition.leader_epoch)
    if not error:
        _learn_leader_of_request(raft, partition.leader_id, partition.leader_epoch, request.leader_endpoints, now_ms)
        role = raft.role
        if isinstance(role, Follower) and role.leader_id == partition.leader_id:
            role.fetch_deadline = now_ms + _succession_backoff(raft, partition, version)
    raft.reply(ticket, responses.end_epoch(raft.leader_and_epoch, version, listener, error))


def on_end_quorum_epoch_response(
    raft: RaftState, node_id: int, response: ending.EndQuorumEpochResponse, now_ms: int
) -> bool:
    error, succeeded = handle_common_response(raft, response, now_ms)
    if succeeded is not None:
        return succeeded
    if isinstance(raft.role, Resigned) and error == NONE:
        raft.role.unacknowledged.discard(node_id)
    return error == NONE


def on_connection_lost(raft: RaftState, node_id: int, now_ms: int) -> None:
    """Act on a broken or refused connection, which most likely means that the node is gone.

    If the leader is gone, its voters start pre-votes after `leader_lost_ms`, one after the other so that votes are not
    split. They also grant pre-votes, because they do not reach the leader. Kafka 4.3 waits for the fetch timeout
    instead. Acting early is safe: a pre-vote does not bind a voter, and a voter that reaches the leader rejects it.

    If a voter is gone while this node asks for votes, the round may be lost without that vote.
    """
    role = raft.role
    if isinstance(role, Prospective | Candidate):
        if not role.tally.is_lost:
            role.tally.mark_unreachable(node_id)
            raft.conclude_round(now_ms)
        return
    if not isinstance(role, Follower) or node_id != role.leader_id or role.is_leader_lost:
        return
    role.is_leader_lost, role.has_fetched = True, False
    role.fetch_deadline = min(
        role.fetch_deadline, now_ms + raft.config.leader_lost_ms * (1 + 2 * _election_rank(raft, node_id))
    )


def _election_rank(raft: RaftState, leader_id: int) -> int:
    """How many voters start an election before this one."""
    return sum(key.id < raft.config.local.id for key in raft.voters.replicas if key.id != leader_id)


def _succession_backoff(raft: RaftState, partition: ending.PartitionData, version: int) -> int:
    """Return how long this voter waits: the first preferred successor not at all, each further one twice as long."""
    local, max_backoff_ms = raft.config.local, raft.config.election_backoff_max_ms
    if version == 0:
        preferred = [ReplicaKey(candidate) for candidate in partition.preferred_successors]
    else:
        preferred = [
            ReplicaKey(candidate.candidate_id, bytes(candidate.candidate_directory_id))
            for candidate in partition.preferred_candidates
        ]
    for rank, key in enumerate(preferred):
        if key.id == local.id and key.directory in (ZERO_UUID, local.directory):
            return min(max_backoff_ms, (max_backoff_ms >> (len(preferred) - 1)) << (rank - 1)) if rank else 0
    return max_backoff_ms if preferred else 0


def _leader_request_error(raft: RaftState, leader_id: int, epoch: int) -> int:
    if epoch < raft.role.epoch:
        return FencedLeaderEpoch.code
    return InvalidRequest.code if leader_id < 0 else NONE


def _learn_leader_of_request(
    raft: RaftState,
    leader_id: int,
    epoch: int,
    endpoints: Sequence[beginning.LeaderEndpoint] | Sequence[ending.LeaderEndpoint],
    now_ms: int,
) -> None:
    leader_endpoints = tuple(
        Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in endpoints
    ) or raft.voters.endpoints_of(leader_id)
    raft.learn_leader(LeaderAndEpoch(leader_id, epoch, leader_endpoints), now_ms)


def handle_common_response(raft: RaftState, response: object, now_ms: int) -> tuple[int, bool | None]:
    """Act on the leader, epoch and error that every response has.

    Return the partition's error code, and None if the caller must handle the rest of the response. Otherwise the second
    value says whether the request succeeded; a failed request is repeated after a pause.
    """
    if getattr(response, "error_code", NONE) != NONE:
        return NONE, False
    error_and_leader = responses.read_leader(response, raft.voters.endpoints_of, raft.config.listener)
    if error_and_leader is None:
        return NONE, False
    error, leader = error_and_leader
    return error, _learn_from_response(raft, error, leader, now_ms)


def _learn_from_response(raft: RaftState, error: int, leader: LeaderAndEpoch, now_ms: int) -> bool | None:
    role = raft.role
    if leader.leader_id >= 0 and not leader.endpoints:
        leader = leader._replace(endpoints=raft.voters.endpoints_of(leader.leader_id))
    if leader.epoch < role.epoch or error == UnknownLeaderEpoch.code:
        return error == NONE  # the other node is behind; it may have caught up by the next request
    if leader.epoch > role.epoch or error in (FencedLeaderEpoch.code, NotLeader.code):
        raft.learn_leader(leader, now_ms)
        return raft.role is not role or leader.epoch > role.epoch
    if leader.leader_id >= 0 and role.leader_id < 0 and not isinstance(role, Leader):
        raft.learn_leader(leader, now_ms)
        return None if error == NONE else True
    return False if error in (BrokerNotAvailable.code, InvalidRequest.code, InvalidVoterKey.code) else None
