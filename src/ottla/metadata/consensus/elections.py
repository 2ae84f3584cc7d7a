"""Elections: Vote, BeginQuorumEpoch and EndQuorumEpoch, asked and answered.

Votes go by epoch, then by who has the more complete log (last epoch first, end offset second). VoteResponse does not
say whether it answers a pre-vote: the role that asked knows, and answers to an earlier role are dropped (see `peers`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ottla.metadata.consensus import replies
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC
from ottla.metadata.consensus.core import Core
from ottla.metadata.consensus.leading import Leader
from ottla.metadata.consensus.replies import Known
from ottla.metadata.consensus.states import Candidate, Follower, Prospective, Resigned, Unattached
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


def refusal(core: Core, cluster_id: str | None, topics: _Topics) -> int:
    """Whether a request is for another cluster or another partition than this."""
    if cluster_id is not None and cluster_id != core.config.cluster_id:
        return InconsistentClusterId.code
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return InvalidRequest.code
    return NONE if topics[0].partitions[0].partition_index == METADATA_PARTITION else InvalidRequest.code


def on_vote(
    core: Core, ticket: Hashable, request: voting.VoteRequest, version: int, listener: str, now_ms: int
) -> None:
    error = refusal(core, request.cluster_id, request.topics)
    if error:
        core.reply(ticket, voting.VoteResponse(error_code=error))
        return
    error, granted = _vote(core, request, now_ms)
    core.reply(ticket, replies.vote(core.known, version, listener, error, granted=granted))


def _vote(core: Core, request: voting.VoteRequest, now_ms: int) -> tuple[int, bool]:
    asked = request.topics[0].partitions[0]
    # A candidate has raised its epoch above all that its log holds; a pre-vote keeps the epoch that it knows.
    newest = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > newest:
        return InvalidRequest.code, False
    if asked.replica_epoch < core.state.epoch:
        return FencedLeaderEpoch.code, False
    if asked.replica_id < 0:
        return InvalidRequest.code, False
    if asked.replica_epoch > core.state.epoch:
        core.become_unattached(asked.replica_epoch, -1, now_ms)
    if not _is_meant(core, request.voter_id, asked.voter_directory_id):
        return InvalidVoterKey.code, False
    key = ReplicaKey(asked.replica_id, bytes(asked.replica_directory_id))
    up_to_date = (asked.last_offset_epoch, asked.last_offset) >= (core.log.last_epoch, core.log.end_offset)
    granted = core.state.grants(key, up_to_date=up_to_date, pre_vote=asked.pre_vote)
    if granted and not asked.pre_vote:
        state = core.state
        assert isinstance(state, Unattached | Prospective)
        if state.voted is None:
            core.add_vote(key, now_ms)
    return NONE, granted


def _is_meant(core: Core, voter_id: int, directory: bytes) -> bool:
    """Old senders name nobody; who names a directory means that one."""
    local = core.config.local
    return voter_id < 0 or (voter_id == local.id and bytes(directory) in (ZERO_UUID, local.directory))


def on_vote_answer(core: Core, node_id: int, answer: voting.VoteResponse, now_ms: int) -> bool:
    if answer.error_code == UnsupportedVersion.code and isinstance(core.state, Prospective):
        core.become_candidate(now_ms)  # a voter from before KIP-996 cannot be asked first
        return True
    error, done = handled_commonly(core, answer, now_ms)
    if done is not None:
        return done
    if error != NONE:
        return False
    state = core.state
    if isinstance(state, Prospective | Candidate):
        state.tally.record(node_id, answer.topics[0].partitions[0].vote_granted)
        core.after_votes(now_ms)
    return True


def on_begin(
    core: Core, ticket: Hashable, request: beginning.BeginQuorumEpochRequest, version: int, listener: str, now_ms: int
) -> None:
    error = refusal(core, request.cluster_id, request.topics)
    if error:
        core.reply(ticket, beginning.BeginQuorumEpochResponse(error_code=error))
        return
    asked = request.topics[0].partitions[0]
    error = _outdated(core, asked.leader_id, asked.leader_epoch)
    if not error:
        _meet_leader(core, asked.leader_id, asked.leader_epoch, request.leader_endpoints, now_ms)
        if not _is_meant(core, request.voter_id, asked.voter_directory_id):
            error = InvalidVoterKey.code
    core.reply(ticket, replies.begin_epoch(core.known, version, listener, error))


def on_begin_answer(core: Core, node_id: int, answer: beginning.BeginQuorumEpochResponse, now_ms: int) -> bool:
    """Nothing to note: who fetches has understood, and the others are told again."""
    error, done = handled_commonly(core, answer, now_ms)
    return error == NONE if done is None else done


def on_end(
    core: Core, ticket: Hashable, request: ending.EndQuorumEpochRequest, version: int, listener: str, now_ms: int
) -> None:
    error = refusal(core, request.cluster_id, request.topics)
    if error:
        core.reply(ticket, ending.EndQuorumEpochResponse(error_code=error))
        return
    asked = request.topics[0].partitions[0]
    error = _outdated(core, asked.leader_id, asked.leader_epoch)
    if not error:
        _meet_leader(core, asked.leader_id, asked.leader_epoch, request.leader_endpoints, now_ms)
        state = core.state
        if isinstance(state, Follower) and state.leader_id == asked.leader_id:
            state.fetch_deadline = now_ms + _succession_backoff(core, asked, version)
    core.reply(ticket, replies.end_epoch(core.known, version, listener, error))


def on_end_answer(core: Core, node_id: int, answer: ending.EndQuorumEpochResponse, now_ms: int) -> bool:
    error, done = handled_commonly(core, answer, now_ms)
    if done is not None:
        return done
    if isinstance(core.state, Resigned) and error == NONE:
        core.state.unacknowledged.discard(node_id)
    return error == NONE


def on_connection_lost(core: Core, node_id: int, now_ms: int) -> None:
    """A node hung up or is not there: most likely it died.

    Unless a leader is reached again soon, its voters ask for pre-votes, one after the other so that votes are not
    split; and being out of touch with the leader, they grant them. (Kafka 4.3 waits for the fetch timeout. A pre-vote
    binds nobody: whoever still reaches the leader refuses it.) From whoever asks for votes, a voter that is not there
    keeps what nobody else can give: the round may be lost by that.
    """
    state = core.state
    if isinstance(state, Prospective | Candidate):
        if not state.tally.is_lost:
            state.tally.miss(node_id)
            core.after_votes(now_ms)
        return
    if not isinstance(state, Follower) or node_id != state.leader_id or state.is_leader_lost:
        return
    state.is_leader_lost, state.has_fetched = True, False
    state.fetch_deadline = min(
        state.fetch_deadline, now_ms + core.config.leader_lost_ms * (1 + 2 * _turn(core, node_id))
    )


def _turn(core: Core, leader_id: int) -> int:
    """How many voters try before this one to become the next leader."""
    return sum(key.id < core.config.local.id for key in core.voters.replicas if key.id != leader_id)


def _succession_backoff(core: Core, asked: ending.PartitionData, version: int) -> int:
    """The first of the preferred tries at once; each after it waits twice as long as the one before."""
    local, longest = core.config.local, core.config.election_backoff_max_ms
    if version == 0:
        preferred = [ReplicaKey(candidate) for candidate in asked.preferred_successors]
    else:
        preferred = [
            ReplicaKey(candidate.candidate_id, bytes(candidate.candidate_directory_id))
            for candidate in asked.preferred_candidates
        ]
    for place, key in enumerate(preferred):
        if key.id == local.id and key.directory in (ZERO_UUID, local.directory):
            return min(longest, (longest >> (len(preferred) - 1)) << (place - 1)) if place else 0
    return longest if preferred else 0


def _outdated(core: Core, leader_id: int, epoch: int) -> int:
    if epoch < core.state.epoch:
        return FencedLeaderEpoch.code
    return InvalidRequest.code if leader_id < 0 else NONE


def _meet_leader(
    core: Core,
    leader_id: int,
    epoch: int,
    endpoints: Sequence[beginning.LeaderEndpoint] | Sequence[ending.LeaderEndpoint],
    now_ms: int,
) -> None:
    given = tuple(Endpoint(at.name, at.host, at.port) for at in endpoints) or core.voters.endpoints_of(leader_id)
    core.discover(Known(leader_id, epoch, given), now_ms)


def handled_commonly(core: Core, answer: object, now_ms: int) -> tuple[int, bool | None]:
    """The error of an answer, and what is done about it whatever its kind: epochs and leaders.

    The second is None when the answer is still to be handled by its own kind; else whether it was a good one: a bad one
    is repeated only after a pause. One that refuses as a whole, or is about something else, is bad.
    """
    if getattr(answer, "error_code", NONE) != NONE:
        return NONE, False
    said = replies.said(answer, core.voters.endpoints_of, core.config.listener)
    return (NONE, False) if said is None else (said[0], _met(core, *said, now_ms))


def _met(core: Core, error: int, said: Known, now_ms: int) -> bool | None:
    """Take in the epoch and the leader that another node told of."""
    state = core.state
    if said.leader_id >= 0 and not said.endpoints:
        said = said._replace(endpoints=core.voters.endpoints_of(said.leader_id))
    if said.epoch < state.epoch or error == UnknownLeaderEpoch.code:
        return error == NONE  # the other is behind; it may have caught up when it is asked again
    if said.epoch > state.epoch or error in (FencedLeaderEpoch.code, NotLeader.code):
        core.discover(said, now_ms)
        return core.state is not state or said.epoch > state.epoch
    if said.leader_id >= 0 and state.leader_id < 0 and not isinstance(state, Leader):
        core.discover(said, now_ms)
        return None if error == NONE else True
    return False if error in (BrokerNotAvailable.code, InvalidRequest.code, InvalidVoterKey.code) else None
