"""One quorum member as a pure state machine: events in, effects out.

The package docstring has the contract with the driver. The driver negotiates the versions of requests; a response has
the fields that belong to the version of its request.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ottla.metadata.consensus import elections, replication, voter_changes
from ottla.metadata.consensus.config import ConsensusConfig, Randomness
from ottla.metadata.consensus.control_history import ControlHistory
from ottla.metadata.consensus.effects import Append, Effects
from ottla.metadata.consensus.leader import Leader
from ottla.metadata.consensus.log_view import LogView, OffsetAndEpoch
from ottla.metadata.consensus.polling import NEVER, poll
from ottla.metadata.consensus.raft_state import RaftState
from ottla.metadata.consensus.roles import Follower, role_name
from ottla.metadata.consensus.voters import Node, VoterSet, find_endpoint
from ottla.protocol.errors import NotLeader, UnsupportedVersion
from ottla.protocol.messages.records.raft_records import QuorumState
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.rpc.api_versions import ApiVersionsResponse
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.rpc.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.rpc.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.rpc.vote import VoteRequest, VoteResponse
from ottla.protocol.wire.batch import assign_offset, read_batches


class Consensus:
    """A quorum member, voter or observer.

    `stored` is the content of the quorum-state file, or None if there is no file. `history` has the configured voters
    and the control records of the latest snapshot and of the log. The log is durable up to its end. `start` is the
    first step.
    """

    def __init__(
        self,
        config: ConsensusConfig,
        log: LogView,
        stored: QuorumState | None,
        history: ControlHistory,
        random: Randomness,
    ) -> None:
        self._raft = RaftState(config, log, stored, history, random)
        self._deadline: int | None = None

    # -- current state --

    @property
    def role(self) -> str:
        return role_name(self._raft.role)

    @property
    def epoch(self) -> int:
        return self._raft.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader's node id, or -1 if no leader is known."""
        return self._raft.role.leader_id

    @property
    def leader_node(self) -> Node | None:
        """The leader, if it is another node with a known endpoint."""
        raft = self._raft
        endpoint = find_endpoint(raft.role.leader_endpoints, raft.config.listener)
        is_other = self.leader_id >= 0 and self.leader_id != raft.config.local.id
        return Node(self.leader_id, endpoint.host, endpoint.port) if endpoint is not None and is_other else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self._raft.role, Leader)

    @property
    def high_watermark(self) -> int | None:
        return self._raft.role.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._raft.voters

    @property
    def history(self) -> ControlHistory:
        """The voters and kraft.version at each offset. Snapshots start with those of their end."""
        return self._raft.history

    def next_deadline(self) -> int | None:
        """Return when `tick` must be called at the latest, or None."""
        return self._deadline

    # -- steps --

    def start(self, now_ms: int) -> Effects:
        """Resume the stored role. This is the first step."""
        self._raft.start(now_ms)
        return self._finish_step(now_ms)

    def tick(self, now_ms: int) -> Effects:
        """Act on the deadlines that have passed."""
        return self._finish_step(now_ms)

    def handle_request(self, ticket: Hashable, message: Any, version: int, listener: str, now_ms: int) -> Effects:
        """Handle a request of another node. The reply has the same ticket; a fetch may be answered in a later step."""
        raft = self._raft
        match message:
            case FetchRequest():
                replication.on_fetch(raft, ticket, message, version, listener, now_ms)
            case VoteRequest():
                elections.on_vote(raft, ticket, message, version, listener, now_ms)
            case BeginQuorumEpochRequest():
                elections.on_begin_quorum_epoch(raft, ticket, message, version, listener, now_ms)
            case EndQuorumEpochRequest():
                elections.on_end_quorum_epoch(raft, ticket, message, version, listener, now_ms)
            case FetchSnapshotRequest():
                replication.on_fetch_snapshot(raft, ticket, message, version, listener, now_ms)
            case DescribeQuorumRequest():
                voter_changes.on_describe_quorum(raft, ticket, message, version, now_ms)
            case AddRaftVoterRequest():
                voter_changes.on_add_voter(raft, ticket, message, now_ms)
            case RemoveRaftVoterRequest():
                voter_changes.on_remove_voter(raft, ticket, message, now_ms)
            case UpdateRaftVoterRequest():
                voter_changes.on_update_voter(raft, ticket, message, listener, now_ms)
            case _:
                raise TypeError(f"{type(message).__name__} is not a request to the quorum")
        return self._finish_step(now_ms)

    def handle_response(self, request_id: int, message: Any, now_ms: int) -> Effects:
        """Handle the response to a request. A response that is no longer expected changes nothing."""
        raft = self._raft
        node_id = raft.in_flight.node_of(request_id)
        if node_id is None:
            return self._finish_step(now_ms)
        match message:
            case FetchResponse():
                succeeded = replication.on_fetch_response(raft, node_id, message, now_ms)
            case VoteResponse():
                succeeded = elections.on_vote_response(raft, node_id, message, now_ms)
            case BeginQuorumEpochResponse():
                succeeded = elections.on_begin_quorum_epoch_response(raft, node_id, message, now_ms)
            case EndQuorumEpochResponse():
                succeeded = elections.on_end_quorum_epoch_response(raft, node_id, message, now_ms)
            case FetchSnapshotResponse():
                succeeded = replication.on_fetch_snapshot_response(raft, node_id, message, now_ms)
            case ApiVersionsResponse():
                succeeded = voter_changes.on_api_versions_response(raft, request_id, message, now_ms)
            case UpdateRaftVoterResponse():
                succeeded = voter_changes.on_update_voter_response(raft, message, now_ms)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                succeeded = voter_changes.on_auto_join_response(raft, message, now_ms)
            case _:
                raise TypeError(f"{type(message).__name__} is not a response to the quorum")
        raft.in_flight.complete(request_id, now_ms, succeeded=succeeded)
        return self._finish_step(now_ms)

    def handle_failure(
        self, request_id: int, now_ms: int, *, unsupported_version: bool = False, connection_lost: bool = False
    ) -> Effects:
        """Handle a request without a response: it timed out, or one of the given reasons applies.

        `connection_lost` includes refused connections. The driver learns `unsupported_version` from ApiVersions.
        """
        raft = self._raft
        node_id = raft.in_flight.node_of(request_id)
        if node_id is not None:
            if connection_lost:
                elections.on_connection_lost(raft, node_id, now_ms)
            if unsupported_version:
                elections.on_vote_response(raft, node_id, VoteResponse(error_code=UnsupportedVersion.code), now_ms)
            if isinstance(raft.role, Leader) and raft.role.change is not None:
                voter_changes.on_api_versions_response(raft, request_id, ApiVersionsResponse(error_code=-1), now_ms)
        raft.in_flight.complete(request_id, now_ms, succeeded=False)
        return self._finish_step(now_ms)

    def report_appended(self, now_ms: int) -> Effects:
        """Report that the log has the writes of the last step, durable or not. Waiting fetches are answered."""
        raft = self._raft
        leader = raft.role
        if isinstance(leader, Leader):
            end = raft.log.end_offset
            replication.answer_waiting_fetches(
                raft, [fetch for fetch in leader.waiting_fetches if fetch.fetch_offset < end], now_ms
            )
        return self._finish_step(now_ms)

    def report_flushed(self, end_offset: int, epoch: int, now_ms: int) -> Effects:
        """Report that the log is durable up to an offset, with the epoch of the record before it.

        A flush that started before a truncation may report records that are gone; the epoch shows this.
        """
        raft = self._raft
        epoch_end = raft.log.end_offset_for(epoch)
        if epoch_end.epoch == epoch and end_offset <= epoch_end.offset:
            raft.flushed_offset = max(raft.flushed_offset, end_offset)
            leader = raft.role
            if isinstance(leader, Leader) and leader.record_flush(raft.flushed_offset):
                replication.on_high_watermark(raft, now_ms)
        return self._finish_step(now_ms)

    def propose(self, epoch: int, batch: bytearray, now_ms: int) -> tuple[int, Effects]:
        """Append batches as the leader of an epoch, and return the offset of the last record.

        They are committed once the high watermark is above that offset. Raise NotLeader if this node does not lead the
        epoch.
        """
        raft = self._raft
        if not isinstance(raft.role, Leader) or raft.role.epoch != epoch or raft.is_stopping:
            raise NotLeader
        base = end = raft.write_end
        for pos, header in read_batches(batch):
            assert not header.is_control, "only consensus appends control records"
            assign_offset(batch, pos, end, epoch)
            end += header.last_offset_delta + 1
        assert end > base, "nothing to append"
        raft.out.writes.append(Append(base, end, batch))
        raft.out.flush = True
        return end - 1, self._finish_step(now_ms)

    def report_snapshot_installed(self, snapshot: OffsetAndEpoch, control: Iterable[object], now_ms: int) -> Effects:
        """Report that the leader's snapshot replaced the log. `control` has the snapshot's control records."""
        raft = self._raft
        raft.history.restart_from_snapshot(snapshot.offset, control)
        raft.flushed_offset = snapshot.offset
        follower = raft.role
        if isinstance(follower, Follower):
            follower.snapshot = None
            replication.raise_follower_high_watermark(raft, follower, snapshot.offset)
        else:
            raft.raise_high_watermark(snapshot.offset)
        return self._finish_step(now_ms)

    def report_snapshot_taken(self, end_offset: int) -> None:
        """Report a snapshot that this node wrote. The log before it may be deleted."""
        self._raft.history.forget_before_snapshot(end_offset)

    def upgrade_kraft_version(self, epoch: int, version: int, now_ms: int) -> Effects:
        """Raise the kraft.version as the leader of an epoch. Raise an ApiError if not all voters support it."""
        voter_changes.upgrade_kraft_version(self._raft, epoch, version, now_ms)
        return self._finish_step(now_ms)

    def resign(self, epoch: int, now_ms: int) -> Effects:
        """Give up the leadership of an epoch, for example if the application cannot apply a committed record."""
        if isinstance(self._raft.role, Leader) and self._raft.role.epoch == epoch:
            self._raft.role.resign_requested = True
        return self._finish_step(now_ms)

    def shutdown(self, timeout_ms: int, now_ms: int) -> Effects:
        """Hand over leadership and stop. The effect `Stopped` reports the end."""
        self._raft.stop_deadline = now_ms + timeout_ms
        return self._finish_step(now_ms)

    def _finish_step(self, now_ms: int) -> Effects:
        raft = self._raft
        deadline = poll(raft, now_ms)
        self._deadline = None if deadline >= NEVER else deadline
        effects, raft.out = raft.out, Effects()
        return effects
