"""One quorum member with scripted inputs: tests check its effects step by step."""

from typing import Any, TypeVar

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
    Truncate,
    Voter,
    VoterSet,
)
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, QuorumState
from ottla.protocol.messages.rpc import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from ottla.protocol.wire.records import Record, build_batch
from tests.unit.metadata.consensus.memory_log import MemoryLog

T = TypeVar("T")
CLUSTER, LISTENER, TOPIC = "cluster", "CONTROLLER", "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"


class Fixed:
    """Randomness that is always 0, so that election timeouts are exactly the configured ones."""

    def randrange(self, stop: int, /) -> int:
        return 0


def directory(node_id: int) -> bytes:
    return bytes(15) + bytes([node_id])


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def at(node_id: int) -> Endpoint:
    return Endpoint(LISTENER, f"host{node_id}", 9000 + node_id)


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), (at(node_id),), (0, 1))


def batch(base: int, epoch: int, count: int = 1) -> bytes:
    return bytes(
        build_batch([Record(base + n, 0, None, b"v") for n in range(count)], base_offset=base, leader_epoch=epoch)
    )


class Member:
    """Node 1 of a quorum of `voters`, with a log of batches given as (epoch, records)."""

    def __init__(
        self,
        *,
        voters: tuple[int, ...] = (1, 2, 3),
        log: tuple[tuple[int, int], ...] = (),
        stored: QuorumState | None = None,
        static: bool = False,
        local: ReplicaKey | None = None,
        **config: Any,
    ) -> None:
        self.log = MemoryLog()
        for epoch, count in log:
            self.log.append(self.log.end_offset, batch(self.log.end_offset, epoch, count))
        self.log.sync(len(log))
        if static:
            history = ControlHistory(VoterSet.from_voters(Voter(ReplicaKey(node), (at(node),)) for node in voters))
        else:
            history = ControlHistory()
            history.add(-1, KRaftVersionRecord(kraft_version=1))
            history.add(-1, VoterSet.from_voters(voter(node) for node in voters).to_record())
        self.config = ConsensusConfig(
            local=local if local is not None else key(1),
            cluster_id=CLUSTER,
            listener=LISTENER,
            endpoints=(at(1),),
            bootstrap=(Node(-2, "host2", 9002), Node(-3, "host3", 9003)),
            **config,
        )
        self.now = 10_000
        self.consensus = Consensus(self.config, self.log, stored, history, Fixed())
        self.effects = Effects()
        self.auto_flush = True
        self.done(self.consensus.start(self.now))

    # -- driving --

    def done(self, effects: Effects) -> Effects:
        """Carry out the writes, and merge the effects that follow from them."""
        self.effects = effects
        for write in effects.writes:
            match write:
                case Append():
                    self.log.append(write.base_offset, bytes(write.data))
                case Truncate():
                    self.log.truncate(write.end_offset)
                case SnapshotChunk():
                    self.log.partial = (self.log.partial if write.position else b"") + bytes(write.data)
                    if write.last:
                        self.log.install(write.snapshot, self.log.partial)
                        self._join(effects, self.consensus.report_snapshot_installed(write.snapshot, (), self.now))
        if effects.writes:
            self._join(effects, self.consensus.report_appended(self.now))
        if effects.flush and self.auto_flush:
            self._join(effects, self.flush())
        return effects

    def _join(self, effects: Effects, more: Effects) -> None:
        assert not more.writes
        effects.persist = more.persist or effects.persist
        effects.messages += more.messages
        effects.changes += more.changes

    def flush(self) -> Effects:
        self.log.sync(len(self.log.unsynced))
        return self.consensus.report_flushed(self.log.end_offset, self.log.last_epoch, self.now)

    def wait(self, ms: int) -> Effects:
        self.now += ms
        return self.done(self.consensus.tick(self.now))

    def ask(self, message: Any, version: int, ticket: str = "asked") -> Effects:
        return self.done(self.consensus.handle_request(ticket, message, version, LISTENER, self.now))

    def answer(self, sent: Send, message: Any) -> Effects:
        return self.done(self.consensus.handle_response(sent.id, message, self.now))

    # -- reading --

    def sent(self, kind: type[T]) -> list[tuple[Send, T]]:
        return [(m, m.message) for m in self.effects.messages if isinstance(m, Send) and isinstance(m.message, kind)]

    def reply(self, kind: type[T], ticket: str = "asked") -> T:
        (found,) = [m.message for m in self.effects.messages if isinstance(m, Reply) and m.ticket == ticket]
        assert isinstance(found, kind)
        return found

    def replied(self) -> bool:
        return any(isinstance(message, Reply) for message in self.effects.messages)

    @property
    def roles(self) -> list[tuple[str, int, int]]:
        return [(c.role, c.epoch, c.leader_id) for c in self.effects.changes if isinstance(c, RoleChanged)]

    @property
    def high_watermarks(self) -> list[int]:
        return [change.offset for change in self.effects.changes if isinstance(change, HighWatermark)]

    # -- common sequences --

    def elect(self) -> Effects:
        """Time out, and win the pre-vote and the vote with node 2's votes."""
        self.wait(1_000)
        for _ in range(2):
            sent = next(send for send, _ in self.sent(vote.VoteRequest) if send.to.id == 2)
            self.answer(sent, voted(self.consensus.epoch, granted=True))
        assert self.consensus.is_leader
        return self.effects

    def follow(self, leader: int = 2, epoch: int = 1) -> Effects:
        self.ask(begin(leader, epoch), 1)
        assert (self.consensus.role, self.consensus.leader_id) == ("follower", leader)
        return self.effects

    def follow_as_observer(self, leader: int, epoch: int) -> Effects:
        """Let an observer find the leader by its own fetch: leaders send it no BeginQuorumEpoch."""
        sent = next(send for send, _ in self.sent(fetch.FetchRequest))
        self.answer(sent, fetched(leader, epoch, error=6))
        assert (self.consensus.role, self.consensus.leader_id) == ("follower", leader)
        return self.effects


# -- messages of other nodes --


def vote_request(
    node: int = 2,
    *,
    epoch: int,
    last: tuple[int, int] = (0, 0),
    pre_vote: bool = False,
    to: ReplicaKey | None = None,
    **also: Any,
) -> vote.VoteRequest:
    """`last`: the candidate's last epoch and end offset."""
    target = to if to is not None else key(1)
    partition = vote.PartitionData(
        replica_epoch=epoch,
        replica_id=node,
        replica_directory_id=directory(node),
        voter_directory_id=target.directory,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    given = {"cluster_id": CLUSTER, **also}
    return vote.VoteRequest(
        voter_id=target.id, topics=[vote.TopicData(topic_name=TOPIC, partitions=[partition])], **given
    )


def voted(epoch: int, *, granted: bool, leader: int = -1, error: int = 0) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(leader_epoch=epoch, leader_id=leader, vote_granted=granted, error_code=error)
    return vote.VoteResponse(topics=[vote.ResponseTopicData(topic_name=TOPIC, partitions=[partition])])


def begin(leader: int, epoch: int, to: ReplicaKey | None = None) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    target = to if to is not None else key(1)
    partition = begin_quorum_epoch.PartitionData(
        voter_directory_id=target.directory, leader_id=leader, leader_epoch=epoch
    )
    where = at(leader)
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=CLUSTER,
        voter_id=target.id,
        topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name=where.name, host=where.host, port=where.port)],
    )


def end(leader: int, epoch: int, successors: tuple[int, ...]) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.PartitionData(
        leader_id=leader,
        leader_epoch=epoch,
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=node, candidate_directory_id=directory(node))
            for node in successors
        ],
    )
    topic = end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER, topics=[topic])


def fetch_request(
    node: int = 2,
    *,
    epoch: int,
    offset: int,
    last_epoch: int = 0,
    max_wait_ms: int = 500,
    high_watermark: int = -1,
    **also: Any,
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=directory(node),
        high_watermark=high_watermark,
    )
    given = {"cluster_id": CLUSTER, **also}
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=node),
        max_wait_ms=max_wait_ms,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        **given,
    )


def fetched(
    leader: int, epoch: int, *, records: bytes = b"", high_watermark: int = -1, error: int = 0,
    diverging: OffsetAndEpoch | None = None, snapshot: OffsetAndEpoch | None = None,
) -> fetch.FetchResponse:  # fmt: skip
    partition = fetch.PartitionData(
        error_code=error,
        high_watermark=high_watermark,
        records=records,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(epoch=snapshot.epoch, end_offset=snapshot.offset)
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    ends = [fetch.NodeEndpoint(node_id=leader, host=at(leader).host, port=at(leader).port)] if leader >= 0 else []
    return fetch.FetchResponse(responses=[topic], node_endpoints=ends)


def snapshot_piece(
    leader: int, epoch: int, snapshot: OffsetAndEpoch, position: int, data: bytes, size: int
) -> fetch_snapshot.FetchSnapshotResponse:
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        size=size,
        position=position,
        unaligned_records=data,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])]
    )
