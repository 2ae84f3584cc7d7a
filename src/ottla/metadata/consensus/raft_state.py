"""The state of one quorum member, and the transitions between its roles.

Every step changes one `RaftState` and collects its effects in `out`. The transitions keep two invariants: the epoch
never falls, and a vote lasts as long as its epoch. Epoch and vote are persisted with the step that changes them.
"""

from __future__ import annotations

from typing import Any

from ottla.metadata.consensus import responses
from ottla.metadata.consensus.config import CHECK_QUORUM_FACTOR, ConsensusConfig, Randomness
from ottla.metadata.consensus.control_history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.control_records import ControlRecord, control_batch
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
from ottla.metadata.consensus.in_flight_requests import InFlightRequests
from ottla.metadata.consensus.leader import Leader
from ottla.metadata.consensus.log_view import LogView
from ottla.metadata.consensus.responses import LeaderAndEpoch
from ottla.metadata.consensus.roles import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Role,
    Tally,
    Unattached,
    role_name,
)
from ottla.metadata.consensus.voters import RECONFIGURABLE, Endpoints, Node, ReplicaKey, VoterSet, find_endpoint
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
    """Two leaders in one epoch, or a leader that would truncate committed records. The node must stop."""


class RaftState:
    """Everything that one member knows. Only the modules of this room touch it."""

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
        self.in_flight = InFlightRequests(config, random)
        self.out = Effects()
        self.persisted: tuple[QuorumState, int] | None = None
        self.flushed_offset = log.end_offset
        self.stop_deadline: int | None = None
        self.is_stopped = False
        self.reported_high_watermark = -1
        self.role: Role = Unattached(0)
        self._stored = stored if stored is not None else QuorumState(leader_epoch=0)

    # -- identity --

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.config.local)

    @property
    def can_stand(self) -> bool:
        """Whether this node takes part in elections: it is a voter, or its removal is not known to be committed.

        A removed leader may be the only node that has the record of its removal. Its log is then the longest, so the
        others need its vote or its records; if it took no part, they could never elect a leader. Kafka 4.3 does not
        handle this case.
        """
        if self.is_voter:
            return True
        written = self.history.voters_offset
        uncommitted = written is not None and written >= self.reported_high_watermark
        return uncommitted and self.history.voters_before.is_voter(self.config.local)

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.role.leader_id, self.role.epoch, self.role.leader_endpoints)

    @property
    def is_stopping(self) -> bool:
        return self.stop_deadline is not None

    def random_election_timeout(self) -> int:
        base = self.config.election_timeout_ms
        return base + self.random.randrange(base) if base else 0

    # -- effects --

    def send(self, node: Node, message: Any, now_ms: int) -> int:
        request_id = self.in_flight.add(node, now_ms)
        self.out.messages.append(Send(request_id, node, message, self.config.request_timeout_ms))
        return request_id

    def reply(self, ticket: Any, message: Any) -> None:
        self.out.messages.append(Reply(ticket, message))

    def append_control(self, messages: list[ControlRecord], now_ms: int) -> int:
        """Append one batch of control records, and return the offset of the last one."""
        base = self.write_end
        end = base + len(messages)
        data = control_batch(messages, base_offset=base, epoch=self.role.epoch, now_ms=now_ms)
        self.out.writes.append(Append(base, end, data))
        self.out.flush = True
        for index, message in enumerate(messages):
            self.history.add(base + index, message)
        if isinstance(self.role, Leader):
            self.role.change_voters(self.voters)
        return end - 1

    @property
    def write_end(self) -> int:
        """The end offset of the log once the writes of this step are done."""
        for write in reversed(self.out.writes):
            if isinstance(write, Append | Truncate):
                return write.end_offset
        return self.log.end_offset

    def raise_high_watermark(self, offset: int) -> None:
        """Report a higher high watermark. A new leader starts without one, and may first compute a lower one."""
        if offset > self.reported_high_watermark:
            self.reported_high_watermark = offset
            self.out.changes.append(HighWatermark(offset))

    # -- transitions --

    def start(self, now_ms: int) -> None:
        """Resume the stored role. A former leader starts as resigned, because its last records may be lost."""
        stored, log_epoch, local = self._stored, self.log.last_epoch, self.config.local
        epoch = max(stored.leader_epoch, 0)
        voted = ReplicaKey(stored.voted_id, bytes(stored.voted_directory_id)) if stored.voted_id >= 0 else None
        deadline = now_ms + self.random_election_timeout()
        role: Role
        if epoch < log_epoch:
            role = Unattached(log_epoch, election_deadline=deadline)
        elif stored.leader_id == local.id:
            others = {key.id for key in self.voters.replicas if key.id != local.id}
            role = Resigned(epoch, local.id, self.config.endpoints, deadline, others)
        elif voted is not None and voted.id == local.id and voted.directory in (ZERO_UUID, local.directory):
            role = Candidate(epoch, Tally(self.voters.replicas, local.id), deadline, local)
        elif stored.leader_id >= 0 and self.is_reachable(endpoints := self.voters.endpoints_of(stored.leader_id)):
            fetch_deadline = now_ms + self.config.fetch_timeout_ms
            role = Follower(epoch, stored.leader_id, endpoints, fetch_deadline, fetch_deadline, voted)
        else:
            role = Unattached(epoch, stored.leader_id, voted, election_deadline=deadline)
        if isinstance(role, Candidate) and not self.can_stand:
            role = Unattached(epoch, voted=voted, election_deadline=deadline)
        self._transition_to(role)
        if isinstance(role, Candidate):
            self.conclude_round(now_ms)
        elif self.voters.is_only_voter(local):
            self.become_prospective(now_ms)

    def become_unattached(self, epoch: int, leader_id: int, now_ms: int) -> None:
        role = self.role
        assert epoch >= role.epoch
        deadline: int | None
        if not self.can_stand:
            deadline = None
        elif isinstance(role, Prospective) and role.tally.is_lost:
            deadline = now_ms + self.random_election_timeout()
        elif isinstance(role, Candidate | Prospective | Resigned | Unattached) and role.election_deadline is not None:
            deadline = max(role.election_deadline, now_ms)
        else:
            deadline = now_ms + self.random_election_timeout()
        voted = role.voted if epoch == role.epoch else None
        self._transition_to(Unattached(epoch, leader_id, voted, role.high_watermark, deadline))
        self.in_flight.reset()

    def add_vote(self, key: ReplicaKey, now_ms: int) -> None:
        """Record a vote. It restarts the election timeout, which gives the candidate time to win."""
        role = self.role
        assert isinstance(role, Unattached | Prospective)
        assert role.voted is None
        deadline = now_ms + self.random_election_timeout()
        if isinstance(role, Unattached):
            self._transition_to(Unattached(role.epoch, role.leader_id, key, role.high_watermark, deadline))
        else:
            tally = Tally(self.voters.replicas, self.config.local.id)
            self._transition_to(
                Prospective(
                    role.epoch, tally, deadline, role.leader_id, role.leader_endpoints, key, role.high_watermark
                )
            )
            self.in_flight.reset()

    def become_prospective(self, now_ms: int) -> None:
        role = self.role
        assert self.can_stand
        assert not isinstance(role, Leader | Prospective)
        leader_id, endpoints = role.leader_id, role.leader_endpoints
        tally = Tally(self.voters.replicas, self.config.local.id)
        deadline = now_ms + self.random_election_timeout()
        self._transition_to(
            Prospective(role.epoch, tally, deadline, leader_id, endpoints, role.voted, role.high_watermark)
        )
        self.in_flight.reset()
        self.conclude_round(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        role = self.role
        assert isinstance(role, Prospective)
        tally = Tally(self.voters.replicas, self.config.local.id)
        deadline = now_ms + self.random_election_timeout()
        self._transition_to(Candidate(role.epoch + 1, tally, deadline, self.config.local, role.high_watermark))
        self.in_flight.reset()
        self.conclude_round(now_ms)

    def conclude_round(self, now_ms: int) -> None:
        """Take the next role if a round is won, or leave a lost pre-vote round."""
        role = self.role
        if isinstance(role, Prospective):
            if role.tally.is_won:
                self.become_candidate(now_ms)
            elif role.tally.is_lost:
                self.end_pre_vote(now_ms)
        elif isinstance(role, Candidate) and role.tally.is_won:
            self.become_leader(role.tally.granting, now_ms)
        elif isinstance(role, Candidate) and role.tally.is_lost:
            # The votes were split. A random backoff makes it likely that only one voter tries next.
            backoff = self.random.randrange(self.config.election_backoff_max_ms // 4 + 1)
            role.election_deadline = min(role.election_deadline, now_ms + self.config.retry_backoff_ms + backoff)

    def end_pre_vote(self, now_ms: int) -> None:
        """Return to the known leader, or to unattached."""
        role = self.role
        assert isinstance(role, Prospective)
        if role.leader_id >= 0 and role.leader_id != self.config.local.id and self.is_reachable(role.leader_endpoints):
            self.become_follower(role.epoch, role.leader_id, role.leader_endpoints, now_ms)
        else:
            self.become_unattached(role.epoch, role.leader_id, now_ms)

    def become_leader(self, granting: list[int], now_ms: int) -> None:
        """Start an epoch with a control batch: the leader, and the voters if the log lacks them or is out of date."""
        config, voters = self.config, self.voters
        check_ms = int(config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        leader = Leader(config.local_voter, self.role.epoch, self.write_end, voters, check_ms, now_ms)
        self._transition_to(leader)
        self.in_flight.reset()
        records: list[ControlRecord] = [
            LeaderChangeMessage(
                leader_id=config.local.id,
                voters=[Voter(voter_id=key.id) for key in voters.replicas],
                granting_voters=[Voter(voter_id=voter) for voter in granting],
            )
        ]
        if self.history.kraft_version >= RECONFIGURABLE:
            has_no_voters_record = self.history.voters_offset in (None, BOOTSTRAP_OFFSET)
            if has_no_voters_record or voters.needs_update(config.local_voter):
                updated = voters.with_update(config.local_voter)
                assert updated is not None, "only a voter is elected"
                records += [KRaftVersionRecord(kraft_version=self.history.kraft_version), updated.to_record()]
        else:
            leader.upgrade_voters = voters.with_update(config.local_voter, any_directory=True)
        self.append_control(records, now_ms)
        leader.record_flush(self.flushed_offset)

    def become_resigned(self, now_ms: int) -> None:
        role = self.role
        assert isinstance(role, Leader)
        deadline = now_ms + self.random_election_timeout()
        others = {voter for voter in role.voters if voter != self.config.local.id}
        resigned = Resigned(role.epoch, self.config.local.id, self.config.endpoints, deadline, others)
        resigned.successors, resigned.high_watermark = role.successors(), role.high_watermark
        self._transition_to(resigned)
        self.in_flight.reset()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        role = self.role
        if leader_id == self.config.local.id or (epoch == role.epoch and isinstance(role, Leader)):
            raise ConsensusBroken(f"node {leader_id} claims to lead epoch {epoch}, which this node leads")
        if not self.is_reachable(endpoints):
            # The leader's address is not known yet; a bootstrap server will name it.
            if epoch > role.epoch:
                self.become_unattached(epoch, leader_id, now_ms)
            return
        voted = role.voted if epoch == role.epoch else None
        fetch_deadline = now_ms + self.config.fetch_timeout_ms
        self._transition_to(
            Follower(epoch, leader_id, endpoints, fetch_deadline, fetch_deadline, voted, role.high_watermark)
        )
        self.in_flight.reset()

    def learn_leader(self, leader: LeaderAndEpoch, now_ms: int) -> None:
        """Act on the leader and epoch that a request or response of another node names."""
        role = self.role
        if not self._is_consistent(leader):
            raise ConsensusBroken(
                f"another node names leader {leader.leader_id} for epoch {leader.epoch}; "
                f"this node knows leader {role.leader_id} in epoch {role.epoch}"
            )
        if leader.epoch > role.epoch:
            if leader.leader_id >= 0:
                self.become_follower(leader.epoch, leader.leader_id, leader.endpoints, now_ms)
            else:
                self.become_unattached(leader.epoch, -1, now_ms)
        elif (
            leader.epoch == role.epoch
            and leader.leader_id >= 0
            and (role.leader_id < 0 or len(leader.endpoints) > len(role.leader_endpoints))
            and leader.leader_id != self.config.local.id
        ):
            self.become_follower(leader.epoch, leader.leader_id, leader.endpoints, now_ms)

    def _is_consistent(self, leader: LeaderAndEpoch) -> bool:
        if leader.leader_id == self.config.local.id:
            # Stale information about this node's own leadership is harmless. An epoch that it never led is an error.
            return (
                self.role.leader_id == leader.leader_id
                if leader.epoch == self.role.epoch
                else leader.epoch < self.role.epoch
            )
        return leader.epoch != self.role.epoch or leader.leader_id < 0 or self.role.leader_id in (-1, leader.leader_id)

    def is_reachable(self, endpoints: Endpoints) -> bool:
        return find_endpoint(endpoints, self.config.listener) is not None

    def _transition_to(self, role: Role) -> None:
        previous, self.role = self.role, role
        if isinstance(previous, Leader):
            self._end_leadership(previous)
        self._persist()
        self.out.changes.append(RoleChanged(role_name(role), role.epoch, role.leader_id))

    def _end_leadership(self, leader: Leader) -> None:
        """Answer everything that waits for this leader with NOT_LEADER_OR_FOLLOWER."""
        for fetch in leader.waiting_fetches:
            start, error = self.log.start_offset, NotLeader.code
            response = responses.fetch(
                self.leader_and_epoch,
                fetch.version,
                fetch.listener,
                error=error,
                log_start_offset=start,
            )
            self.reply(fetch.ticket, response)
        leader.waiting_fetches = []
        self._answer_change(leader, NotLeader.code)

    def finish_change(self, error: int, message: str | None = None) -> None:
        """Answer the pending AddRaftVoter or RemoveRaftVoter, if there is one."""
        assert isinstance(self.role, Leader)
        self._answer_change(self.role, error, message)

    def _answer_change(self, leader: Leader, error: int, message: str | None = None) -> None:
        change, leader.change = leader.change, None
        if change is None or change.ticket is None:
            return
        if message is None and error != NONE:
            message = by_code(error)().message
        kind = AddRaftVoterResponse if change.adding is not None else RemoveRaftVoterResponse
        self.reply(change.ticket, kind(error_code=error, error_message=message))

    def _persist(self) -> None:
        role = self.role
        version = 1 if self.history.kraft_version >= RECONFIGURABLE else 0
        voted = role.voted
        content = QuorumState(
            leader_id=role.leader_id,
            leader_epoch=role.epoch,
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
        self.is_stopped = True
        self.out.changes.append(Stopped(graceful))
