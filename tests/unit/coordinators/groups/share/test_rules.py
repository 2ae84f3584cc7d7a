"""Share groups on virtual time: initialization with failures and retries, and members that time out or leave."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinators.groups.describing import delete_group
from ottla.coordinators.groups.share import states
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import HeartbeatReply, StatesToInitialize, check_heartbeat, heartbeat
from ottla.protocol.errors import GroupIdNotFound, NonEmptyGroup, UnknownMemberId
from ottla.protocol.messages.rpc.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.unit.coordinators.groups.consumer.world import GROUP, World


class ShareWorld(World):
    """One coordinator of share groups; the share coordinator is the test."""

    def __init__(self, topics: Mapping[str, int], **settings: Any) -> None:
        super().__init__(topics, **settings)
        self.configure(GROUP, share_assignment_interval_ms="0")

    def say(self, member: str, epoch: int, *topics: str) -> HeartbeatReply:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        check_heartbeat(request)
        context = self.context()
        reply = self.decide(lambda state: heartbeat(state, request, context))
        assert isinstance(reply, HeartbeatReply)
        return reply

    def made(self, wanted: StatesToInitialize) -> None:
        context = self.context()
        topics = {topic_id: list(offsets) for topic_id, offsets in wanted.offsets.items()}
        self.decide(lambda state: states.record_initialized(state, GROUP, topics, context))

    def failed(self, wanted: StatesToInitialize) -> None:
        context = self.context()
        topics = {topic_id: list(offsets) for topic_id, offsets in wanted.offsets.items()}
        self.decide(lambda state: states.record_failed(state, GROUP, topics, context))

    def read_by(self, beat: HeartbeatReply) -> dict[str, list[int]]:
        assert beat.response.assignment is not None
        return {self.name_of(each.topic_id): each.partitions for each in beat.response.assignment.topic_partitions}

    @property
    def share_group(self) -> ShareGroup:
        group = self.state.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group


def test_a_partition_is_assigned_once_it_is_initialized() -> None:
    world = ShareWorld({"t": 2})
    beat = world.say("a", 0, "t")
    assert world.read_by(beat) == {}
    assert beat.states == StatesToInitialize(GROUP, 2, {world.id_of("t"): {0: -1, 1: -1}})
    assert world.say("a", 2).states is None, "they are on their way"
    world.made(beat.states)
    beat = world.say("a", 2)
    assert (beat.response.member_epoch, world.read_by(beat)) == (3, {"t": [0, 1]})
    world.set_topic("t", 3)
    beat = world.say("a", 3)
    assert beat.states == StatesToInitialize(GROUP, 4, {world.id_of("t"): {2: -1}})
    world.made(beat.states)
    assert world.read_by(world.say("a", 4)) == {"t": [0, 1, 2]}


def test_a_failed_initialization_is_retried() -> None:
    world = ShareWorld({"t": 1})
    beat = world.say("a", 0, "t")
    assert beat.states is not None
    world.failed(beat.states)
    assert world.say("a", 2).states is not None
    assert world.say("a", 2).states is None
    world.pass_time(world.setting("group.share.initialize.retry.interval.ms"))
    assert world.say("a", 2).states is not None, "nobody said what became of it"


def test_a_silent_member_is_fenced_even_by_the_next_coordinator() -> None:
    world = ShareWorld({"t": 1})
    world.say("a", 0, "t")
    world.say("b", 0, "t")
    world.pass_time(30_000)
    world.say("a", 2)
    world.pass_time(30_000)
    assert set(world.share_group.members) == {"a"}
    with pytest.raises(UnknownMemberId):
        world.say("b", 2)
    world.reload()
    assert set(world.share_group.members) == {"a"}
    world.pass_time(45_000)
    assert world.share_group.is_empty


def test_the_next_coordinator_has_everything_written() -> None:
    world = ShareWorld({"t": 2, "u": 1})
    for member in ("a", "b", "c"):
        beat = world.say(member, 0, "t", "u")
        if beat.states is not None:
            world.made(beat.states)
    world.say("a", 2)
    before = world.share_group
    world.reload()
    assert world.share_group == replace(before, refresh_deadline=world.share_group.refresh_deadline)
    world.set_topic("t", 0)
    assert world.share_group.partitions is not None
    assert set(world.share_group.partitions.initialized) == {world.id_of("u")}


def test_a_group_is_deleted_in_two_steps() -> None:
    world = ShareWorld({"t": 2})
    beat = world.say("a", 0, "t")
    assert beat.states is not None
    world.made(beat.states)
    with pytest.raises(NonEmptyGroup):
        world.decide(lambda state: states.delete_states(state, GROUP, world.context()))
    world.say("a", -1)
    wanted = world.decide(lambda state: states.delete_states(state, GROUP, world.context()))
    assert wanted == {world.id_of("t"): [0, 1]}
    world.reload()
    again = world.decide(lambda state: states.delete_states(state, GROUP, world.context()))
    assert again == wanted, "the states may be there yet"
    world.decide(lambda state: delete_group(state, GROUP))
    assert GROUP not in world.state.groups


def test_offsets_are_set_for_groups_without_members_only() -> None:
    world = ShareWorld({"t": 2})
    asked = AlterShareGroupOffsetsRequestTopic(
        topic_name="t", partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=7)]
    )
    altered = world.decide(lambda state: states.alter_offsets(state, GROUP, [asked], world.context()))
    assert altered.states == StatesToInitialize(GROUP, 1, {world.id_of("t"): {1: 7}})
    world.made(altered.states)
    beat = world.say("a", 0, "t")
    assert beat.states is not None
    assert beat.states.offsets == {world.id_of("t"): {0: -1}}, "the other has its state"
    with pytest.raises(NonEmptyGroup):
        world.decide(lambda state: states.alter_offsets(state, GROUP, [asked], world.context()))
    with pytest.raises(GroupIdNotFound):
        world.decide(lambda state: states.delete_offsets(state, "nobody", ["t"], world.context()))
