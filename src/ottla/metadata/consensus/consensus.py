"""KRaft as a pure step: a member of the quorum that owns no clock, socket or file.

Every method is one step: an input and the time in, `Effects` out, which the driver carries out in order before the next
input (see `effects`). Messages are Kafka 4.3's, so that members of both kinds can share a quorum. Versions of requests
are the driver's to negotiate; what differs between them is handled here by the version that a request came in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ottla.metadata.consensus import elections, membership, replication
from ottla.metadata.consensus.config import ConsensusConfig, Randomness
from ottla.metadata.consensus.core import Core
from ottla.metadata.consensus.effects import Append, Effects
from ottla.metadata.consensus.history import ControlHistory
from ottla.metadata.consensus.leading import Leader
from ottla.metadata.consensus.log_view import LogView, OffsetAndEpoch
from ottla.metadata.consensus.polling import NEVER, poll
from ottla.metadata.consensus.states import Follower
from ottla.metadata.consensus.voters import Node, VoterSet, address
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
    """One member of the quorum, voter or observer.

    `stored` is the quorum-state file, None when there is none; `history` holds the configured voters and the control
    records of the latest snapshot and the log; the log is durable up to its end. `start` is the first step.
    """

    def __init__(
        self,
        config: ConsensusConfig,
        log: LogView,
        stored: QuorumState | None,
        history: ControlHistory,
        random: Randomness,
    ) -> None:
        self._core = Core(config, log, stored, history, random)
        self._deadline: int | None = None

    # -- what is known --

    @property
    def role(self) -> str:
        return type(self._core.state).__name__.lower()

    @property
    def epoch(self) -> int:
        return self._core.state.epoch

    @property
    def leader_id(self) -> int:
        """-1 when nobody is known to lead."""
        return self._core.state.leader_id

    @property
    def leader_node(self) -> Node | None:
        """Where another node that leads listens; None when this one does, or nobody, or it is not known where."""
        core = self._core
        at = address(core.state.leader_endpoints, core.config.listener)
        is_other = self.leader_id >= 0 and self.leader_id != core.config.local.id
        return Node(self.leader_id, at.host, at.port) if at is not None and is_other else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.state, Leader)

    @property
    def high_watermark(self) -> int | None:
        return self._core.state.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def history(self) -> ControlHistory:
        """For snapshots, which begin with the voters and the kraft.version of their end."""
        return self._core.history

    def next_deadline(self) -> int | None:
        """When `tick` must be called at the latest."""
        return self._deadline

    # -- steps --

    def start(self, now_ms: int) -> Effects:
        self._core.start(now_ms)
        return self._done(now_ms)

    def tick(self, now_ms: int) -> Effects:
        return self._done(now_ms)

    def request(self, ticket: Hashable, message: Any, version: int, listener: str, now_ms: int) -> Effects:
        """A request from another node. The reply carries the ticket; a fetch's may come in a later step."""
        core = self._core
        match message:
            case FetchRequest():
                replication.on_fetch(core, ticket, message, version, listener, now_ms)
            case VoteRequest():
                elections.on_vote(core, ticket, message, version, listener, now_ms)
            case BeginQuorumEpochRequest():
                elections.on_begin(core, ticket, message, version, listener, now_ms)
            case EndQuorumEpochRequest():
                elections.on_end(core, ticket, message, version, listener, now_ms)
            case FetchSnapshotRequest():
                replication.on_fetch_snapshot(core, ticket, message, version, listener, now_ms)
            case DescribeQuorumRequest():
                membership.on_describe(core, ticket, message, version, now_ms)
            case AddRaftVoterRequest():
                membership.on_add(core, ticket, message, now_ms)
            case RemoveRaftVoterRequest():
                membership.on_remove(core, ticket, message, now_ms)
            case UpdateRaftVoterRequest():
                membership.on_update(core, ticket, message, listener, now_ms)
            case _:
                raise TypeError(f"{type(message).__name__} is not for the quorum")
        return self._done(now_ms)

    def response(self, request_id: int, message: Any, now_ms: int) -> Effects:
        """The answer to a request that was sent; one that is no longer of interest changes nothing."""
        core = self._core
        node_id = core.peers.node_of(request_id)
        if node_id is None:
            return self._done(now_ms)
        match message:
            case FetchResponse():
                good = replication.on_fetch_answer(core, node_id, message, now_ms)
            case VoteResponse():
                good = elections.on_vote_answer(core, node_id, message, now_ms)
            case BeginQuorumEpochResponse():
                good = elections.on_begin_answer(core, node_id, message, now_ms)
            case EndQuorumEpochResponse():
                good = elections.on_end_answer(core, node_id, message, now_ms)
            case FetchSnapshotResponse():
                good = replication.on_fetch_snapshot_answer(core, node_id, message, now_ms)
            case ApiVersionsResponse():
                good = membership.on_api_versions_answer(core, request_id, message, now_ms)
            case UpdateRaftVoterResponse():
                good = membership.on_update_answer(core, message, now_ms)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                good = membership.on_join_answer(core, message, now_ms)
            case _:
                raise TypeError(f"{type(message).__name__} answers nothing that was asked")
        core.peers.answered(request_id, now_ms, good=good)
        return self._done(now_ms)

    def failed(
        self, request_id: int, now_ms: int, *, unsupported_version: bool = False, connection_lost: bool = False
    ) -> Effects:
        """No answer: connection lost or refused, timed out, or (as the driver knows from ApiVersions) not understood
        there."""
        core = self._core
        node_id = core.peers.node_of(request_id)
        if node_id is not None:
            if connection_lost:
                elections.on_connection_lost(core, node_id, now_ms)
            if unsupported_version:
                elections.on_vote_answer(core, node_id, VoteResponse(error_code=UnsupportedVersion.code), now_ms)
            if isinstance(core.state, Leader) and core.state.change is not None:
                membership.on_api_versions_answer(core, request_id, ApiVersionsResponse(error_code=-1), now_ms)
        core.peers.answered(request_id, now_ms, good=False)
        return self._done(now_ms)

    def appended(self, now_ms: int) -> Effects:
        """The writes of the last step are in the log, though perhaps not yet durable: waiting fetches can have them."""
        core = self._core
        leader = core.state
        if isinstance(leader, Leader):
            end = core.log.end_offset
            replication.wake_parked(core, [fetch for fetch in leader.parked if fetch.fetch_offset < end], now_ms)
        return self._done(now_ms)

    def flushed(self, end_offset: int, epoch: int, now_ms: int) -> Effects:
        """The log is durable up to this offset; the epoch is that of the record before it.

        A flush that began before a truncation may report what is no longer there; the epoch tells.
        """
        core = self._core
        at = core.log.end_offset_for(epoch)
        if at.epoch == epoch and end_offset <= at.offset:
            core.flushed_offset = max(core.flushed_offset, end_offset)
            leader = core.state
            if isinstance(leader, Leader) and leader.flushed(core.flushed_offset):
                replication.on_high_watermark(core, now_ms)
        return self._done(now_ms)

    def propose(self, epoch: int, batch: bytearray, now_ms: int) -> tuple[int, Effects]:
        """Append batches as the leader of this epoch; NotLeader if it is not. Returns the offset of the last record.

        They are committed once the high watermark is above that offset.
        """
        core = self._core
        if not isinstance(core.state, Leader) or core.state.epoch != epoch or core.stopping:
            raise NotLeader
        base = end = core.write_end
        for pos, header in read_batches(batch):
            assert not header.is_control, "control records are written by consensus alone"
            assign_offset(batch, pos, end, epoch)
            end += header.last_offset_delta + 1
        assert end > base, "nothing to append"
        core.out.writes.append(Append(base, end, batch))
        core.out.flush = True
        return end - 1, self._done(now_ms)

    def snapshot_installed(self, snapshot: OffsetAndEpoch, control: Iterable[object], now_ms: int) -> Effects:
        """The leader's snapshot is in place of the log. `control`: its KRaftVersionRecord and VotersRecord, if any."""
        core = self._core
        core.history.restart_from_snapshot(snapshot.offset, control)
        core.flushed_offset = snapshot.offset
        follower = core.state
        if isinstance(follower, Follower):
            follower.snapshot = None
            replication.raise_follower_high_watermark(core, follower, snapshot.offset)
        else:
            core.raise_high_watermark(snapshot.offset)
        return self._done(now_ms)

    def snapshot_taken(self, end_offset: int) -> None:
        """This node wrote a snapshot of its own up to here; records before it may be deleted at the log's start."""
        self._core.history.snapshotted(end_offset)

    def upgrade_kraft_version(self, epoch: int, version: int, now_ms: int) -> Effects:
        """As the leader; raises an ApiError when not all voters are ready for it."""
        membership.upgrade(self._core, epoch, version, now_ms)
        return self._done(now_ms)

    def resign(self, epoch: int, now_ms: int) -> Effects:
        """Give up leadership of this epoch, such as when the application failed to apply what it committed."""
        if isinstance(self._core.state, Leader) and self._core.state.epoch == epoch:
            self._core.state.resign_requested = True
        return self._done(now_ms)

    def shutdown(self, timeout_ms: int, now_ms: int) -> Effects:
        """Hand leadership over and stop; `Stopped` tells when."""
        self._core.stop_deadline = now_ms + timeout_ms
        return self._done(now_ms)

    def _done(self, now_ms: int) -> Effects:
        core = self._core
        deadline = poll(core, now_ms)
        self._deadline = None if deadline >= NEVER else deadline
        effects, core.out = core.out, Effects()
        return effects
