"""The state of one member of the quorum, and the transitions between its roles.

Every step works on one `Core` and leaves what must be done in `out`. Transitions keep two promises: the epoch never
falls, and a vote that was given in an epoch is kept for as long as the epoch lasts; both are persisted with the step.
"""

from __future__ import annotations

from typing import Any

from ottla.metadata.consensus import replies
from ottla.metadata.consensus.config import CHECK_QUORUM_FACTOR, ConsensusConfig, Randomness
from ottla.metadata.consensus.control import ControlRecord, control_batch
from ottla.metadata.consensus.effects import (
    Append,
    Effects,
    HighWatermark,
    Persist,
    Reply,
    RoleChanged,
    Send,
    Stopped,
    Truncate,
)
from ottla.metadata.consensus.history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.leading import Leader
from ottla.metadata.consensus.log_view import LogView
from ottla.metadata.consensus.peers import Peers
from ottla.metadata.consensus.replies import Known
from ottla.metadata.consensus.states import Candidate, Follower, Prospective, Resigned, State, Tally, Unattached
from ottla.metadata.consensus.voters import RECONFIGURABLE, Endpoints, Node, ReplicaKey, VoterSet, address
from ottla.protocol.errors import NONE, NotLeader, by_code
from ottla.protocol.messages.records.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumState,
    QuorumStateVoter,
    Voter,
)
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterResponse
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterResponse
from ottla.protocol.wire.types import ZERO_UUID


class ConsensusBroken(Exception):
    """Two leaders in one epoch, or a leader that wants committed records back: nothing here may go on."""


class Core:
    """All that one member knows. Only the modules of this folder touch it."""

    def __init__(
        self,
        config: ConsensusConfig,
        log: LogView,
        stored: QuorumState | None,
        history: ControlHistory,
        random: Randomness,
    ) -> None:
        self.config = config
        self.log = log
        self.history = history
        self.random = random
        self.peers = Peers(config, random)
        self.out = Effects()
        self.persisted: tuple[QuorumState, int] | None = None
        self.flushed_offset = log.end_offset
        self.stop_deadline: int | None = None
        self.stopped = False
        self.told_high_watermark = -1
        self.state: State = Unattached(0)
        self._stored = stored if stored is not None else QuorumState(leader_epoch=0)

    # -- who is who --

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.config.local)

    @property
    def may_stand(self) -> bool:
        """Whether this node takes part in elections: as a voter, or until its removal is known to be committed.

        Without the latter, a leader that alone has the record of its own removal could block all others for ever: its
        log is the longest, so they need its vote or its records. (Kafka 4.3 does not do this.)
        """
        if self.is_voter:
            return True
        written = self.history.voters_offset
        uncommitted = written is not None and written >= self.told_high_watermark
        return uncommitted and self.history.voters_before.is_voter(self.config.local)

    @property
    def known(self) -> Known:
        return Known(self.state.leader_id, self.state.epoch, self.state.leader_endpoints)

    @property
    def stopping(self) -> bool:
        return self.stop_deadline is not None

    @property
    def high_watermark(self) -> int | None:
        return self.state.high_watermark

    def random_election_timeout(self) -> int:
        base = self.config.election_timeout_ms
        return base + self.random.randrange(base) if base else 0

    # -- effects --

    def send(self, node: Node, message: Any, now_ms: int) -> int:
        request_id = self.peers.sent(node, now_ms)
        self.out.messages.append(Send(request_id, node, message, self.config.request_timeout_ms))
        return request_id

    def reply(self, ticket: Any, message: Any) -> None:
        self.out.messages.append(Reply(ticket, message))

    def append_control(self, messages: list[ControlRecord], now_ms: int) -> int:
        """Returns the offset of the last record."""
        base = self.write_end
        end = base + len(messages)
        data = control_batch(messages, base_offset=base, epoch=self.state.epoch, now_ms=now_ms)
        self.out.writes.append(Append(base, end, data))
        self.out.flush = True
        for place, message in enumerate(messages):
            self.history.add(base + place, message)
        if isinstance(self.state, Leader):
            self.state.change_voters(self.voters)
        return end - 1

    @property
    def write_end(self) -> int:
        """The log's end once the writes of this step are done."""
        for write in reversed(self.out.writes):
            if isinstance(write, Append | Truncate):
                return write.end_offset
        return self.log.end_offset

    def raise_high_watermark(self, offset: int) -> None:
        """Told once and never backwards: a new leader starts without one, and may find it lower than it was known."""
        if offset > self.told_high_watermark:
            self.told_high_watermark = offset
            self.out.changes.append(HighWatermark(offset))

    # -- transitions --

    def start(self, now_ms: int) -> None:
        """Take up the role of before the stop. A leader comes back as resigned: what it wrote last may be lost."""
        stored, log_epoch, local = self._stored, self.log.last_epoch, self.config.local
        epoch = max(stored.leader_epoch, 0)
        voted = ReplicaKey(stored.voted_id, bytes(stored.voted_directory_id)) if stored.voted_id >= 0 else None
        deadline = now_ms + self.random_election_timeout()
        state: State
        if epoch < log_epoch:
            state = Unattached(log_epoch, election_deadline=deadline)
        elif stored.leader_id == local.id:
            others = {key.id for key in self.voters.replicas if key.id != local.id}
            state = Resigned(epoch, local.id, self.config.endpoints, deadline, others)
        elif voted is not None and voted.id == local.id and voted.directory in (ZERO_UUID, local.directory):
            state = Candidate(epoch, Tally(self.voters.replicas, local.id), deadline, local)
        elif stored.leader_id >= 0 and self.reachable(endpoints := self.voters.endpoints_of(stored.leader_id)):
            patience = now_ms + self.config.fetch_timeout_ms
            state = Follower(epoch, stored.leader_id, endpoints, patience, patience, voted)
        else:
            state = Unattached(epoch, stored.leader_id, voted, election_deadline=deadline)
        if isinstance(state, Candidate) and not self.may_stand:
            state = Unattached(epoch, voted=voted, election_deadline=deadline)
        self._enter(state)
        if isinstance(state, Candidate):
            self.after_votes(now_ms)
        elif self.voters.is_only_voter(local):
            self.become_prospective(now_ms)

    def become_unattached(self, epoch: int, leader_id: int, now_ms: int) -> None:
        state = self.state
        assert epoch >= state.epoch
        deadline: int | None
        if not self.may_stand:
            deadline = None
        elif isinstance(state, Prospective) and state.tally.is_lost:
            deadline = now_ms + self.random_election_timeout()
        elif isinstance(state, Candidate | Prospective | Resigned | Unattached) and state.election_deadline is not None:
            deadline = max(state.election_deadline, now_ms)
        else:
            deadline = now_ms + self.random_election_timeout()
        voted = state.voted if epoch == state.epoch else None
        self._enter(Unattached(epoch, leader_id, voted, state.high_watermark, deadline))
        self.peers.reset()

    def add_vote(self, key: ReplicaKey, now_ms: int) -> None:
        """A vote was given; the candidate has as good a chance as this node, so it is given its time."""
        state = self.state
        assert isinstance(state, Unattached | Prospective)
        assert state.voted is None
        deadline = now_ms + self.random_election_timeout()
        if isinstance(state, Unattached):
            self._enter(Unattached(state.epoch, state.leader_id, key, state.high_watermark, deadline))
        else:
            tally = Tally(self.voters.replicas, self.config.local.id)
            self._enter(
                Prospective(
                    state.epoch, tally, deadline, state.leader_id, state.leader_endpoints, key, state.high_watermark
                )
            )
            self.peers.reset()

    def become_prospective(self, now_ms: int) -> None:
        state = self.state
        assert self.may_stand
        assert not isinstance(state, Leader | Prospective)
        leader_id, endpoints = state.leader_id, state.leader_endpoints
        tally = Tally(self.voters.replicas, self.config.local.id)
        deadline = now_ms + self.random_election_timeout()
        self._enter(Prospective(state.epoch, tally, deadline, leader_id, endpoints, state.voted, state.high_watermark))
        self.peers.reset()
        self.after_votes(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        state = self.state
        assert isinstance(state, Prospective)
        tally = Tally(self.voters.replicas, self.config.local.id)
        deadline = now_ms + self.random_election_timeout()
        self._enter(Candidate(state.epoch + 1, tally, deadline, self.config.local, state.high_watermark))
        self.peers.reset()
        self.after_votes(now_ms)

    def after_votes(self, now_ms: int) -> None:
        """Go on to the next role when a round is won; a lost pre-vote round is over."""
        state = self.state
        if isinstance(state, Prospective):
            if state.tally.is_won:
                self.become_candidate(now_ms)
            elif state.tally.is_lost:
                self.give_up_pre_vote(now_ms)
        elif isinstance(state, Candidate) and state.tally.is_won:
            self.become_leader(state.tally.granting, now_ms)
        elif isinstance(state, Candidate) and state.tally.is_lost:
            # Votes were split: who tries again first, after a time of its own, will likely be alone.
            backoff = self.random.randrange(self.config.election_backoff_max_ms // 4 + 1)
            state.election_deadline = min(state.election_deadline, now_ms + self.config.retry_backoff_ms + backoff)

    def give_up_pre_vote(self, now_ms: int) -> None:
        """Back to the leader it still knows, or to waiting."""
        state = self.state
        assert isinstance(state, Prospective)
        if state.leader_id >= 0 and state.leader_id != self.config.local.id and self.reachable(state.leader_endpoints):
            self.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now_ms)
        else:
            self.become_unattached(state.epoch, state.leader_id, now_ms)

    def become_leader(self, granting: list[int], now_ms: int) -> None:
        """The start of an epoch is a control batch: who leads, and the voters where the log must (again) say so."""
        config, voters = self.config, self.voters
        check_ms = int(config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        leader = Leader(config.local_voter, self.state.epoch, self.write_end, voters, check_ms, now_ms)
        self._enter(leader)
        self.peers.reset()
        records: list[ControlRecord] = [
            LeaderChangeMessage(
                leader_id=config.local.id,
                voters=[Voter(voter_id=key.id) for key in voters.replicas],
                granting_voters=[Voter(voter_id=voter) for voter in granting],
            )
        ]
        if self.history.kraft_version >= RECONFIGURABLE:
            unwritten = self.history.voters_offset in (None, BOOTSTRAP_OFFSET)
            if unwritten or voters.needs_update(config.local_voter):
                updated = voters.updated(config.local_voter)
                assert updated is not None, "only a voter is elected"
                records += [KRaftVersionRecord(kraft_version=self.history.kraft_version), updated.to_record()]
        else:
            leader.upgrade = voters.updated(config.local_voter, any_directory=True)
        self.append_control(records, now_ms)
        leader.flushed(self.flushed_offset)

    def become_resigned(self, now_ms: int) -> None:
        state = self.state
        assert isinstance(state, Leader)
        deadline = now_ms + self.random_election_timeout()
        others = {voter for voter in state.voters if voter != self.config.local.id}
        resigned = Resigned(state.epoch, self.config.local.id, self.config.endpoints, deadline, others)
        resigned.successors, resigned.high_watermark = state.successors(), state.high_watermark
        self._enter(resigned)
        self.peers.reset()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        state = self.state
        if leader_id == self.config.local.id or (epoch == state.epoch and isinstance(state, Leader)):
            raise ConsensusBroken(f"asked to follow {leader_id} in epoch {epoch} while {state}")
        if not self.reachable(endpoints):
            # Without an address there is nobody to fetch from; bootstrap servers will tell it.
            if epoch > state.epoch:
                self.become_unattached(epoch, leader_id, now_ms)
            return
        voted = state.voted if epoch == state.epoch else None
        patience = now_ms + self.config.fetch_timeout_ms
        self._enter(Follower(epoch, leader_id, endpoints, patience, patience, voted, state.high_watermark))
        self.peers.reset()

    def discover(self, said: Known, now_ms: int) -> None:
        """Somebody named a leader or an epoch in a request or an answer."""
        state = self.state
        if not self._consistent(said):
            raise ConsensusBroken(f"leader {said.leader_id} of epoch {said.epoch}, but {state.leader_id} is known")
        if said.epoch > state.epoch:
            if said.leader_id >= 0:
                self.become_follower(said.epoch, said.leader_id, said.endpoints, now_ms)
            else:
                self.become_unattached(said.epoch, -1, now_ms)
        elif (
            said.epoch == state.epoch
            and said.leader_id >= 0
            and (state.leader_id < 0 or len(said.endpoints) > len(state.leader_endpoints))
            and said.leader_id != self.config.local.id
        ):
            self.become_follower(said.epoch, said.leader_id, said.endpoints, now_ms)

    def _consistent(self, said: Known) -> bool:
        if said.leader_id == self.config.local.id:
            # A stale word of this node's own leadership is harmless; one of an epoch it never led is not.
            return (
                self.state.leader_id == said.leader_id
                if said.epoch == self.state.epoch
                else said.epoch < self.state.epoch
            )
        return said.epoch != self.state.epoch or said.leader_id < 0 or self.state.leader_id in (-1, said.leader_id)

    def reachable(self, endpoints: Endpoints) -> bool:
        return address(endpoints, self.config.listener) is not None

    def _enter(self, state: State) -> None:
        left, self.state = self.state, state
        if isinstance(left, Leader):
            self._leave_leadership(left)
        self._persist()
        role = type(state).__name__.lower()
        self.out.changes.append(RoleChanged(role, state.epoch, state.leader_id))

    def _leave_leadership(self, left: Leader) -> None:
        """Whoever waits for this leader is sent elsewhere."""
        for parked in left.parked:
            start, error = self.log.start_offset, NotLeader.code
            answer = replies.fetch(self.known, parked.version, parked.listener, error=error, log_start_offset=start)
            self.reply(parked.ticket, answer)
        left.parked = []
        self._finish(left, NotLeader.code)

    def finish_change(self, error: int, message: str | None = None) -> None:
        """Answer the AddRaftVoter or RemoveRaftVoter that is under way, if any."""
        assert isinstance(self.state, Leader)
        self._finish(self.state, error, message)

    def _finish(self, leader: Leader, error: int, message: str | None = None) -> None:
        change, leader.change = leader.change, None
        if change is None or change.ticket is None:
            return
        if message is None and error != NONE:
            message = by_code(error)().message
        kind = AddRaftVoterResponse if change.adding is not None else RemoveRaftVoterResponse
        self.reply(change.ticket, kind(error_code=error, error_message=message))

    def _persist(self) -> None:
        state = self.state
        version = 1 if self.history.kraft_version >= RECONFIGURABLE else 0
        voted = state.voted
        content = QuorumState(
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            voted_id=voted.id if voted is not None else -1,
        )
        if version == 0:
            content.current_voters = [QuorumStateVoter(voter_id=key.id) for key in self.voters.replicas]
        elif voted is not None:
            content.voted_directory_id = voted.directory
        if self.persisted != (content, version):
            self.persisted = (content, version)
            self.out.persist = Persist(content, version)

    def stop(self, *, graceful: bool) -> None:
        self.stopped = True
        self.out.changes.append(Stopped(graceful))
