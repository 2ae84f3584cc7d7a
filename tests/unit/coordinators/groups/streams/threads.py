"""Simulated threads of streams applications that follow the protocol: they revoke before they take."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ottla.coordinators.groups.streams.checking import check_heartbeat
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.heartbeat import HeartbeatReply, heartbeat
from ottla.protocol.errors import ApiError, FencedMemberEpoch, UnknownMemberId
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.unit.coordinators.groups.consumer.world import GROUP, World

Owned = dict[str, set[tuple[str, int]]]
"""Tasks by role."""
ROLES = ("active", "standby", "warmup")


def changelog(name: str) -> TopicInfo:
    return TopicInfo(name=name)


def word_count(source: str = "lines", *, epoch: int = 0) -> Topology:
    """Return a word count topology: two subtopologies, one of them with a store."""
    return Topology(
        epoch=epoch,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=["words-repartition"]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name="words-repartition")],
                state_changelog_topics=[changelog("counts-changelog")],
                copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


def say(world: World, member: str, epoch: int, **fields: Any) -> HeartbeatReply:
    """Send a heartbeat and return its reply."""
    request = StreamsGroupHeartbeatRequest(
        **{"group_id": GROUP, "member_id": member, "member_epoch": epoch, **fields},
    )
    context = world.context(0)
    check_heartbeat(request)
    heard = world.decide(lambda state: heartbeat(state, request, context))
    assert isinstance(heard, HeartbeatReply)
    return heard


def join(world: World, member: str, topology: Topology | None = None, **fields: Any) -> HeartbeatReply:
    """Send a first heartbeat."""
    return say(
        world,
        member,
        0,
        **{
            "rebalance_timeout_ms": 60_000,
            "topology": topology or word_count(),
            "process_id": member,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            **fields,
        },
    )


def group_of(world: World) -> StreamsGroup:
    group = world.state.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    return group


def create_missing(world: World, heard: HeartbeatReply) -> None:
    """Create the missing topics of a reply, as a broker does."""
    for topic in heard.missing:
        if world.image.topic(topic.name) is None:
            world.set_topic(topic.name, topic.num_partitions)


def tasks_of(assigned: Iterable[TaskIds] | None) -> set[tuple[str, int]]:
    return {(each.subtopology_id, number) for each in assigned or () for number in each.partitions}


def task_ids(tasks: Iterable[tuple[str, int]]) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for subtopology, number in sorted(tasks):
        found.setdefault(subtopology, []).append(number)
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in found.items()]


class SimulatedThread:
    """One member. Its first heartbeat has all fields; later ones have its tasks when they changed."""

    def __init__(self, world: World, name: str, process: str, topology: Topology) -> None:
        self.world = world
        self.name = name
        self.process = process
        self.topology = topology
        self.lose_all()

    def lose_all(self) -> None:
        self.epoch = 0
        self.owned: Owned = {role: set() for role in ROLES}
        self.wanted: Owned | None = None
        self._told: Mapping[str, set[tuple[str, int]]] = {}

    def beat(self, *, answer_is_lost: bool = False) -> None:
        """Send a heartbeat, and apply the response."""
        if self.wanted is not None:
            self.owned, self.wanted = self.wanted, None
        fields: dict[str, Any] = {}
        if self.epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topology": self.topology, "process_id": self.process}
        if self.epoch == 0 or self.owned != self._told:
            fields |= {f"{role}_tasks": task_ids(self.owned[role]) for role in ROLES}
        try:
            heard = say(self.world, self.name, self.epoch, **fields)
        except (FencedMemberEpoch, UnknownMemberId):
            self.lose_all()
            return
        create_missing(self.world, heard)
        if answer_is_lost:
            self._told = {}  # it says all again
            return
        answer = heard.response
        self._told = {role: set(self.owned[role]) for role in ROLES}
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.wanted = {role: tasks_of(getattr(answer, f"{role}_tasks")) for role in ROLES}

    def leave(self) -> None:
        """Leave the group."""
        with suppress(ApiError):  # it may have been fenced without knowing
            say(self.world, self.name, -1)
        self.lose_all()
