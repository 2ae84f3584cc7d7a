"""Voter changes (KIP-853), one rule at a time."""

import pytest

from ottla.metadata.consensus import Append, Node, OffsetAndEpoch, ReplicaKey, Send, VoterSet
from ottla.metadata.consensus.control_records import control_records
from ottla.protocol.errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    InvalidUpdateVersion,
    NotLeader,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, VotersRecord
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.rpc.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from ottla.protocol.messages.rpc.update_raft_voter import Listener as UpdatedListener
from tests.unit.metadata.consensus.scripted import (
    CLUSTER,
    LISTENER,
    Member,
    at,
    begin,
    directory,
    fetch_request,
    fetched,
    key,
)


def established(**given: object) -> Member:
    """Return the leader of voters 1, 2, 3, with committed records and the caught-up observer 4."""
    member = Member(**given)  # type: ignore[arg-type]
    member.elect()
    end = member.log.end_offset
    for node in (2, 3, 4):
        member.ask(fetch_request(node, epoch=1, offset=end, last_epoch=1, max_wait_ms=0), 18)
    assert member.consensus.high_watermark == end
    return member


def add(node: int, **given: object) -> AddRaftVoterRequest:
    where = at(node)
    listeners = [Listener(name=where.name, host=where.host, port=where.port)]
    fields = {"voter_id": node, "voter_directory_id": directory(node), "listeners": listeners, **given}
    return AddRaftVoterRequest(cluster_id=CLUSTER, **fields)  # type: ignore[arg-type]


def remove(node: int, where: bytes | None = None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER, voter_id=node, voter_directory_id=directory(node) if where is None else where
    )


def update(node: int, epoch: int = 1, port: int = 7777, supported: tuple[int, int] = (0, 1)) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=epoch,
        voter_id=node,
        voter_directory_id=directory(node),
        listeners=[UpdatedListener(name=LISTENER, host="moved", port=port)],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=supported[0], max_supported_version=supported[1]
        ),
    )


def versions(lowest: int, highest: int) -> ApiVersionsResponse:
    feature = SupportedFeatureKey(name="kraft.version", min_version=lowest, max_version=highest)
    return ApiVersionsResponse(supported_features=[feature])


def voters_written(member: Member) -> list[int]:
    (write,) = (write for write in member.effects.writes if isinstance(write, Append))
    (voters,) = (record for _, record in control_records(write.data, 0) if isinstance(record, VotersRecord))
    return sorted(VoterSet.from_record(voters).by_id)


def fetch_all(member: Member, *nodes: int) -> None:
    for node in nodes:
        end = member.log.end_offset
        member.ask(fetch_request(node, epoch=1, offset=end, last_epoch=1, max_wait_ms=0), 18, f"fetch{node}")


def test_adding_a_voter_is_answered_when_it_is_committed() -> None:
    member = established()
    member.ask(add(4), 1, "add")
    ((send, _),) = member.sent(ApiVersionsRequest)
    assert (send.to.id, send.to.host, send.to.port) == (4, "host4", 9004)
    member.answer(send, versions(0, 1))
    assert voters_written(member) == [1, 2, 3, 4]
    assert not member.replied()
    fetch_all(member, 2)
    assert member.consensus.high_watermark == member.log.end_offset - 1, "the majority of four is three"
    fetch_all(member, 4)
    assert member.reply(AddRaftVoterResponse, "add").error_code == 0


def test_adding_a_voter_can_be_answered_before_the_commit() -> None:
    member = established()
    member.ask(add(4, ack_when_committed=False), 1)
    member.answer(member.sent(ApiVersionsRequest)[0][0], versions(0, 1))
    assert member.reply(AddRaftVoterResponse).error_code == 0
    assert member.consensus.voters.is_voter(key(4))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(3), DuplicateVoter),
        (add(3, voter_directory_id=b"some other disk!"), DuplicateVoter),
        (add(4, voter_directory_id=bytes(16)), InvalidRequest),
        (add(4, listeners=[]), InvalidRequest),
        (add(4, voter_id=-1), InvalidRequest),
    ],
)
def test_invalid_additions_are_rejected(request_: AddRaftVoterRequest, error: type) -> None:
    member = established()
    member.ask(request_, 1)
    assert member.reply(AddRaftVoterResponse).error_code == error.code  # type: ignore[attr-defined]


def test_a_lagging_or_incompatible_voter_is_not_added() -> None:
    member = established()
    for node, answer, error in (
        (5, versions(0, 1), RequestTimedOut),
        (4, versions(0, 0), InvalidRequest),
        (4, ApiVersionsResponse(), InvalidRequest),
        (4, ApiVersionsResponse(error_code=35), RequestTimedOut),
    ):
        member.ask(add(node), 1)
        send = member.sent(ApiVersionsRequest)[0][0]
        member.answer(send, answer)
        assert member.reply(AddRaftVoterResponse).error_code == error.code
        assert not member.effects.writes
        member.wait(50)
    member.ask(add(4), 1)
    member.done(member.consensus.handle_failure(member.sent(ApiVersionsRequest)[0][0].id, member.now))
    assert member.reply(AddRaftVoterResponse).error_code == RequestTimedOut.code


def test_voter_changes_do_not_overlap() -> None:
    member = established()
    member.ask(remove(3), 0, "first")
    assert voters_written(member) == [1, 2]
    member.ask(remove(2), 0)
    assert member.reply(RemoveRaftVoterResponse).error_code == RequestTimedOut.code
    member.ask(add(4), 1)
    assert member.reply(AddRaftVoterResponse).error_code == RequestTimedOut.code
    member.ask(update(2), 0)
    assert member.reply(UpdateRaftVoterResponse).error_code == RequestTimedOut.code
    fetch_all(member, 2)
    assert member.reply(RemoveRaftVoterResponse, "first").error_code == 0
    member.ask(add(4), 1)
    assert member.sent(ApiVersionsRequest)


def test_a_voter_change_needs_a_committed_record_of_the_leaders_epoch() -> None:
    member = Member()
    member.elect()
    member.ask(remove(3), 0)
    assert member.reply(RemoveRaftVoterResponse).error_code == RequestTimedOut.code


def test_an_uncommitted_voter_change_times_out_and_still_blocks_others() -> None:
    member = established()
    member.ask(remove(3), 0, "first")
    member.wait(2_000)
    assert member.reply(RemoveRaftVoterResponse, "first").error_code == RequestTimedOut.code
    member.ask(remove(2), 0)
    assert member.reply(RemoveRaftVoterResponse).error_code == RequestTimedOut.code


def test_a_voter_change_is_answered_when_leadership_ends() -> None:
    member = established()
    member.ask(remove(3), 0, "first")
    member.ask(begin(2, 2), 1)
    assert member.reply(RemoveRaftVoterResponse, "first").error_code == NotLeader.code


def test_invalid_removals_are_rejected() -> None:
    member = established()
    for request, error in (
        (remove(9), VoterNotFound),
        (remove(3, b"some other disk!"), VoterNotFound),
        (remove(3, bytes(16)), InvalidRequest),
        (RemoveRaftVoterRequest(cluster_id="another", voter_id=3), InconsistentClusterId),
    ):
        member.ask(request, 0)
        assert member.reply(RemoveRaftVoterResponse).error_code == error.code
    alone = Member(voters=(1,))
    alone.ask(remove(1), 0)
    assert alone.reply(RemoveRaftVoterResponse).error_code == VoterNotFound.code, "the last voter stays"
    follower = Member()
    follower.follow()
    follower.ask(remove(3), 0)
    assert follower.reply(RemoveRaftVoterResponse).error_code == NotLeader.code


def test_a_leader_that_removes_itself_leads_until_the_commit() -> None:
    member = established()
    member.ask(remove(1), 0, "self")
    assert voters_written(member) == [2, 3]
    fetch_all(member, 2)
    assert member.consensus.is_leader, "its own log does not count any more"
    fetch_all(member, 3)
    assert member.reply(RemoveRaftVoterResponse, "self").error_code == 0
    assert member.roles == [("resigned", 1, 1)]


def test_a_node_with_an_uncommitted_removal_can_still_become_candidate() -> None:
    """Otherwise the only node with the record of its removal would block the quorum."""
    member = established()
    member.ask(remove(1), 0, "self")
    member.wait(3_000)
    assert member.consensus.role == "resigned"
    member.wait(1_000)
    assert member.roles[-1][0] == "prospective"


def test_a_voter_update_is_answered_before_the_commit() -> None:
    member = established()
    member.ask(update(2), 0)
    reply = member.reply(UpdateRaftVoterResponse)
    assert reply.error_code == 0
    assert reply.current_leader == CurrentLeader(leader_id=1, leader_epoch=1, host="host1", port=9001)
    assert voters_written(member) == [1, 2, 3]
    assert member.consensus.voters.by_id[2].endpoints[0].port == 7777
    fetch_all(member, 2, 3)
    for request, error in (
        (update(9), VoterNotFound),
        (update(2, supported=(2, 3)), InvalidRequest),
        (update(2, supported=(1, 0)), InvalidRequest),
    ):
        member.ask(request, 0)
        assert member.reply(UpdateRaftVoterResponse).error_code == error.code


def test_a_voter_corrects_its_endpoints_in_the_log() -> None:
    member = Member(supported_kraft_versions=(0, 2))
    member.follow(2, 1)
    for _ in range(2):
        member.wait(1_000)
        member.answer(*_answer(member))
    ((send, request),) = member.sent(UpdateRaftVoterRequest)
    assert send.to.id == 2
    assert (request.voter_id, request.voter_directory_id, request.current_leader_epoch) == (1, directory(1), 1)
    assert request.kraft_version_feature.max_supported_version == 2
    member.answer(send, UpdateRaftVoterResponse(current_leader=CurrentLeader(leader_id=2, leader_epoch=1)))
    assert member.sent(FetchRequest)


def _answer(member: Member) -> tuple[Send, FetchResponse]:
    """Answer the fetch in flight with an empty response."""
    (request_id,) = member.consensus._raft.in_flight._nodes
    return Send(request_id, Node(2, "", 0), None, 0), fetched(2, 1)


def test_a_lost_disk_is_removed_before_its_node_joins_again() -> None:
    member = Member(local=ReplicaKey(1, b"a new disk......"), auto_join=True)
    member.follow(2, 1)
    for _ in range(2):
        member.wait(1_000)
        member.answer(*_answer(member))
    ((_, request),) = member.sent(RemoveRaftVoterRequest)
    assert (request.voter_id, request.voter_directory_id) == (1, directory(1))


def test_static_voters_cannot_change_before_the_upgrade() -> None:
    member = Member(static=True)
    member.elect()
    end = member.log.end_offset
    member.ask(fetch_request(2, epoch=1, offset=end, last_epoch=1, max_wait_ms=0), 18)
    member.ask(remove(3), 0)
    assert member.reply(RemoveRaftVoterResponse).error_code == UnsupportedVersion.code
    member.ask(update(2), 0)
    assert member.reply(UpdateRaftVoterResponse).error_code == 0
    assert not member.effects.writes
    with pytest.raises(InvalidUpdateVersion):
        member.consensus.upgrade_kraft_version(1, 1, member.now)
    member.ask(update(3), 0)
    effects = member.done(member.consensus.upgrade_kraft_version(1, 1, member.now))
    (write,) = effects.writes
    assert isinstance(write, Append)
    kinds = [type(record) for _, record in control_records(write.data, 0)]
    assert kinds == [KRaftVersionRecord, VotersRecord]
    assert member.consensus.history.kraft_version == 1
    assert sorted(member.consensus.voters.replicas) == [key(1), key(2), key(3)]


def test_truncating_a_voters_record_restores_the_previous_voters() -> None:
    leader = established()
    leader.ask(remove(3), 0)
    member = Member()
    member.follow(2, 1)
    data = b"".join(entry.data for entry in leader.log.entries)
    member.answer(member.sent(FetchRequest)[0][0], fetched(2, 1, records=data))
    assert sorted(member.consensus.voters.by_id) == [1, 2]
    member.follow(3, 2)
    member.answer(member.sent(FetchRequest)[0][0], fetched(3, 2, diverging=OffsetAndEpoch(3, 1)))
    assert sorted(member.consensus.voters.by_id) == [1, 2, 3]


def test_a_leader_sends_begin_quorum_epoch_to_new_voters() -> None:
    member = established()
    member.ask(add(4, ack_when_committed=False), 1)
    member.answer(member.sent(ApiVersionsRequest)[0][0], versions(0, 1))
    member.wait(1_000)
    assert 4 in [send.to.id for send, _ in member.sent(BeginQuorumEpochRequest)]
