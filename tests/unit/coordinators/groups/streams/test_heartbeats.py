"""Single heartbeats of streams groups: topologies, statuses, delays, endpoints, commits."""

import pytest

from ottla.coordinators.groups.describing import delete_group
from ottla.coordinators.groups.state import CommittedPartition
from ottla.coordinators.groups.streams.heartbeat import HeartbeatReply
from ottla.coordinators.groups.streams.partition_counts import StreamsStatus
from ottla.protocol.errors import GroupMaxSizeReached, InvalidRequest, NonEmptyGroup, StaleMemberEpoch, UnknownMemberId
from ottla.protocol.messages.records.streams_group_records import StreamsGroupMetadataKey
from ottla.protocol.messages.rpc.streams_group_heartbeat import Endpoint
from tests.unit.coordinators.groups.consumer.world import GROUP, World
from tests.unit.coordinators.groups.streams.threads import (
    create_missing,
    group_of,
    join,
    say,
    task_ids,
    tasks_of,
    word_count,
)


@pytest.fixture
def world() -> World:
    return World({"lines": 3}, group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)


def statuses(heard: HeartbeatReply) -> list[StreamsStatus]:
    return [StreamsStatus(each.status_code) for each in heard.response.status or ()]


def settled(world: World, member: str = "a") -> HeartbeatReply:
    """Join a member, create the missing topics, and return the reply to its next heartbeat."""
    create_missing(world, join(world, member))
    return say(world, member, group_of(world).members[member].epoch)


def test_tasks_are_assigned_once_the_internal_topics_exist(world: World) -> None:
    first = join(world, "a")
    assert statuses(first) == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    assert first.response.active_tasks == []
    assert {topic.name: topic.num_partitions for topic in first.missing} == {
        "words-repartition": 3,
        "counts-changelog": 3,
    }
    assert group_of(world).state_name == "NotReady"
    create_missing(world, first)
    second = say(world, "a", first.response.member_epoch)
    assert statuses(second) == []
    assert tasks_of(second.response.active_tasks) == {(name, number) for name in ("0", "1") for number in range(3)}
    assert group_of(world).state_name == "Stable"


def test_missing_source_topics_are_reported_and_not_created(world: World) -> None:
    heard = join(world, "a", word_count("nowhere"))
    assert statuses(heard) == [StreamsStatus.MISSING_SOURCE_TOPICS]
    assert not heard.missing


def test_an_internal_topic_with_another_partition_count_is_reported(world: World) -> None:
    world.set_topic("counts-changelog", 2)
    heard = join(world, "a")
    assert statuses(heard) == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]
    assert not heard.missing


def test_an_older_topology_is_reported_and_a_different_one_rejected(world: World) -> None:
    create_missing(world, join(world, "a", word_count(epoch=2)))
    assert StreamsStatus.STALE_TOPOLOGY in statuses(join(world, "b", word_count(epoch=1)))
    with pytest.raises(InvalidRequest, match="Topology updates are not supported yet"):
        join(world, "c", word_count("other", epoch=2))


def test_the_first_target_waits_for_more_members() -> None:
    world = World({"lines": 3, "words-repartition": 3, "counts-changelog": 3})
    first = join(world, "a")
    assert statuses(first) == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert first.response.member_epoch == 1
    world.pass_time(2_000)
    assert statuses(join(world, "b")) == [StreamsStatus.ASSIGNMENT_DELAYED]
    world.pass_time(1_000)
    group = group_of(world)
    assert group.target_epoch == group.epoch
    tasks = tasks_of(say(world, "a", 1).response.active_tasks) | tasks_of(say(world, "b", 1).response.active_tasks)
    assert len(tasks) == 6


def test_a_new_number_of_standbys_bumps_the_epoch(world: World) -> None:
    settled(world)
    join(world, "b")
    before = group_of(world).epoch
    world.configure(GROUP, streams_num_standby_replicas="1")
    say(world, "b", group_of(world).members["b"].epoch)
    assert group_of(world).epoch == before + 1
    assert any(target.standby for target in group_of(world).targets.values())


def test_a_task_moves_once_its_owner_has_revoked_it(world: World) -> None:
    settled(world)
    joined = join(world, "b").response
    assert joined.active_tasks == []
    response = say(world, "a", group_of(world).members["a"].epoch).response
    kept = tasks_of(response.active_tasks)
    assert 0 < len(kept) < 6
    waiting = say(world, "b", joined.member_epoch).response
    assert not waiting.active_tasks
    say(world, "a", response.member_epoch, active_tasks=task_ids(kept), standby_tasks=[], warmup_tasks=[])
    got = tasks_of(say(world, "b", waiting.member_epoch).response.active_tasks)
    assert len(got) == 6 - len(kept)
    assert not got & kept


def test_a_member_that_does_not_revoke_tasks_in_time_is_fenced(world: World) -> None:
    settled(world)
    join(world, "b")
    say(world, "a", group_of(world).members["a"].epoch)
    for _ in range(5):
        world.pass_time(13_000)
        if "a" in group_of(world).members:
            say(world, "a", group_of(world).members["a"].epoch)
        say(world, "b", group_of(world).members["b"].epoch)
    assert set(group_of(world).members) == {"b"}


def test_a_shutdown_request_reaches_all_members(world: World) -> None:
    settled(world)
    join(world, "b")
    assert StreamsStatus.SHUTDOWN_APPLICATION in statuses(
        say(world, "a", group_of(world).members["a"].epoch, shutdown_application=True)
    )
    assert StreamsStatus.SHUTDOWN_APPLICATION in statuses(say(world, "b", group_of(world).members["b"].epoch))
    say(world, "a", -1)
    say(world, "b", -1)
    assert statuses(join(world, "c")) == []


def test_changed_endpoints_are_in_the_response(world: World) -> None:
    settled(world)
    joined = join(world, "b", user_endpoint=Endpoint(host="here", port=81)).response
    assert joined.endpoint_information_epoch == 1
    assert joined.partitions_by_user_endpoint is not None
    assert [endpoint.user_endpoint.port for endpoint in joined.partitions_by_user_endpoint] == [81]
    epoch = group_of(world).members["b"].epoch
    assert say(world, "b", epoch, endpoint_information_epoch=1).response.partitions_by_user_endpoint is None


def test_commits_of_an_older_epoch_succeed_for_kept_tasks(world: World) -> None:
    settled(world)
    old = group_of(world).members["a"].epoch
    join(world, "b")
    response = say(world, "a", old).response
    kept = tasks_of(response.active_tasks)
    say(world, "a", response.member_epoch, active_tasks=task_ids(kept), standby_tasks=[], warmup_tasks=[])
    group = group_of(world)
    assert group.members["a"].epoch > old
    number = next(number for name, number in sorted(kept) if name == "0")
    group.check_commit("a", None, old, version=10, in_transaction=False)
    group.check_partitions("a", old, [CommittedPartition("lines", bytes(16), number)])
    gone = next(number for number in range(3) if ("0", number) not in kept) if len(kept) < 6 else None
    if gone is not None:
        with pytest.raises(StaleMemberEpoch):
            group.check_partitions("a", old, [CommittedPartition("lines", bytes(16), gone)])
    with pytest.raises(StaleMemberEpoch):
        group.check_partitions("a", old, [CommittedPartition("other", bytes(16), 0)])
    with pytest.raises(StaleMemberEpoch):
        group.check_commit("a", None, 99, version=10, in_transaction=False)
    with pytest.raises(UnknownMemberId):
        group.check_commit("x", None, 1, version=10, in_transaction=False)


def test_a_group_is_full_and_is_deleted_only_when_it_is_empty() -> None:
    world = World({"lines": 1}, group_streams_max_size=1)
    join(world, "a")
    with pytest.raises(GroupMaxSizeReached):
        join(world, "b")
    with pytest.raises(NonEmptyGroup):
        world.decide(lambda state: delete_group(state, GROUP))
    say(world, "a", -1)
    world.decide(lambda state: delete_group(state, GROUP))
    assert GROUP not in world.state.groups
    world.reload()
    assert GROUP not in world.state.groups


def test_a_heartbeat_that_changes_nothing_writes_nothing(world: World) -> None:
    settled(world)
    say(world, "a", group_of(world).members["a"].epoch)
    before = len(world.written)
    say(world, "a", group_of(world).members["a"].epoch)
    assert len(world.written) == before


def test_a_loaded_group_looks_at_its_topics_again(world: World) -> None:
    settled(world)
    world.reload()
    say(world, "a", group_of(world).members["a"].epoch)
    assert not [each for each in world.written[-1:] if isinstance(each.key, StreamsGroupMetadataKey)]
    world.set_topic("lines", 4)
    response = say(world, "a", group_of(world).members["a"].epoch).response
    assert len(tasks_of(response.active_tasks)) == 7  # the repartition topic is as wide as before
