"""Members of streams groups beside both nodes: they bring their own ids, so that whole lives of groups are equal.

walker = StreamsWalker(both, group)
walker.join("a", topology)     # fails unless both nodes say the same, word by word
walker.until_ready("a")
walker.confirm("a")
walker.look()
"""

import time
from typing import Any

from ottla.coordinators.groups.behaviour import GroupsBehaviour
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.declare import schema_of
from ottla.storage.state_machine.entries import Stored, entries_of
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, Both, Side
from tests.conformance.differential.normal import Messages
from tests.conformance.differential.requests import Part, fetch

NOTHING: dict[str, dict[str, list[int]]] = {"active": {}, "standby": {}, "warmup": {}}


def word_count(source: str, name: str, *, epoch: int = 0) -> Topology:
    """Words are repartitioned and counted: two subtopologies, one of them with a store."""
    repartition = TopicInfo(
        name=f"{name}-words-repartition", topic_configs=[KeyValue(key="cleanup.policy", value="delete")]
    )
    counts = TopicInfo(
        name=f"{name}-counts-changelog",
        replication_factor=1,
        topic_configs=[KeyValue(key="cleanup.policy", value="compact")],
    )
    return Topology(
        epoch=epoch,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition.name]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[repartition],
                state_changelog_topics=[counts],
                copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


class StreamsWalker:
    """Members of one group, as both nodes know them."""

    def __init__(self, both: Both, group: str) -> None:
        self.both = both
        self.group = group
        self.owned: dict[str, dict[str, dict[str, list[int]]]] = {}
        self.epochs: dict[str, int] = {}

    def request(self, member: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
        owned = fields.pop("owned", None)
        if owned is not None:
            for role, tasks in owned.items():
                fields[f"{role}_tasks"] = [TaskIds(subtopology_id=k, partitions=list(v)) for k, v in tasks.items()]
        return StreamsGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields}
        )

    def say(self, member: str, epoch: int, **fields: Any) -> Answers:
        """The answers to a heartbeat, which must be equal, messages included."""
        request = self.request(member, epoch, **fields)
        answers = self.both.ask(request, 0)
        for each in answers:
            sort_partitions(each)
        found = self.both.differences(answers, 0, messages=Messages.EXACTLY)
        assert not found, (request, found)
        answer = answers.ottla
        if not answer.error_code:
            self.epochs[member] = answer.member_epoch
            if answer.active_tasks is not None:
                self.owned[member] = {
                    role: {each.subtopology_id: each.partitions for each in getattr(answer, f"{role}_tasks")}
                    for role in NOTHING
                }
        return answers

    def join(self, member: str, topology: Topology, **fields: Any) -> Answers:
        return self.say(member, 0, **{**self.new_member(member, topology), **fields})

    @staticmethod
    def new_member(member: str, topology: Topology) -> dict[str, Any]:
        """What a member tells with its first heartbeat."""
        return {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": member, "owned": NOTHING}

    def beat(self, member: str, **fields: Any) -> Answers:
        return self.say(member, self.epochs[member], **fields)

    def confirm(self, member: str, **fields: Any) -> Answers:
        """A heartbeat that tells what the member runs: just what it was told to."""
        return self.say(member, self.epochs[member], owned=self.owned.get(member, NOTHING), **fields)

    def settle(self, rounds: int = 5) -> None:
        for _ in range(rounds):
            for member in list(self.epochs):
                if self.epochs[member] >= 0:
                    self.confirm(member)

    def until_ready(self, member: str) -> None:
        """Speak until the coordinators have noticed the topics that they had made; that takes them a moment."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        epochs = dict.fromkeys((side.name for side in self.both.sides), self.epochs[member])
        while True:
            answers = self.both.ask(lambda side: self._of(side, member, epochs), 0)
            for side, answer in zip(self.both.sides, answers, strict=True):
                assert not answer.error_code, answer
                epochs[side.name] = answer.member_epoch
                if answer.active_tasks:
                    side.memory["tasks"] = {each.subtopology_id: each.partitions for each in answer.active_tasks}
            if not any(answer.status for answer in answers) and len(set(epochs.values())) == 1:
                break
            assert time.monotonic() < deadline, f"the topics were not noticed: {answers}"
            time.sleep(0.05)
        tasks = [side.memory.pop("tasks", {}) for side in self.both.sides]
        assert tasks[0] == tasks[1]
        self.epochs[member] = epochs["Ottla"]
        self.owned[member] = {**NOTHING, "active": tasks[0]}

    def _of(self, side: Side, member: str, epochs: dict[str, int]) -> StreamsGroupHeartbeatRequest:
        return self.request(member, epochs[side.name])

    def look(self) -> None:
        """Both tell the same of the group."""
        for with_operations in (False, True):
            request = StreamsGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=with_operations)
            self.both.same(request, 0, messages=Messages.EXACTLY)
        listed = self.both.ask(ListGroupsRequest(types_filter=["streams"]), 5)
        for answer in listed:
            answer.groups = [each for each in answer.groups if each.group_id == self.group]
        found = self.both.differences(listed, 5)
        assert not found, found
        self.both.same(DescribeGroupsRequest(groups=[self.group]), 6, messages=Messages.EXACTLY)


def written(both: Both, group: str) -> list[list[tuple[str, int | None, Any, Any]]]:
    """The records of a group in `__consumer_offsets` on both, with times and hashes of topics left out."""
    found = []
    for answer in both.ask(fetch(12, Part("__consumer_offsets", max_bytes=50_000_000)), 12):
        data = bytes(answer.responses[0].partitions[0].records or b"")
        found.append(
            [
                (type(entry.key).__name__, entry.version, _shown(entry.key), _shown(entry.value))
                for pos, header in read_batches(data)
                for entry in entries_of(GroupsBehaviour.kinds, data, pos, header)
                if isinstance(entry, Stored) and getattr(entry.key, "group_id", None) == group
            ]
        )
    return found


def _shown(message: Any) -> Any:
    """Lists keep their order: it is part of what is written."""
    if isinstance(message, list):
        return [_shown(each) for each in message]
    if message is None or isinstance(message, int | str):
        return message
    return {
        name: bool(getattr(message, name)) if name in _DIFFERENT else _shown(getattr(message, name))
        for name in schema_of(type(message)).fields
    }


_DIFFERENT = ("metadata_hash", "assignment_timestamp")


def sort_partitions(answer: Any) -> None:
    """What is a set to both nodes goes over the wire in the order of their tables."""
    for endpoint in answer.partitions_by_user_endpoint or ():
        for topic in (*endpoint.active_partitions, *endpoint.standby_partitions):
            topic.partitions.sort()
