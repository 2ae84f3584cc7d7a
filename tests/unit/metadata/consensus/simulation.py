"""A whole quorum in one thread: one clock, one network, one random source, disks that lose unsynced writes in a crash.

Every message is encoded and decoded. Each step checks the invariants of consensus: one leader and one vote an epoch,
epochs and high watermarks that never fall, and one history on which all nodes agree up to their high watermarks. A seed
replays a run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from ottla.metadata.consensus import (
    Append,
    Consensus,
    ConsensusConfig,
    ControlHistory,
    Effects,
    Endpoint,
    HighWatermark,
    Node,
    OffsetAndEpoch,
    ReplicaKey,
    Reply,
    RoleChanged,
    Send,
    SnapshotChunk,
    Stopped,
    Truncate,
    Voter,
    VoterSet,
)
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, QuorumState, VotersRecord
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.messages.rpc.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.rpc.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.rpc.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.rpc.vote import VoteRequest, VoteResponse
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.records import Record, build_batch
from tests.unit.metadata.consensus.memory_log import MemoryLog, snapshot_control, snapshot_data, snapshot_digest

CLUSTER = "simulated"
LISTENER = "CONTROLLER"
VERSIONS: dict[type, tuple[int, type]] = {
    VoteRequest: (2, VoteResponse),
    BeginQuorumEpochRequest: (1, BeginQuorumEpochResponse),
    EndQuorumEpochRequest: (1, EndQuorumEpochResponse),
    FetchRequest: (18, FetchResponse),
    FetchSnapshotRequest: (1, FetchSnapshotResponse),
    AddRaftVoterRequest: (1, AddRaftVoterResponse),
    RemoveRaftVoterRequest: (0, RemoveRaftVoterResponse),
    UpdateRaftVoterRequest: (0, UpdateRaftVoterResponse),
    ApiVersionsRequest: (4, ApiVersionsResponse),
}
OLD_VERSIONS = {VoteRequest: 1, FetchRequest: 17}


def endpoint(node_id: int) -> Endpoint:
    return Endpoint(LISTENER, f"node{node_id}", 9000 + node_id)


class Network:
    """A network that delays, loses, duplicates and reorders messages, and honors partitions and cut links."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.loss = 0.0
        self.duplication = 0.0
        self.max_delay_ms = 8
        self.group: dict[int, int] = {}
        self.cut: set[tuple[int, int]] = set()
        """Cut links, as (from, to); the opposite direction may still work."""

    def isolate(self, *nodes: int) -> None:
        self.group = dict.fromkeys(nodes, 1)

    def heal(self) -> None:
        self.group = {}
        self.cut.clear()
        self.loss = self.duplication = 0.0

    def delays(self, source: int, target: int) -> list[int]:
        """Return when each copy of a message arrives."""
        if self.group.get(source, 0) != self.group.get(target, 0) or self.random.random() < self.loss:
            return []
        if (source, target) in self.cut:
            return []
        copies = 2 if self.random.random() < self.duplication else 1
        return [1 + self.random.randrange(self.max_delay_ms) for _ in range(copies)]


class SimulatedNode:
    """A node: its disk and, while it is up, its quorum member."""

    def __init__(self, sim: Simulation, key: ReplicaKey, *, old: bool = False, auto_join: bool = False) -> None:
        self.sim, self.key, self.old, self.auto_join = sim, key, old, auto_join
        self.log = MemoryLog()
        self.quorum_state: QuorumState | None = None
        self.consensus: Consensus | None = None
        self.incarnation = 0
        self.wake_at: int | None = None
        self.callers: deque[tuple[int, Callable[..., None]]] = deque(maxlen=50)
        """The nodes that sent the last requests. A lost connection does not harm those that were answered."""
        self.applied, self.digest, self.stopped = 0, 0, False

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def is_leader(self) -> bool:
        return self.consensus is not None and self.consensus.is_leader

    def start(self) -> None:
        assert self.consensus is None
        sim = self.sim
        history = ControlHistory(sim.static_voters)
        for offset, record in self.log.control():
            history.add(offset, record)
        config = ConsensusConfig(
            local=self.key,
            cluster_id=CLUSTER,
            listener=LISTENER,
            endpoints=(endpoint(self.id),),
            bootstrap=sim.bootstrap,
            auto_join=self.auto_join,
            retry_backoff_ms=50,
            fetch_max_bytes=400,
            fetch_snapshot_max_bytes=100,
        )
        self.consensus = Consensus(config, self.log, self.quorum_state, history, Random(sim.random.random()))
        self.applied, self.digest, self.stopped = 0, 0, False
        latest = self.log.latest_snapshot
        if latest is not None:
            self.applied, self.digest = latest.offset, snapshot_digest(self.log.snapshots[latest])
        self.step(lambda consensus: consensus.start(sim.now))

    def crash(self) -> None:
        self.consensus, self.wake_at = None, None
        self.incarnation += 1
        self.hang_up()
        self.log.crash(self.sim.random)

    def hang_up(self) -> None:
        """Break the connections of the node. The others notice if the network lets the news through."""
        for caller_id, fail in self.callers:
            for delay in self.sim.network.delays(self.id, caller_id)[:1]:
                self.sim.later(delay, partial(fail, lost=True))
        self.callers.clear()

    def step(self, call: Callable[[Consensus], Effects]) -> None:
        if self.consensus is not None:
            self.carry_out(call(self.consensus))
            if self.consensus is not None:
                self.sim.wake(self, self.consensus.next_deadline())
                self.sim.steps += 1

    def carry_out(self, effects: Effects) -> None:
        sim, consensus = self.sim, self.consensus
        assert consensus is not None
        if effects.persist is not None:
            self.persist(effects.persist.state)
        installed: OffsetAndEpoch | None = None
        for write in effects.writes:
            match write:
                case Append():
                    self.log.append(write.base_offset, bytes(write.data))
                    assert self.log.end_offset == write.end_offset
                case Truncate():
                    assert write.end_offset >= self.applied, "committed records are truncated"
                    self.log.truncate(write.end_offset)
                case SnapshotChunk():
                    self.log.partial = (self.log.partial if write.position else b"") + bytes(write.data)
                    if write.last:
                        installed = write.snapshot
                        self.log.install(write.snapshot, self.log.partial)
        for message in effects.messages:
            if isinstance(message, Send):
                sim.send(self, message)
            else:
                sim.reply(self, message)
        if installed is not None:
            self.applied, self.digest = installed.offset, snapshot_digest(self.log.partial)
            sim.agree(self)
        for change in effects.changes:
            match change:
                case RoleChanged(role, epoch, _):
                    if role == "leader":
                        assert sim.leaders.setdefault(epoch, self.key) == self.key, "two leaders in one epoch"
                case HighWatermark(offset):
                    self.apply(offset)
                case Stopped():
                    self.stopped = True
        if installed is not None:
            control = snapshot_control(self.log.snapshots[installed])
            self.carry_out(consensus.report_snapshot_installed(installed, control, sim.now))
        elif effects.writes:
            self.carry_out(consensus.report_appended(sim.now))
        if effects.flush:
            self.flush_later()

    def flush_later(self) -> None:
        end, epoch, changes = self.log.end_offset, self.log.last_epoch, len(self.log.unsynced)
        incarnation, log = self.incarnation, self.log

        def flushed() -> None:
            if self.incarnation == incarnation:
                log.sync(min(changes, len(log.unsynced)))
                self.step(lambda consensus: consensus.report_flushed(end, epoch, self.sim.now))

        self.sim.later(self.sim.random.randrange(self.sim.disk_ms), flushed)

    def persist(self, state: QuorumState) -> None:
        old = self.quorum_state
        assert old is None or state.leader_epoch >= old.leader_epoch, "the epoch fell"
        self.quorum_state = state
        if state.voted_id >= 0:
            vote = self.sim.votes.setdefault((self.key, state.leader_epoch), state.voted_id)
            assert vote == state.voted_id, "voted twice"

    def apply(self, high_watermark: int) -> None:
        assert high_watermark <= self.log.end_offset
        if high_watermark <= self.applied:
            return  # already known, from a snapshot
        for entry in self.log.entries:
            if self.applied <= entry.base < high_watermark:
                assert entry.end <= high_watermark, "half a batch is committed"
                self.digest = crc32(entry.data, self.digest)
                self.applied = entry.end
                self.sim.agree(self)
        assert self.applied == high_watermark

    def take_snapshot(self, *, trim: bool) -> None:
        """Write a snapshot of all applied records. Followers that are behind it must fetch it."""
        consensus = self.consensus
        latest = self.log.latest_snapshot
        if consensus is None or self.applied == 0 or (latest is not None and latest.offset >= self.applied):
            return
        epoch = next(entry.epoch for entry in self.log.entries if entry.end == self.applied)
        control: list[Any] = []
        voters = consensus.history.voters_at(self.applied - 1)
        version = consensus.history.kraft_version_at(self.applied - 1)
        if version:
            control.append((KRaftVersionRecord, encode(KRaftVersionRecord(kraft_version=version), 0)))
        if voters is not None:
            control.append((VotersRecord, encode(voters.to_record(), 0)))
        self.log.snapshot(OffsetAndEpoch(self.applied, epoch), snapshot_data(self.digest, control), trim=trim)
        consensus.report_snapshot_taken(self.applied)


class Simulation:
    """A quorum of voters, numbered from 1, and observers after them."""

    def __init__(
        self, *, seed: int, voters: int, observers: int = 0, static: bool = False, old: tuple[int, ...] = ()
    ) -> None:
        self.random = Random(seed)
        self.network = Network(self.random)
        self.now = 1_000_000
        self.steps = 0
        self.disk_ms = self.random.choice((2, 6, 40))
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], int] = {}
        self.agreed: dict[int, int] = {}
        self.answers: dict[int, Any] = {}
        keys = [ReplicaKey(node_id, bytes(15) + bytes([node_id])) for node_id in range(1, voters + observers + 1)]
        self.bootstrap = tuple(Node(-2 - place, *endpoint(key.id)[1:]) for place, key in enumerate(keys))
        self.static_voters = VoterSet.from_voters(
            Voter(ReplicaKey(key.id), (endpoint(key.id),)) for key in (keys[:voters] if static else ())
        )
        self.nodes = {key.id: SimulatedNode(self, key, old=key.id in old) for key in keys}
        if not static:
            initial = VoterSet.from_voters(Voter(key, (endpoint(key.id),), (0, 1)) for key in keys[:voters])
            for key in keys[:voters]:
                self.format(self.nodes[key.id], initial)
        for node in self.nodes.values():
            node.start()

    def format(self, node: SimulatedNode, voters: VoterSet) -> None:
        """Write the checkpoint 0-0, as `kafka-storage format --initial-controllers` does."""
        control: list[tuple[type, bytes]] = [
            (KRaftVersionRecord, encode(KRaftVersionRecord(kraft_version=1), 0)),
            (VotersRecord, encode(voters.to_record(), 0)),
        ]
        node.log.snapshots[OffsetAndEpoch(0, 0)] = snapshot_data(0, control)

    # -- time --

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay_ms, self._sequence, call))

    def wake(self, node: SimulatedNode, deadline: int | None) -> None:
        if deadline is None or node.wake_at == deadline:
            return
        node.wake_at = deadline
        incarnation = node.incarnation

        def tick() -> None:
            if node.incarnation == incarnation and node.wake_at == deadline:
                node.wake_at = None
                node.step(lambda consensus: consensus.tick(self.now))

        self.later(max(deadline - self.now, 0), tick)

    def run(self, ms: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Run until the condition holds or the time is over, and return whether it holds."""
        end = self.now + ms
        while self._events and self._events[0][0] <= end:
            if until is not None and until():
                return True
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = end
        return until is not None and until()

    # -- messages --

    def send(self, source: SimulatedNode, sent: Send) -> None:
        target_id = sent.to.port - 9000
        target = self.nodes.get(target_id)
        kind = type(sent.message)
        version, answer_kind = VERSIONS[kind]
        if target is not None and (target.old or source.old):
            version = OLD_VERSIONS.get(kind, version)
        incarnation = source.incarnation

        def fail(*, unsupported: bool = False, lost: bool = False) -> None:
            if source.incarnation == incarnation:
                source.step(
                    lambda consensus: consensus.handle_failure(
                        sent.id, self.now, unsupported_version=unsupported, connection_lost=lost
                    )
                )

        if isinstance(sent.message, VoteRequest) and version < 2 and sent.message.topics[0].partitions[0].pre_vote:
            self.later(0, lambda: fail(unsupported=True))
            return
        data = encode(sent.message, version)
        ticket = (source.id, incarnation, sent.id, version, answer_kind)
        for delay in self.network.delays(source.id, target_id):
            self.later(delay, lambda: self.deliver(target_id, ticket, kind, version, data, fail))
        self.later(sent.timeout_ms, fail)

    def deliver(
        self, target_id: int, ticket: Any, kind: type, version: int, data: bytes, fail: Callable[..., None]
    ) -> None:
        target = self.nodes.get(target_id)
        if target is None or target.consensus is None:
            fail(lost=True)
            return
        if ticket[0] != target_id:
            target.callers.append((ticket[0], fail))
        message: Any = decode(kind, version, data)
        if isinstance(message, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.reply(target, Reply(ticket, ApiVersionsResponse(supported_features=[feature])))
        else:
            target.step(lambda consensus: consensus.handle_request(ticket, message, version, LISTENER, self.now))

    def reply(self, source: SimulatedNode, reply: Reply) -> None:
        if isinstance(reply.ticket, int):
            self.answers[reply.ticket] = reply.message
            return
        ticket: Any = reply.ticket
        target_id, incarnation, request_id, version, kind = ticket
        assert type(reply.message) is kind
        data = encode(reply.message, version)

        def arrive() -> None:
            target = self.nodes.get(target_id)
            if target is not None and target.incarnation == incarnation:
                answer = decode(kind, version, data)
                target.step(lambda consensus: consensus.handle_response(request_id, answer, self.now))

        for delay in self.network.delays(source.id, target_id):
            self.later(delay, arrive)

    # -- promises --

    def agree(self, node: SimulatedNode) -> None:
        """Assert that all nodes agree on every record that any of them considered committed."""
        assert self.agreed.setdefault(node.applied, node.digest) == node.digest, "committed records differ"

    @property
    def committed(self) -> int:
        """Return the highest offset that any node knows to be committed."""
        return max(self.agreed, default=0)

    # -- what tests do --

    def leader(self) -> SimulatedNode | None:
        """Return the leader of the latest epoch, if it is up."""
        leading = [node for node in self.nodes.values() if node.is_leader]
        return max(leading, key=lambda node: node.consensus.epoch, default=None)  # type: ignore[union-attr]

    def run_until_leader(self, *, other_than: SimulatedNode | None = None, ms: int = 30_000) -> SimulatedNode:
        """Run until a leader has committed a record of its epoch."""

        def led() -> bool:
            node = self.leader()
            return node is not None and node is not other_than and node.consensus.high_watermark is not None  # type: ignore[union-attr]

        assert self.run(ms, until=led), f"no leader after {ms} ms"
        node = self.leader()
        assert node is not None
        return node

    def propose(self, node: SimulatedNode, value: bytes = b"value") -> int:
        """Append a record and return its offset."""
        offset = -1

        def call(consensus: Consensus) -> Effects:
            nonlocal offset
            batch = build_batch([Record(0, self.now, None, value)])
            offset, effects = consensus.propose(consensus.epoch, batch, self.now)
            return effects

        node.step(call)
        return offset

    def ask(self, node: SimulatedNode, message: Any, version: int | None = None) -> int:
        """Send a client request to a node. The response appears in `answers`."""
        self._sequence += 1
        ticket = self._sequence
        chosen = VERSIONS[type(message)][0] if version is None else version
        node.step(lambda consensus: consensus.handle_request(ticket, message, chosen, LISTENER, self.now))
        return ticket

    def add_voter(self, leader: SimulatedNode, node: SimulatedNode) -> int:
        at = endpoint(node.id)
        listeners = [Listener(name=at.name, host=at.host, port=at.port)]
        key = node.key
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=key.id, voter_directory_id=key.directory, listeners=listeners
        )
        return self.ask(leader, request)

    def remove_voter(self, leader: SimulatedNode, key: ReplicaKey) -> int:
        request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=key.id, voter_directory_id=key.directory)
        return self.ask(leader, request)
