"""Committed offsets on virtual time: transactions, expiry, deleted topics and failover."""

import pytest

from ottla.coordinators.groups.describing import delete_group
from ottla.protocol.errors import (
    NONE,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from ottla.protocol.messages.records.group_records import OffsetCommitKey
from tests.unit.coordinators.groups.classic_world import GROUP, ClassicWorld

MINUTE_MS = 60_000
RETENTION_MS = 10_080 * MINUTE_MS
UNSTABLE = -UnstableOffsetCommit.code


def test_offsets_survive_the_coordinator() -> None:
    world = ClassicWorld()
    assert world.commit(0, 5) == world.commit(1, 6) == world.commit(0, 3) == NONE
    before = world.state
    world.lose()
    assert world.fetch() == {0: 3, 1: 6}
    assert world.state == before


@pytest.mark.parametrize("reloads", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_offsets_of_a_transaction_wait_for_its_end(commit: bool, reloads: bool) -> None:
    world = ClassicWorld()
    world.commit(0, 5)
    assert world.commit_in_transaction(0, 8, 77) == world.commit_in_transaction(1, 9, 77) == NONE
    if reloads:
        world.lose()
    assert world.fetch() == {0: 5}
    assert world.fetch(stable=True) == {0: UNSTABLE, 1: UNSTABLE}
    world.end_transaction(77, commit=commit)
    if reloads:
        world.lose()
    assert world.fetch(stable=True) == ({0: 8, 1: 9} if commit else {0: 5})
    assert not world.state.pending_offsets
    assert not world.state.open_producers


@pytest.mark.parametrize("reloads", [False, True])
def test_the_last_written_commit_counts(reloads: bool) -> None:
    world = ClassicWorld()
    world.commit_in_transaction(0, 8, 77)
    world.commit(0, 5)
    world.commit_in_transaction(1, 1, 77)
    world.commit_in_transaction(1, 2, 78)
    if reloads:
        world.lose()
    world.end_transaction(78, commit=True)
    world.end_transaction(77, commit=True)
    assert world.fetch() == {0: 5, 1: 2}


def test_a_marker_of_an_unknown_producer_changes_nothing() -> None:
    world = ClassicWorld()
    world.commit(0, 5)
    world.end_transaction(1, commit=True)
    assert world.fetch() == {0: 5}


def test_transactional_commits_need_a_valid_member() -> None:
    world = ClassicWorld()
    assert world.commit_in_transaction(0, 1, 7, generation_id=3, member_id="m") == IllegalGeneration.code
    member = world.joined().member_id
    assert world.commit_in_transaction(0, 1, 7) == NONE  # of a producer that knows no members
    assert world.commit_in_transaction(0, 1, 7, generation_id=1, member_id="m") == UnknownMemberId.code
    assert world.commit_in_transaction(0, 1, 7, generation_id=2, member_id=member) == IllegalGeneration.code
    assert world.commit_in_transaction(0, 1, 7, generation_id=1, member_id=member) == NONE


def test_offsets_of_a_group_without_members_expire_by_their_commit() -> None:
    world = ClassicWorld()
    world.commit(0, 5)
    world.pass_time(RETENTION_MS // 2)
    world.commit(1, 6)
    world.pass_time(RETENTION_MS // 2 + 11 * MINUTE_MS)
    assert world.fetch() == {1: 6}
    world.pass_time(RETENTION_MS // 2)
    assert world.fetch() == {}
    assert GROUP not in world.state.groups
    world.lose()
    assert not world.state.groups
    assert not world.state.offsets


def test_offsets_with_an_expiry_time_expire_at_it() -> None:
    world = ClassicWorld()
    world.commit(0, 5, retention_time_ms=30 * MINUTE_MS)
    world.commit(1, 6)
    world.lose()
    world.pass_time(29 * MINUTE_MS)
    assert world.fetch() == {0: 5, 1: 6}
    world.pass_time(12 * MINUTE_MS)
    assert world.fetch() == {1: 6}


def test_offsets_of_a_group_expire_after_it_has_been_empty_for_the_retention() -> None:
    world = ClassicWorld()
    member = world.joined().member_id
    world.sync(member, 1, {member: b"all"})
    world.commit(0, 5, member, 1)
    for _ in range(200):
        world.pass_time(MINUTE_MS // 10)
        assert world.stay(member, 1) == NONE
    world.settings["offsets.retention.minutes"] = 15
    for _ in range(200):
        world.pass_time(MINUTE_MS // 10)
        assert world.stay(member, 1) == NONE
    assert world.fetch() == {0: 5}  # a member reads the topic
    world.go(member)
    world.pass_time(14 * MINUTE_MS)
    assert world.fetch() == {0: 5}
    world.pass_time(12 * MINUTE_MS)
    assert world.fetch() == {}
    assert GROUP not in world.state.groups


def test_offsets_of_unsubscribed_topics_expire() -> None:
    world = ClassicWorld({"t": 4, "u": 1}, offsets_retention_minutes=15)
    member = world.joined(topics=["u"]).member_id
    world.sync(member, 1, {member: b"all"})
    world.commit(0, 5, member, 1)
    for _ in range(300):
        world.pass_time(MINUTE_MS // 10)
        world.stay(member, 1)
    assert world.fetch() == {}
    assert world.stay(member, 1) == NONE


def test_an_open_transaction_keeps_offsets_and_group() -> None:
    world = ClassicWorld(offsets_retention_minutes=15)
    world.commit(0, 5)
    world.commit_in_transaction(0, 8, 77)
    world.commit_in_transaction(1, 8, 77)
    world.pass_time(60 * MINUTE_MS)
    assert world.fetch() == {0: 5}
    world.end_transaction(77, commit=True)
    assert world.fetch() == {0: 8, 1: 8}


def test_offsets_are_deleted_with_their_topic() -> None:
    world = ClassicWorld({"t": 4, "u": 1})
    world.commit(0, 5)
    world.commit_in_transaction(1, 6, 77)
    world.set_topic("u", 0)
    assert world.offset(0) == 5
    world.set_topic("t", 0)
    world.end_transaction(77, commit=True)
    assert world.offset(0) is None
    assert world.offset(1) is None
    world.lose()
    assert not world.state.offsets


def test_a_deleted_group_has_no_records_left() -> None:
    world = ClassicWorld()
    member = world.joined().member_id
    world.commit_in_transaction(1, 6, 77)
    with pytest.raises(NonEmptyGroup):
        world.decide(lambda state: delete_group(state, GROUP))
    world.go(member)
    world.commit(0, 5)
    world.decide(lambda state: delete_group(state, GROUP))
    world.end_transaction(77, commit=True)
    world.lose()
    assert not world.state.groups
    assert not world.state.offsets
    with pytest.raises(GroupIdNotFound):
        world.decide(lambda state: delete_group(state, GROUP))


def test_commits_have_kafkas_record_versions() -> None:
    world = ClassicWorld()
    world.commit(0, 5)
    world.commit(0, 5, retention_time_ms=1000)
    versions = [each.version for each in world.written if isinstance(each.key, OffsetCommitKey)]
    assert versions == [4, 1]
