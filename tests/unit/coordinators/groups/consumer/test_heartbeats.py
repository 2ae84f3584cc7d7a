"""Single heartbeats on virtual time: responses, records and fencing."""

import pytest

from ottla.coordinators.groups.consumer.member import MemberState
from ottla.coordinators.groups.state import CommittedPartition
from ottla.protocol.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored
from tests.unit.coordinators.groups.consumer.consumers import SimulatedConsumer
from tests.unit.coordinators.groups.consumer.world import GROUP, World

AT_ONCE = {"group_consumer_assignment_interval_ms": 0}


def pair(world: World) -> tuple[SimulatedConsumer, SimulatedConsumer]:
    """Return two consumers that share a topic in a stable group."""
    consumers = SimulatedConsumer(world, "a"), SimulatedConsumer(world, "b")
    for _ in range(5):
        for consumer in consumers:
            consumer.beat()
    assert world.group().state_name == "Stable"
    return consumers


def test_the_first_member_writes_the_group_record() -> None:
    world = World({"t": 2})
    reply = world.join("a")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 2, 5000)
    assert world.assigned(reply) == {"t": [0, 1]}
    assert [type(entry.key) for entry in world.written] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_of_a_stable_group_writes_nothing() -> None:
    world = World({"t": 2}, **AT_ONCE)
    a, _ = pair(world)
    before, state = len(world.log), world.state
    reply = world.beat("a", a.epoch)
    assert reply.assignment is None
    assert len(world.log) == before
    assert world.state is state


def test_in_version_0_the_coordinator_generates_member_ids() -> None:
    world = World({"t": 1})
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    reply = world.heartbeat(request, version=0)
    assert reply.member_id == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_silent_member_is_fenced_when_its_session_ends() -> None:
    world = World({"t": 4}, **AT_ONCE)
    a, b = pair(world)
    world.pass_time(44_000)
    b.beat()
    world.pass_time(999)
    assert set(world.group().members) == {"a", "b"}
    world.pass_time(1)
    assert set(world.group().members) == {"b"}
    with pytest.raises(UnknownMemberId):
        world.beat("a", a.epoch)
    b.beat()
    b.beat()
    assert len(b.partitions()) == 4


def test_the_session_timeout_is_the_groups_own() -> None:
    world = World({"t": 1}, group_consumer_min_session_timeout_ms=10_000)
    world.configure(GROUP, consumer_session_timeout_ms="11000")
    world.join("a")
    world.pass_time(10_999)
    assert world.group().members
    world.pass_time(1)
    assert not world.group().members
    # A value from before the bounds changed is clamped.
    world.settings["group.consumer.min.session.timeout.ms"] = 12_000
    world.join("a")
    world.pass_time(11_999)
    assert world.group().members


def test_a_member_that_does_not_revoke_partitions_in_time_is_fenced() -> None:
    world = World({"t": 2}, **AT_ONCE)
    world.join("a", rebalance_timeout_ms=20_000)
    world.join("b")
    reply = world.beat("a", 2)
    assert world.assigned(reply) == {"t": [0]} or world.assigned(reply) == {"t": [1]}
    assert world.group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    world.pass_time(19_000)
    assert world.beat("a", 2).member_epoch == 2  # it is alive, and still holds on
    world.pass_time(999)
    assert "a" in world.group().members
    world.pass_time(1)
    assert "a" not in world.group().members
    assert world.assigned(world.beat("b", 3)) == {"t": [0, 1]}


def test_revoking_partitions_ends_the_wait() -> None:
    world = World({"t": 2}, **AT_ONCE)
    world.join("a", rebalance_timeout_ms=20_000)
    world.join("b")
    kept = world.assigned(world.beat("a", 2))
    assert world.beat("a", 2, kept).member_epoch == 3
    world.pass_time(21_000)
    assert "a" in world.group().members


def test_timeouts_restart_with_a_new_coordinator() -> None:
    world = World({"t": 2}, **AT_ONCE)
    world.join("a", rebalance_timeout_ms=20_000)
    world.join("b")
    world.beat("a", 2)
    world.pass_time(15_000)
    world.reload()
    world.pass_time(19_000)
    assert set(world.group().members) == {"a", "b"}
    world.pass_time(1_000)
    assert set(world.group().members) == {"b"}
    world.pass_time(25_000)
    assert not world.group().members


def test_a_lost_response_is_harmless() -> None:
    world = World({"t": 4}, **AT_ONCE)
    world.join("a")
    world.join("b")
    kept = world.assigned(world.beat("a", 2))
    assert world.beat("a", 2, kept).member_epoch == 3
    again = world.beat("a", 2, kept)
    assert again.member_epoch == 3
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", 2)
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", 2, {"t": [0, 1, 2, 3]})


def test_many_members_cause_one_target_an_interval() -> None:
    world = World({"t": 100})
    for number in range(50):
        world.join(f"m{number}")
    targets = [entry for entry in world.written if type(entry.key) is ConsumerGroupTargetAssignmentMetadataKey]
    assert len(targets) == 1
    world.pass_time(1_000)
    world.beat("m1", 2)
    targets = [entry for entry in world.written if type(entry.key) is ConsumerGroupTargetAssignmentMetadataKey]
    assert len(targets) == 2
    assert world.group().target_epoch == world.group().epoch


def test_a_full_group_rejects_new_members() -> None:
    world = World({"t": 1}, group_consumer_max_size=2)
    world.join("a")
    world.join("b")
    with pytest.raises(GroupMaxSizeReached, match="maximum capacity of 2 members"):
        world.join("c")
    world.join("a")
    world.leave("b")
    world.join("c")


def test_records_of_older_coordinators_are_deleted() -> None:
    world = World({"t": 1})
    world.join("a")
    old = Stored(ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue())
    world.decide(lambda _: Decision([old], None))
    world.reload()
    assert world.group().has_partition_metadata
    world.beat("a", 2)
    assert world.written[-1] == Stored(ConsumerGroupPartitionMetadataKey(group_id=GROUP), None)
    assert not world.group().has_partition_metadata


def test_commits_in_older_epochs_depend_on_the_partition() -> None:
    world = World({"t": 4}, **AT_ONCE)
    world.join("a")
    world.join("b")
    kept = world.assigned(world.beat("a", 2))
    world.beat("a", 2, kept)
    world.beat("b", 3)
    group, topic_id = world.group(), world.id_of("t")
    assert kept is not None
    mine = CommittedPartition("t", topic_id, kept["t"][0])
    lost = CommittedPartition("t", topic_id, next(each for each in range(4) if each not in kept["t"]))
    group.check_commit("a", None, 2, version=9, in_transaction=False)
    group.check_partitions("a", 2, [mine])
    group.check_partitions("a", 3, [lost])
    for epoch, partition in ((2, lost), (1, mine)):
        with pytest.raises(StaleMemberEpoch):
            group.check_partitions("a", epoch, [partition])
    with pytest.raises(StaleMemberEpoch):
        group.check_commit("a", None, 4, version=9, in_transaction=False)
    with pytest.raises(UnsupportedVersion):
        group.check_commit("a", None, 3, version=8, in_transaction=False)
    with pytest.raises(UnknownMemberId):
        group.check_commit("", None, -1, version=9, in_transaction=False)
    group.check_commit("", None, -1, version=3, in_transaction=True)


def test_a_group_is_deleted_with_all_its_records() -> None:
    world = World({"t": 1})
    world.join("a", None, subscribed_topic_regex="t")
    world.pass_time(1)
    world.leave("a")
    tombstones = world.group().tombstones()
    world.decide(lambda _: Decision(tombstones, None))
    assert GROUP not in world.state.groups
    world.reload()
    assert GROUP not in world.state.groups
    with pytest.raises(GroupIdNotFound):
        world.beat("a", 1)
