"""Replication, one rule at a time: fetches, divergence, snapshots, the high watermark."""

import pytest

from ottla.metadata.consensus import Append, ConsensusBroken, OffsetAndEpoch, SnapshotChunk, Truncate
from ottla.protocol.errors import (
    BrokerNotAvailable,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    NotLeader,
    PositionOutOfRange,
    SnapshotNotFound,
    UnknownLeaderEpoch,
)
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.messages.rpc.describe_quorum import PartitionData as Described
from ottla.protocol.messages.rpc.describe_quorum import TopicData as DescribedTopic
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.rpc.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from ottla.protocol.wire.records import Record, build_batch
from tests.unit.metadata.consensus.scripted import (
    TOPIC,
    Member,
    batch,
    begin,
    directory,
    fetch_request,
    fetched,
    snapshot_piece,
    vote_request,
)


def part(member: Member, ticket: str = "asked") -> PartitionData:
    return member.reply(FetchResponse, ticket).responses[0].partitions[0]


def leading(**given: object) -> Member:
    member = Member(**given)  # type: ignore[arg-type]
    member.elect()
    return member


# -- the follower --


def test_a_follower_fetches_from_its_end_with_its_last_epoch() -> None:
    member = Member(log=((1, 4),))
    member.follow(2, 3)
    ((send, request),) = member.sent(FetchRequest)
    asked = request.topics[0].partitions[0]
    assert (send.to.id, send.to.host, send.to.port) == (2, "host2", 9002)
    assert (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (3, 4, 1)
    assert (asked.replica_directory_id, asked.high_watermark) == (directory(1), -1)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.cluster_id, request.max_wait_ms) == (1, "cluster", 500)


def test_a_voter_fetches_only_when_its_log_is_durable() -> None:
    """A fetch offset acknowledges all records before it."""
    member = Member()
    member.auto_flush = False
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=batch(0, 1, 3), high_watermark=1))
    (write,) = member.effects.writes
    assert isinstance(write, Append)
    assert (write.base_offset, write.end_offset, member.effects.flush) == (0, 3, True)
    assert member.high_watermarks == [1]
    assert not member.sent(FetchRequest)
    member.effects = member.flush()
    ((_, request),) = member.sent(FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 3
    assert request.topics[0].partitions[0].high_watermark == 1


def test_a_flush_from_before_a_truncation_does_not_count() -> None:
    member = Member()
    member.auto_flush = False
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=batch(0, 1, 3)))
    member.follow(3, 2)  # it has an uncommitted tail of epoch 1, whose flush is in progress
    assert not member.sent(FetchRequest)
    member.effects = member.flush()
    member.answer(member.sent(FetchRequest)[0][0], fetched(3, 2, diverging=OffsetAndEpoch(0, 0)))
    member.answer(member.sent(FetchRequest)[0][0], fetched(3, 2, records=batch(0, 2, 3)))
    member.effects = member.consensus.report_flushed(3, 1, member.now)
    assert not member.sent(FetchRequest)
    member.effects = member.consensus.report_flushed(3, 2, member.now)
    assert member.sent(FetchRequest)


def test_a_truncation_during_a_flush_starts_another_flush() -> None:
    """An unattached node fetches although its log is not durable; otherwise it would never find a leader."""
    member = Member()
    member.auto_flush = False
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=batch(0, 1) + batch(1, 1, 2)))
    member.ask(vote_request(3, epoch=2, last=(1, 1)), 2)
    ((send, request),) = member.sent(FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 3
    member.answer(send, fetched(3, 2, diverging=OffsetAndEpoch(1, 1)))
    assert member.effects.writes == [Truncate(1)]
    assert member.effects.flush
    member.effects = member.consensus.report_flushed(3, 1, member.now)
    assert not member.sent(FetchRequest)
    member.effects = member.consensus.report_flushed(1, 1, member.now)
    assert member.sent(FetchRequest)


def test_a_followers_high_watermark_never_exceeds_its_log() -> None:
    member = Member()
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=batch(0, 1, 2), high_watermark=50))
    assert member.high_watermarks == [2]


def test_corrupt_or_misplaced_batches_are_not_written() -> None:
    good, late = batch(0, 1), batch(5, 1)
    broken = bytearray(batch(1, 1))
    broken[-1] ^= 1
    for tail in (bytes(broken), late, batch(1, 9), good[:30]):
        member = Member()
        member.follow(2, 1)
        member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=good + tail))
        assert member.log.end_offset == 1
    member = Member()
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=late))
    assert not member.effects.writes
    assert member.sent(FetchRequest)[0][0].to.id < 0, "the leader is given a pause, others are asked"


def test_a_follower_truncates_where_its_log_diverges() -> None:
    member = Member(log=((1, 2), (2, 3)))
    member.follow(2, 4)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 4, diverging=OffsetAndEpoch(4, 1)))
    assert member.effects.writes == [Truncate(2)], "its own epoch 1 ends there"
    ((_, request),) = member.sent(FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 2


def test_truncating_committed_records_raises_an_error() -> None:
    member = Member(log=((1, 5),))
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, high_watermark=5))
    with pytest.raises(ConsensusBroken):
        member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, diverging=OffsetAndEpoch(3, 1)))


def test_a_follower_far_behind_fetches_the_snapshot_in_chunks() -> None:
    member = Member()
    member.follow(2, 7)
    snapshot = OffsetAndEpoch(40, 6)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 7, snapshot=snapshot))
    for position, data in ((0, b"ab"), (2, b"cd"), (4, b"e")):
        ((send, request),) = member.sent(FetchSnapshotRequest)
        asked = request.topics[0].partitions[0]
        assert (asked.snapshot_id.end_offset, asked.snapshot_id.epoch, asked.position) == (40, 6, position)
        assert (asked.current_leader_epoch, asked.replica_directory_id) == (7, directory(1))
        member.answer(send, snapshot_piece(2, 7, snapshot, position, data, 5))
        assert member.effects.writes == [SnapshotChunk(snapshot, position, data, position == 4)]
    assert member.log.snapshots == {snapshot: b"abcde"}
    assert member.high_watermarks == [40]
    ((_, fetch),) = member.sent(FetchRequest)
    asked_log = fetch.topics[0].partitions[0]
    assert (asked_log.fetch_offset, asked_log.last_fetched_epoch) == (40, 6)


def test_a_deleted_snapshot_is_no_longer_fetched() -> None:
    member = Member()
    member.follow(2, 7)
    snapshot = OffsetAndEpoch(40, 6)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 7, snapshot=snapshot))
    answer = snapshot_piece(2, 7, snapshot, 0, b"", 0)
    answer.topics[0].partitions[0].error_code = SnapshotNotFound.code
    member.answer(member.sent(FetchSnapshotRequest)[0][0], answer)
    assert member.sent(FetchRequest)


def test_a_follower_without_responses_starts_a_pre_vote_after_the_fetch_timeout() -> None:
    member = Member()
    member.follow(2, 1)
    member.wait(1_999)
    assert member.consensus.role == "follower"
    member.wait(1)
    assert member.consensus.role == "prospective"


def test_an_observer_finds_the_leader_through_bootstrap_servers() -> None:
    member = Member(voters=(2, 3))
    ((send, request),) = member.sent(FetchRequest)
    assert (send.to.id, send.to.host) == (-2, "host2")
    member.answer(send, fetched(3, 5, error=NotLeader.code))
    assert member.roles == [("follower", 5, 3)]
    ((send, request),) = member.sent(FetchRequest)
    assert (send.to.id, send.to.host, request.topics[0].partitions[0].current_leader_epoch) == (3, "host3", 5)


def test_records_of_a_bootstrap_server_that_leads_are_appended_at_once() -> None:
    member = Member(voters=(2, 3), stored=None)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 0, records=batch(0, 0)))
    assert member.consensus.leader_id == 2
    assert member.log.end_offset == 1


# -- the leader --


def test_nothing_is_committed_before_a_record_of_the_leaders_own_epoch() -> None:
    member = leading(log=((1, 4),))
    assert member.log.end_offset == 7
    member.ask(fetch_request(epoch=2, offset=4, last_epoch=1), 18)
    assert member.consensus.high_watermark is None
    assert len(part(member).records or b"") > 0
    member.ask(fetch_request(epoch=2, offset=7, last_epoch=2), 18)
    assert member.high_watermarks == [7]


def test_a_leader_counts_its_own_records_only_when_they_are_durable() -> None:
    member = leading(voters=(1, 2))
    member.auto_flush = False
    member.ask(fetch_request(epoch=1, offset=3, last_epoch=1), 18)
    assert member.high_watermarks == [3]
    _, effects = member.consensus.propose(1, bytearray(batch(0, 0)), member.now)
    member.done(effects)
    member.ask(fetch_request(epoch=1, offset=4, last_epoch=1), 18)
    assert member.high_watermarks == []
    member.effects = member.flush()
    assert member.high_watermarks == [4]


def test_proposed_batches_get_offsets_and_the_epoch() -> None:
    member = leading()
    batches = build_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])
    last, effects = member.consensus.propose(1, batches + build_batch([Record(0, 0, None, b"c")]), member.now)
    member.done(effects)
    assert last == 5
    assert [(entry.base, entry.end, entry.epoch) for entry in member.log.entries[-2:]] == [(3, 5, 1), (5, 6, 1)]
    with pytest.raises(NotLeader):
        member.consensus.propose(2, bytearray(batch(0, 0)), member.now)


def test_a_fetch_waits_for_records() -> None:
    member = leading()
    member.ask(fetch_request(epoch=1, offset=3, last_epoch=1, high_watermark=3), 18, "parked")
    assert not member.replied()
    _, effects = member.consensus.propose(1, bytearray(batch(0, 0)), member.now)
    member.done(effects)
    assert len(part(member, "parked").records or b"") > 0


def test_a_fetch_waits_for_the_high_watermark_to_rise() -> None:
    member = leading()
    member.ask(fetch_request(3, epoch=1, offset=3, last_epoch=1, high_watermark=3), 18, "parked")
    assert member.high_watermarks == [3]
    _, effects = member.consensus.propose(1, bytearray(batch(0, 0)), member.now)
    member.done(effects)
    member.ask(fetch_request(3, epoch=1, offset=4, last_epoch=1, high_watermark=4), 18, "parked")
    member.ask(fetch_request(2, epoch=1, offset=4, last_epoch=1, high_watermark=3), 18)
    assert part(member).high_watermark == 4, "who knows less is answered at once"


def test_a_fetch_is_answered_at_its_deadline() -> None:
    member = leading()
    member.ask(fetch_request(epoch=1, offset=3, last_epoch=1, max_wait_ms=100, high_watermark=3), 18, "parked")
    member.wait(99)
    assert not member.replied()
    member.wait(1)
    assert part(member, "parked").records == b""


def test_waiting_fetches_fail_when_leadership_ends() -> None:
    member = leading()
    member.ask(fetch_request(epoch=1, offset=3, last_epoch=1, high_watermark=3), 18, "parked")
    member.ask(begin(3, 2), 1)
    answer = part(member, "parked")
    assert answer.error_code == NotLeader.code
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (3, 2)
    assert member.reply(FetchResponse, "parked").node_endpoints[0].host == "host3"


def test_a_diverging_follower_gets_the_diverging_epoch() -> None:
    member = leading(log=((1, 4), (3, 2)))
    for offset, epoch, expected in ((6, 2, (4, 1)), (5, 1, (4, 1)), (20, 3, (6, 3))):
        member.ask(fetch_request(epoch=4, offset=offset, last_epoch=epoch), 18)
        diverging = part(member).diverging_epoch
        assert diverging is not None
        assert (diverging.end_offset, diverging.epoch) == expected
        assert part(member).records == b""


def test_a_follower_of_an_epoch_that_the_leader_never_had_starts_over() -> None:
    member = leading()
    member.log.start_offset, member.log.entries = 0, []
    member.log.append(0, batch(0, 1, 3))
    member.ask(fetch_request(epoch=1, offset=2, last_epoch=0), 18)
    diverging = part(member).diverging_epoch
    assert diverging is not None
    assert (diverging.end_offset, diverging.epoch) == (0, 0)
    follower = Member(log=((1, 2),))
    follower.follow(2, 3)
    follower.answer(follower.sent(FetchRequest)[0][0], fetched(2, 3, diverging=OffsetAndEpoch(0, 1)))
    assert follower.effects.writes == [Truncate(0)]


def test_a_follower_before_the_log_start_gets_the_snapshot_id() -> None:
    member = leading(log=((1, 4), (3, 2)))
    member.log.snapshot(OffsetAndEpoch(4, 1), b"snapshot", trim=True)
    for offset, epoch in ((0, 0), (2, 1)):
        member.ask(fetch_request(epoch=4, offset=offset, last_epoch=epoch), 18)
        snapshot = part(member).snapshot_id
        assert snapshot is not None
        assert (snapshot.end_offset, snapshot.epoch) == (4, 1)
    request = FetchSnapshotRequest()
    for position, size, expected in ((0, 3, b"sna"), (3, 100, b"pshot")):
        request = snapshot_request(position, size)
        member.ask(request, 1)
        piece = member.reply(FetchSnapshotResponse).topics[0].partitions[0]
        assert (piece.unaligned_records, piece.position, piece.size) == (expected, position, 8)
    member.ask(snapshot_request(8, 1), 1)
    assert member.reply(FetchSnapshotResponse).topics[0].partitions[0].error_code == PositionOutOfRange.code
    request.topics[0].partitions[0].snapshot_id.end_offset = 5
    member.ask(request, 1)
    assert member.reply(FetchSnapshotResponse).topics[0].partitions[0].error_code == SnapshotNotFound.code


def snapshot_request(position: int, max_bytes: int) -> FetchSnapshotRequest:
    partition = PartitionSnapshot(
        current_leader_epoch=4, snapshot_id=SnapshotId(end_offset=4, epoch=1), position=position
    )
    topic = TopicSnapshot(name=TOPIC, partitions=[partition])
    return FetchSnapshotRequest(replica_id=2, max_bytes=max_bytes, topics=[topic], cluster_id="cluster")


def test_fetches_for_another_epoch_cluster_or_partition_are_rejected() -> None:
    member = leading(log=((1, 1),))
    for epoch, error in ((1, FencedLeaderEpoch), (3, UnknownLeaderEpoch)):
        member.ask(fetch_request(epoch=epoch, offset=0), 18)
        assert part(member).error_code == error.code
    member.ask(fetch_request(epoch=2, offset=0, cluster_id="another"), 18)
    assert member.reply(FetchResponse).error_code == InconsistentClusterId.code
    member.ask(fetch_request(epoch=2, offset=-1), 18)
    assert part(member).error_code == InvalidRequest.code
    request = fetch_request(epoch=2, offset=0)
    request.topics[0].topic_id = bytes(16)
    member.ask(request, 18)
    assert member.reply(FetchResponse).error_code == InvalidRequest.code


def test_a_node_without_a_leader_answers_fetches_too() -> None:
    member = Member()
    member.ask(fetch_request(epoch=0, offset=0), 18)
    answer = part(member)
    assert answer.error_code == NotLeader.code
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, 0)
    leader = leading()
    leader.consensus.shutdown(1_000, leader.now)
    leader.ask(fetch_request(epoch=1, offset=0), 18)
    assert part(leader).error_code in (NotLeader.code, BrokerNotAvailable.code)


def test_fetches_of_a_majority_keep_the_leader() -> None:
    member = leading()
    for _ in range(10):
        member.wait(2_500)
        member.ask(fetch_request(3, epoch=1, offset=3, last_epoch=1, max_wait_ms=0), 18)
    assert member.consensus.is_leader
    for _ in range(2):
        member.wait(1_600)
        member.ask(fetch_request(9, epoch=1, offset=3, last_epoch=1, max_wait_ms=0), 18)
    assert not member.consensus.is_leader, "observers do not count"


def test_a_replica_from_another_directory_is_no_voter() -> None:
    member = leading()
    request = fetch_request(2, epoch=1, offset=3, last_epoch=1, max_wait_ms=0)
    request.topics[0].partitions[0].replica_directory_id = b"some other disk!"
    member.ask(request, 18)
    assert member.consensus.high_watermark is None


def test_only_the_leader_describes_the_quorum() -> None:
    member = leading()
    member.ask(fetch_request(2, epoch=1, offset=3, last_epoch=1, max_wait_ms=0), 18)
    member.now += 10
    member.ask(fetch_request(7, epoch=1, offset=1, last_epoch=1, max_wait_ms=0), 18)
    ask = DescribeQuorumRequest(topics=[DescribedTopic(topic_name=TOPIC, partitions=[Described()])])
    member.ask(ask, 2)
    reply = member.reply(DescribeQuorumResponse)
    described = reply.topics[0].partitions[0]
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 1, 3)
    states = {voter.replica_id: voter for voter in described.current_voters}
    assert [states[node].log_end_offset for node in (1, 2, 3)] == [3, 3, -1]
    assert (states[1].last_fetch_timestamp, states[2].last_caught_up_timestamp) == (member.now, member.now - 10)
    assert (states[3].last_fetch_timestamp, states[2].replica_directory_id) == (-1, directory(2))
    (observer,) = described.observers
    assert (observer.replica_id, observer.last_fetch_timestamp, observer.last_caught_up_timestamp) == (
        7,
        member.now,
        -1,
    )
    assert [(node.node_id, node.listeners[0].host) for node in reply.nodes] == [
        (1, "host1"),
        (2, "host2"),
        (3, "host3"),
    ]
    member.ask(vote_request(epoch=9), 2)
    member.ask(ask, 2)
    assert member.reply(DescribeQuorumResponse).topics[0].partitions[0].error_code == NotLeader.code
