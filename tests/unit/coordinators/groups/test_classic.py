"""Classic groups on virtual time: timers, coordinators that take over, and appends that fail."""

from ottla.coordinators.groups.classic.group import ClassicGroupState
from ottla.coordinators.groups.classic.joining import NEW_MEMBER_TIMEOUT_MS
from ottla.protocol.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.protocol.messages.records.group_records import GroupMetadataValue
from tests.unit.coordinators.groups.classic_world import GROUP, ClassicWorld


def pair(world: ClassicWorld, **fields: object) -> tuple[str, str]:
    """Return two synced members in generation 2; the first is the leader."""
    first = world.joined().member_id
    world.sync(first, 1, {first: b"all"})
    joining = world.join_group(version=1, **fields)  # type: ignore[arg-type]
    assert world.join_group(first).response.members
    second = joining.response.member_id
    waiting = world.sync(second, 2)
    assert world.sync(first, 2, {first: b"1", second: b"2"}).response.assignment == b"1"
    assert waiting.response.assignment == b"2"
    return first, second


def test_a_member_without_heartbeats_is_removed() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    for _ in range(5):
        world.pass_time(5_000)
        assert world.stay(first, 2) in (NONE, RebalanceInProgress.code)
    assert list(world.classic.members) == [first, second][: len(world.classic.members)]
    assert world.stay(second, 2) == UnknownMemberId.code
    assert world.join_group(first).response.generation_id == 3
    assert list(world.classic.members) == [first]


def test_commits_keep_a_session_alive() -> None:
    world = ClassicWorld()
    first = world.joined().member_id
    world.sync(first, 1, {first: b"all"})
    for number in range(4):
        world.pass_time(9_000)
        assert world.commit(0, number, first, 1) == NONE
    assert world.stay(first, 1) == NONE


def test_a_group_without_members_is_empty() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    world.pass_time(11_000)
    assert world.classic.state is ClassicGroupState.PREPARING_REBALANCE or world.classic.is_empty
    world.pass_time(60_000)
    assert world.classic.is_empty
    world.lose()
    assert world.classic.is_empty
    assert world.stay(first, 2) == world.stay(second, 3) == UnknownMemberId.code


def test_members_that_do_not_join_in_time_are_removed() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    third = world.join_group(version=1)
    rejoined = world.join_group(first)
    for _ in range(13):
        assert not rejoined.is_done or third.is_done
        world.stay(second, 2)
        world.pass_time(5_000)
    assert rejoined.response.generation_id == third.response.generation_id == 3
    assert second not in world.classic.members


def test_static_members_stay_even_if_they_do_not_join_in_time() -> None:
    world = ClassicWorld()
    first, second = pair(world, group_instance_id="i")
    third = world.join_group(version=1)
    rejoined = world.join_group(first)
    for _ in range(13):
        world.stay(second, 2)
        world.pass_time(5_000)
    assert rejoined.response.generation_id == third.response.generation_id == 3
    assert second in world.classic.members


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    world = ClassicWorld()
    first = world.joined(rebalance_timeout_ms=20_000).member_id
    for _ in range(3):
        assert world.stay(first, 1) == NONE
        world.pass_time(8_000)
    assert world.classic.is_empty


def test_the_first_rebalance_waits_while_members_join() -> None:
    world = ClassicWorld(group_initial_rebalance_delay_ms=3_000)
    joining = [world.join_group(version=1, rebalance_timeout_ms=8_000)]
    for _ in range(2):
        world.pass_time(2_000)
        joining.append(world.join_group(version=1, rebalance_timeout_ms=8_000))
    world.pass_time(1_999)
    assert not any(each.is_done for each in joining)
    world.pass_time(2_001)
    assert {each.response.generation_id for each in joining} == {1}
    assert len({each.response.leader for each in joining}) == 1


def test_the_first_rebalance_ends_after_its_delay_even_if_members_keep_joining() -> None:
    world = ClassicWorld(group_initial_rebalance_delay_ms=3_000)
    joining = []
    for _ in range(9):
        joining.append(world.join_group(version=1, rebalance_timeout_ms=8_000))
        world.pass_time(1_000)
    assert joining[0].is_done


def test_an_unused_member_id_expires() -> None:
    world = ClassicWorld()
    given = world.join_group().response.member_id
    assert given in world.classic.pending_join_members
    world.pass_time(10_001)
    assert not world.classic.pending_join_members
    assert world.join_group(given).code == UnknownMemberId.code


def test_a_pending_member_delays_a_rebalance_until_it_expires() -> None:
    world = ClassicWorld()
    first = world.joined().member_id
    world.sync(first, 1, {first: b"all"})
    world.join_group()
    second = world.join_group(version=1)
    rejoined = world.join_group(first)
    assert not rejoined.is_done
    for _ in range(3):
        world.pass_time(4_000)
    assert rejoined.response.generation_id == second.response.generation_id == 2


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    del second
    waiting = world.join_group(version=1, rebalance_timeout_ms=1_000_000)
    world.join_group(first, rebalance_timeout_ms=1_000_000)
    passed = 0
    while not waiting.is_done and passed < 2 * NEW_MEMBER_TIMEOUT_MS:
        world.pass_time(1_000)
        passed += 1_000
    assert waiting.is_done


def test_members_continue_with_the_next_coordinator() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    before = world.classic
    world.lose()
    assert world.classic.members == before.members
    assert (world.classic.state, world.classic.generation, world.classic.leader) == (ClassicGroupState.STABLE, 2, first)
    assert world.stay(first, 2) == world.stay(second, 2) == NONE
    assert world.commit(0, 7, second, 2) == NONE
    assert world.sync(second, 2).response.assignment == b"2"
    world.pass_time(10_001)
    assert world.stay(first, 2) == UnknownMemberId.code


def test_an_unrecorded_generation_is_lost_with_its_coordinator() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    joining = world.join_group(version=1)
    world.join_group(first)
    world.join_group(second)
    waiting = world.sync(second, 3)
    assert joining.response.generation_id == 3
    world.lose()
    assert waiting.error is not None
    assert waiting.error.code == NotCoordinator.code
    assert world.stay(first, 3) == IllegalGeneration.code
    assert world.stay(joining.response.member_id, 3) == UnknownMemberId.code
    assert world.stay(second, 2) == NONE


def test_a_group_too_large_for_its_new_coordinator_rebalances() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    world.settings["group.max.size"] = 1
    world.lose()
    assert world.stay(first, 2) == RebalanceInProgress.code
    assert not world.join_group(first).is_done
    assert world.join_group(second).code == GroupMaxSizeReached.code


def test_nothing_changes_when_an_assignment_cannot_be_written() -> None:
    world = ClassicWorld()
    first = world.joined().member_id
    world.sync(first, 1, {first: b"all"})
    joining = world.join_group(version=1)
    world.join_group(first)
    second = joining.response.member_id
    waiting = world.sync(second, 2)
    world.fails = True
    assert world.sync(first, 2, {first: b"1", second: b"2"}).code == CoordinatorNotAvailable.code
    assert not waiting.is_done
    assert world.classic.state is ClassicGroupState.COMPLETING_REBALANCE
    world.fails = False
    assert world.sync(first, 2, {first: b"1", second: b"2"}).response.assignment == b"1"
    assert waiting.response.assignment == b"2"


def test_a_second_request_of_a_member_fails_its_first_one() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    del second
    world.join_group(version=1)
    once = world.join_group(first)
    again = world.join_group(first)
    assert once.code == RebalanceInProgress.code
    assert not again.is_done
    twice = world.sync(first, 2)
    assert twice.code == RebalanceInProgress.code


def test_a_returning_static_member_fences_its_waiting_predecessor() -> None:
    world = ClassicWorld()
    first, second = pair(world, group_instance_id="i")
    del second
    waiting = world.join_group(version=9, group_instance_id="i", topics=["t", "u"])
    assert waiting.is_done  # in a stable group, with the same protocol: it goes on
    world.join_group(version=1)
    old = world.join_group(waiting.response.member_id, group_instance_id="i")
    new = world.join_group(group_instance_id="i")
    assert old.code == FencedInstanceId.code
    world.join_group(first)
    assert new.response.generation_id == 3


def test_the_records_of_a_group() -> None:
    world = ClassicWorld()
    first, second = pair(world)
    values = [each.value for each in world.written if isinstance(each.value, GroupMetadataValue)]
    assert [(value.generation, value.protocol, len(value.members)) for value in values] == [
        (0, None, 0),
        (1, "range", 1),
        (2, "range", 2),
    ]
    assert values[-1].leader == first
    assert {each.member_id: each.assignment for each in values[-1].members} == {first: b"1", second: b"2"}
    world.go(first, second)
    last = world.written[-1].value
    assert isinstance(last, GroupMetadataValue)
    assert (last.generation, last.protocol, last.members, last.protocol_type) == (3, None, [], "consumer")
    assert GROUP in world.state.groups
