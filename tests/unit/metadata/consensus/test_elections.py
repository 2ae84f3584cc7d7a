"""Elections, one rule at a time."""

import pytest

from ottla.metadata.consensus import ConsensusBroken, Effects, ReplicaKey
from ottla.protocol.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.raft_records import LeaderChangeMessage, QuorumState
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.messages.rpc.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.protocol.messages.rpc.vote import VoteRequest, VoteResponse
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.records import read_records
from tests.unit.metadata.consensus.scripted import (
    CLUSTER,
    Member,
    at,
    begin,
    directory,
    end,
    fetch_request,
    fetched,
    key,
    vote_request,
    voted,
)


def granted(member: Member) -> bool:
    return member.reply(VoteResponse).topics[0].partitions[0].vote_granted


def error(member: Member) -> int:
    return member.reply(VoteResponse).topics[0].partitions[0].error_code


def test_a_voter_without_a_leader_asks_for_pre_votes_in_its_own_epoch() -> None:
    member = Member(log=((3, 5),))
    member.wait(1_000)
    assert member.roles == [("prospective", 3, -1)]
    sent = member.sent(VoteRequest)
    assert [send.to.id for send, _ in sent] == [2, 3]
    request = sent[0][1]
    asked = request.topics[0].partitions[0]
    assert (request.cluster_id, request.voter_id, asked.voter_directory_id) == (CLUSTER, 2, directory(2))
    assert (asked.replica_id, asked.replica_directory_id, asked.replica_epoch) == (1, directory(1), 3)
    assert (asked.last_offset_epoch, asked.last_offset, asked.pre_vote) == (3, 5, True)


def test_a_won_pre_vote_raises_the_epoch_and_the_vote_for_itself_is_persisted() -> None:
    member = Member()
    member.wait(1_000)
    member.answer(member.sent(VoteRequest)[0][0], voted(0, granted=True))
    assert member.roles == [("candidate", 1, -1)]
    assert member.effects.persist is not None
    state = member.effects.persist.state
    assert (state.leader_epoch, state.voted_id, state.voted_directory_id) == (1, 1, directory(1))
    assert member.effects.persist.version == 1
    assert not any(request.topics[0].partitions[0].pre_vote for _, request in member.sent(VoteRequest))


def test_a_new_leader_writes_a_leader_change_message() -> None:
    member = Member(log=((1, 2),))
    member.auto_flush = False
    member.elect()
    assert member.roles == [("leader", 2, 1)]
    assert member.effects.persist is not None
    assert member.effects.persist.state.leader_id == 1
    written = list(read_records(member.log.entries[-1].data))
    message = decode(LeaderChangeMessage, 0, written[0].value or b"")
    assert [voter.voter_id for voter in message.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in message.granting_voters] == [1, 2]
    assert len(written) == 3, "kraft.version and voters, which so far only the bootstrap checkpoint had"
    assert member.log.entries[-1].control


def test_a_new_leader_announces_itself_to_every_other_voter_until_they_fetch() -> None:
    member = Member()
    member.elect()
    sent = member.sent(BeginQuorumEpochRequest)
    assert [send.to.id for send, _ in sent] == [2, 3]
    request = sent[1][1]
    asked = request.topics[0].partitions[0]
    assert (request.voter_id, asked.voter_directory_id, asked.leader_id, asked.leader_epoch) == (3, directory(3), 1, 1)
    assert (request.leader_endpoints[0].host, request.leader_endpoints[0].port) == at(1)[1:]
    for send, _ in sent:
        member.answer(send, BeginQuorumEpochResponse())
    member.wait(1_000)
    assert [send.to.id for send, _ in member.sent(BeginQuorumEpochRequest)] == [2, 3]


def test_a_late_pre_vote_is_not_taken_for_a_vote() -> None:
    """A VoteResponse does not say whether it belongs to a pre-vote."""
    member = Member()
    member.wait(1_000)
    (to_two, _), (to_three, _) = member.sent(VoteRequest)
    member.answer(to_two, voted(0, granted=True))
    assert member.consensus.role == "candidate"
    member.answer(to_three, voted(1, granted=True))
    assert member.consensus.role == "candidate"


def test_a_lost_pre_vote_ends_in_unattached() -> None:
    member = Member()
    member.wait(1_000)
    first, second = (send for send, _ in member.sent(VoteRequest))
    member.answer(first, voted(0, granted=False))
    member.answer(second, voted(0, granted=False))
    assert member.roles == [("unattached", 0, -1)]


def test_a_lost_pre_vote_returns_to_the_known_leader() -> None:
    member = Member()
    member.follow(2, 1)
    member.wait(2_000)
    assert member.roles == [("prospective", 1, 2)]
    first, second = (send for send, _ in member.sent(VoteRequest))
    member.answer(first, voted(1, granted=False, leader=2))
    member.answer(second, voted(1, granted=False, leader=2))
    assert member.roles == [("follower", 1, 2)]


def test_a_candidate_that_times_out_asks_for_pre_votes_again() -> None:
    member = Member()
    member.wait(1_000)
    member.answer(member.sent(VoteRequest)[0][0], voted(0, granted=True))
    member.wait(1_000)
    assert member.roles == [("prospective", 1, -1)]
    member.wait(1_000)
    assert member.roles == [("unattached", 1, -1), ("prospective", 1, -1)], "the vote it gave itself is kept"
    member.ask(vote_request(epoch=1), 2)
    assert not granted(member)


def test_a_voter_without_pre_votes_makes_a_candidate_at_once() -> None:
    member = Member()
    member.wait(1_000)
    send = member.sent(VoteRequest)[0][0]
    member.done(member.consensus.handle_failure(send.id, member.now, unsupported_version=True))
    assert member.roles == [("candidate", 1, -1)]
    other = Member()
    other.wait(1_000)
    other.answer(other.sent(VoteRequest)[0][0], VoteResponse(error_code=UnsupportedVersion.code))
    assert other.roles == [("candidate", 1, -1)]


def test_a_vote_is_persisted_in_the_step_that_grants_it() -> None:
    member = Member()
    member.ask(vote_request(epoch=4), 2)
    assert granted(member)
    assert member.effects.persist is not None
    state = member.effects.persist.state
    assert (state.leader_epoch, state.voted_id, state.voted_directory_id) == (4, 2, directory(2))


def test_a_voter_grants_one_vote_an_epoch_and_repeats_it() -> None:
    member = Member()
    member.ask(vote_request(2, epoch=4), 2)
    member.ask(vote_request(3, epoch=4), 2)
    assert not granted(member)
    member.ask(vote_request(2, epoch=4), 2)
    assert granted(member)
    member.ask(vote_request(3, epoch=5), 2)
    assert granted(member)


def test_a_vote_survives_a_restart() -> None:
    stored = QuorumState(leader_epoch=4, voted_id=2, voted_directory_id=directory(2))
    member = Member(stored=stored)
    member.ask(vote_request(3, epoch=4), 2)
    assert not granted(member)
    member.ask(vote_request(2, epoch=4), 2)
    assert granted(member)


@pytest.mark.parametrize(
    ("last", "expected"), [((2, 9), False), ((3, 4), False), ((3, 5), True), ((3, 6), True), ((4, 1), True)]
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_votes_go_only_to_logs_that_are_at_least_as_complete(
    last: tuple[int, int], expected: bool, pre_vote: bool
) -> None:
    member = Member(log=((1, 2), (3, 3)))
    member.ask(vote_request(epoch=5, last=last, pre_vote=pre_vote), 2)
    assert granted(member) is expected


def test_pre_votes_bind_nobody() -> None:
    member = Member()
    for node in (2, 3):
        member.ask(vote_request(node, epoch=0, pre_vote=True), 2)
        assert granted(member)
        assert member.effects.persist is None


def test_a_follower_that_reaches_its_leader_rejects_pre_votes() -> None:
    member = Member()
    member.follow(2, 1)
    fetch, _ = next(iter(member.sent(object)))
    member.ask(vote_request(3, epoch=1, pre_vote=True), 2)
    assert granted(member)
    member.answer(fetch, fetched(2, 1))
    member.ask(vote_request(3, epoch=1, pre_vote=True), 2)
    assert not granted(member)
    member.ask(vote_request(3, epoch=1), 2)
    assert not granted(member)


def lose_leader(member: Member) -> Effects:
    """Follow node 2, reach it, and lose the connection to it."""
    member.follow(2, 1)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1))
    return member.done(
        member.consensus.handle_failure(member.sent(FetchRequest)[0][0].id, member.now, connection_lost=True)
    )


def test_a_lost_connection_starts_a_pre_vote_before_the_fetch_timeout() -> None:
    member = Member()
    lose_leader(member)
    assert member.roles == []
    member.wait(49)
    assert member.roles == []
    member.wait(1)
    assert member.roles == [("prospective", 1, 2)]
    assert {request.topics[0].partitions[0].pre_vote for _, request in member.sent(VoteRequest)} == {True}


def test_a_follower_that_lost_its_leader_grants_pre_votes() -> None:
    member = Member()
    lose_leader(member)
    member.ask(vote_request(3, epoch=1, pre_vote=True), 2)
    assert granted(member)


def test_a_follower_that_reaches_its_leader_again_stays_follower() -> None:
    member = Member()
    lose_leader(member)
    for _ in range(2):
        ((anybody, request),) = member.sent(FetchRequest)
        assert request.max_wait_ms == 0, "a sign of life is asked for, and no news"
        member.answer(anybody, fetched(2, 1, error=6))
    member.wait(20)
    ((again, request),) = member.sent(FetchRequest)
    assert (again.to.id, request.max_wait_ms) == (2, 0)
    member.answer(again, fetched(2, 1))
    ((_, request),) = member.sent(FetchRequest)
    assert request.max_wait_ms == 500
    member.wait(1_900)
    assert member.roles == []
    member.ask(vote_request(3, epoch=1, pre_vote=True), 2)
    assert not granted(member)


def test_only_the_first_lost_connection_shortens_the_fetch_timeout() -> None:
    member = Member()
    lose_leader(member)
    for _ in range(5):
        member.wait(10)
        if member.roles:
            break
        for send, _ in member.sent(FetchRequest):
            member.done(member.consensus.handle_failure(send.id, member.now, connection_lost=True))
    assert member.roles == [("prospective", 1, 2)]


def test_an_observer_that_lost_its_leader_only_looks_for_the_next() -> None:
    member = Member(local=key(7), can_become_voter=False)
    member.follow_as_observer(2, 1)
    send, _ = next(sent for sent in member.sent(FetchRequest) if sent[0].to.id == 2)
    member.done(member.consensus.handle_failure(send.id, member.now, connection_lost=True))
    for _ in range(20):
        member.wait(100)
        assert member.roles == []
    assert not member.sent(VoteRequest)


def test_a_candidate_with_split_votes_retries_soon() -> None:
    member = Member()
    member.wait(1_000)
    member.answer(member.sent(VoteRequest)[0][0], voted(0, granted=True))
    for send, _ in member.sent(VoteRequest):
        member.answer(send, voted(1, granted=False))
    assert member.consensus.role == "candidate"
    member.wait(20)
    assert member.roles == [("prospective", 1, -1)]


def test_a_candidate_that_all_reachable_voters_reject_retries_soon() -> None:
    """Two of three voters have voted for themselves, and the third is dead."""
    member = Member()
    member.wait(1_000)
    member.answer(member.sent(VoteRequest)[0][0], voted(0, granted=True))
    refusing, dead = (send for send, _ in member.sent(VoteRequest))
    member.done(member.consensus.handle_failure(dead.id, member.now, connection_lost=True))
    assert member.consensus.role == "candidate"
    member.answer(refusing, voted(1, granted=False))
    member.wait(20)
    assert member.roles == [("prospective", 1, -1)]


def test_a_candidate_without_responses_waits_for_the_election_timeout() -> None:
    member = Member()
    member.wait(1_000)
    member.answer(member.sent(VoteRequest)[0][0], voted(0, granted=True))
    for _ in range(40):
        for send, _ in member.sent(VoteRequest):
            member.done(member.consensus.handle_failure(send.id, member.now, connection_lost=True))
        member.wait(20)
        assert member.consensus.role == "candidate"


def test_voters_that_lost_their_leader_try_one_after_the_other() -> None:
    first, second = Member(local=key(1)), Member(local=key(3))
    for member in (first, second):
        lose_leader(member)
        member.wait(50)
    assert (first.consensus.role, second.consensus.role) == ("prospective", "follower")
    second.wait(99)
    assert second.consensus.role == "follower"
    second.wait(1)
    assert second.consensus.role == "prospective"


def test_a_leader_grants_no_votes_in_its_epoch() -> None:
    member = Member()
    member.elect()
    for pre_vote in (False, True):
        member.ask(vote_request(epoch=1, last=(0, 9), pre_vote=pre_vote), 2)
        assert not granted(member)
    reply = member.reply(VoteResponse)
    assert reply.topics[0].partitions[0].leader_id == 1
    assert (reply.node_endpoints[0].node_id, reply.node_endpoints[0].host) == (1, "host1")
    member.ask(vote_request(epoch=1, last=(0, 9)), 0)
    assert member.reply(VoteResponse).node_endpoints == [], "version 0 has none"


def test_requests_of_an_older_epoch_are_fenced() -> None:
    member = Member()
    member.follow(2, 5)
    member.ask(vote_request(3, epoch=4, last=(3, 9)), 2)
    assert error(member) == FencedLeaderEpoch.code
    part = member.reply(VoteResponse).topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch) == (2, 5)
    member.ask(begin(3, 4), 1)
    assert member.reply(BeginQuorumEpochResponse).topics[0].partitions[0].error_code == FencedLeaderEpoch.code
    member.ask(end(3, 4, (1,)), 1)
    assert member.reply(EndQuorumEpochResponse).topics[0].partitions[0].error_code == FencedLeaderEpoch.code


def test_a_vote_request_for_another_replica_is_rejected_but_raises_the_epoch() -> None:
    member = Member()
    for wrong in (key(3), ReplicaKey(1, b"some other disk!")):
        member.ask(vote_request(epoch=member.consensus.epoch + 1, to=wrong), 2)
        assert error(member) == InvalidVoterKey.code
    assert member.consensus.epoch == 2
    member.ask(vote_request(epoch=3, to=ReplicaKey(-1)), 0)
    assert granted(member), "an old candidate names nobody"


def test_requests_for_another_cluster_or_partition_are_rejected() -> None:
    member = Member()
    member.ask(vote_request(epoch=1, cluster_id="another"), 2)
    assert member.reply(VoteResponse).error_code == InconsistentClusterId.code
    request = vote_request(epoch=1)
    request.topics[0].topic_name = "another"
    member.ask(request, 2)
    assert member.reply(VoteResponse).error_code == InvalidRequest.code
    assert member.consensus.epoch == 0
    member.ask(vote_request(epoch=2, last=(2, 0)), 2)
    assert error(member) == InvalidRequest.code, "nobody has records of an epoch that it stands for"


def test_an_unattached_voter_follows_a_leader_that_announces_itself() -> None:
    member = Member()
    member.ask(begin(3, 7), 1)
    assert member.roles == [("follower", 7, 3)]
    assert member.effects.persist is not None
    assert (member.effects.persist.state.leader_id, member.effects.persist.state.leader_epoch) == (3, 7)
    part = member.reply(BeginQuorumEpochResponse).topics[0].partitions[0]
    assert (part.error_code, part.leader_id, part.leader_epoch) == (0, 3, 7)


def test_two_leaders_in_one_epoch_raise_an_error() -> None:
    member = Member()
    member.follow(2, 5)
    with pytest.raises(ConsensusBroken):
        member.ask(begin(3, 5), 1)


def test_a_leader_steps_down_for_a_higher_epoch() -> None:
    member = Member()
    member.elect()
    member.ask(vote_request(3, epoch=9, last=(0, 0)), 2)
    assert member.roles == [("unattached", 9, -1)]
    assert not granted(member), "its log is longer"


def test_a_leader_without_fetches_of_a_majority_resigns() -> None:
    member = Member()
    member.elect()
    member.wait(2_999)
    assert member.consensus.is_leader
    member.wait(1)
    assert member.roles == [("resigned", 1, 1)]
    assert [send.to.id for send, _ in member.sent(EndQuorumEpochRequest)] == [2, 3]
    member.ask(vote_request(2, epoch=1, last=(0, 99)), 2)
    assert not granted(member), "it may not vote in the epoch that it led"
    member.wait(1_000)
    assert member.roles == [("unattached", 2, -1), ("prospective", 2, -1)]


def test_the_first_successor_starts_an_election_at_once_and_the_next_waits() -> None:
    member = Member()
    member.follow(2, 1)
    member.ask(end(2, 1, (1, 3)), 1)
    assert member.roles == [("prospective", 1, 2)]
    later = Member()
    later.follow(2, 1)
    later.ask(end(2, 1, (3, 1)), 1)
    later.wait(499)
    assert later.consensus.role == "follower"
    later.wait(1)
    assert later.consensus.role == "prospective"


def test_a_resigning_leader_names_the_most_caught_up_voters_first() -> None:
    member = Member()
    member.elect()
    member.ask(fetch_request(3, epoch=1, offset=2, last_epoch=1), 18)
    member.done(member.consensus.resign(1, member.now))
    _, request = member.sent(EndQuorumEpochRequest)[0]
    part = request.topics[0].partitions[0]
    assert [candidate.candidate_id for candidate in part.preferred_candidates] == [3, 2]
    assert part.preferred_successors == [3, 2]


def test_a_single_voter_leads_at_once() -> None:
    member = Member(voters=(1,))
    assert [role for role, _, _ in member.roles] == ["unattached", "prospective", "candidate", "leader"]
    assert member.effects.persist is not None
    assert member.effects.persist.state.leader_id == 1
    assert member.consensus.high_watermark == member.log.end_offset
    assert member.wait(60_000).changes == []


def test_a_restarted_leader_is_resigned_and_a_restarted_candidate_continues() -> None:
    led = Member(stored=QuorumState(leader_epoch=3, leader_id=1))
    assert led.roles == [("resigned", 3, 1)]
    stood = Member(stored=QuorumState(leader_epoch=3, voted_id=1, voted_directory_id=directory(1)))
    assert stood.roles == [("candidate", 3, -1)]
    followed = Member(stored=QuorumState(leader_epoch=3, leader_id=2))
    assert followed.roles == [("follower", 3, 2)]
    behind = Member(stored=QuorumState(leader_epoch=3, leader_id=2), log=((4, 1),))
    assert behind.roles == [("unattached", 4, -1)], "the log knows a later epoch than the file"


def test_static_voters_match_by_id_and_are_in_the_state_file() -> None:
    member = Member(static=True)
    member.ask(vote_request(epoch=1), 2)
    assert member.effects.persist is not None
    assert member.effects.persist.version == 0
    assert [voter.voter_id for voter in member.effects.persist.state.current_voters or []] == [1, 2, 3]
    member.elect()
    assert len(list(read_records(member.log.entries[-1].data))) == 1, "no voters in the log before kraft.version 1"


def test_an_observer_never_becomes_candidate() -> None:
    member = Member(voters=(2, 3))
    member.wait(600_000)
    assert member.consensus.role == "unattached"


def test_graceful_shutdown_waits_for_a_successor() -> None:
    member = Member()
    member.elect()
    member.done(member.consensus.shutdown(5_000, member.now))
    assert member.roles == [("resigned", 1, 1)]
    member.ask(begin(2, 2), 1)
    assert [type(change).__name__ for change in member.effects.changes][-1] == "Stopped"
    alone = Member()
    alone.elect()
    alone.done(alone.consensus.shutdown(5_000, alone.now))
    alone.wait(5_000)
    assert [getattr(change, "graceful", None) for change in alone.effects.changes] == [False]
