"""Members of streams groups on both nodes: they choose their own ids, so a group can be compared over its whole life.

members = StreamsGroupMembers(both, group)
members.join("a", topology)     # fails unless both answers are equal, messages included
members.wait_until_ready("a")
members.confirm("a")
members.compare_group()
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
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, NodePair, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, fetch

NOTHING: dict[str, dict[str, list[int]]] = {"active": {}, "standby": {}, "warmup": {}}


def word_count(source: str, name: str, *, epoch: int = 0) -> Topology:
    """Return a topology that repartitions and counts words: two subtopologies, one of them with a store."""
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


class StreamsGroupMembers:
    """The members of one group on both nodes."""

    def __init__(self, both: NodePair, group: str) -> None:
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

    def send_heartbeat(self, member: str, epoch: int, **fields: Any) -> Answers:
        """Send a heartbeat, and return the answers, which must be equal, messages included."""
        request = self.request(member, epoch, **fields)
        answers = self.both.ask(request, 0)
        for answer in answers:
            sort_partitions(answer)
        differences = self.both.differences(answers, 0, messages=Messages.EXACTLY)
        assert not differences, (request, differences)
        answer = answers.ottla
        if not answer.error_code:
            self.epochs[member] = answer.member_epoch
            if answer.active_tasks is not None:
                self.owned[member] = {
                    role: {tasks.subtopology_id: tasks.partitions for tasks in getattr(answer, f"{role}_tasks")}
                    for role in NOTHING
                }
        return answers

    def join(self, member: str, topology: Topology, **fields: Any) -> Answers:
        return self.send_heartbeat(member, 0, **{**self.new_member(member, topology), **fields})

    @staticmethod
    def new_member(member: str, topology: Topology) -> dict[str, Any]:
        """Return the fields of a member's first heartbeat."""
        return {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": member, "owned": NOTHING}

    def heartbeat(self, member: str, **fields: Any) -> Answers:
        return self.send_heartbeat(member, self.epochs[member], **fields)

    def confirm(self, member: str, **fields: Any) -> Answers:
        """Send a heartbeat in which the member runs the tasks that it was assigned."""
        return self.send_heartbeat(member, self.epochs[member], owned=self.owned.get(member, NOTHING), **fields)

    def settle(self, rounds: int = 5) -> None:
        for _ in range(rounds):
            for member in list(self.epochs):
                if self.epochs[member] >= 0:
                    self.confirm(member)

    def wait_until_ready(self, member: str) -> None:
        """Send heartbeats until both coordinators have noticed the internal topics that they created."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        epochs = dict.fromkeys((side.name for side in self.both.sides), self.epochs[member])
        while True:
            answers = self.both.ask(lambda side: self._side_request(side, member, epochs), 0)
            for side, answer in zip(self.both.sides, answers, strict=True):
                assert not answer.error_code, answer
                epochs[side.name] = answer.member_epoch
                if answer.active_tasks:
                    side.memory["tasks"] = {tasks.subtopology_id: tasks.partitions for tasks in answer.active_tasks}
            if not any(answer.status for answer in answers) and len(set(epochs.values())) == 1:
                break
            assert time.monotonic() < deadline, f"the coordinators did not notice the topics: {answers}"
            time.sleep(0.05)
        active = [side.memory.pop("tasks", {}) for side in self.both.sides]
        assert active[0] == active[1]
        self.epochs[member] = epochs["Ottla"]
        self.owned[member] = {**NOTHING, "active": active[0]}

    def _side_request(self, side: Side, member: str, epochs: dict[str, int]) -> StreamsGroupHeartbeatRequest:
        return self.request(member, epochs[side.name])

    def compare_group(self) -> None:
        """Check that both nodes describe and list the group alike."""
        for with_operations in (False, True):
            request = StreamsGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=with_operations)
            self.both.expect_same(request, 0, messages=Messages.EXACTLY)
        listed = self.both.ask(ListGroupsRequest(types_filter=["streams"]), 5)
        for answer in listed:
            answer.groups = [group for group in answer.groups if group.group_id == self.group]
        differences = self.both.differences(listed, 5)
        assert not differences, differences
        self.both.expect_same(DescribeGroupsRequest(groups=[self.group]), 6, messages=Messages.EXACTLY)


def read_group_records(both: NodePair, group: str) -> list[list[tuple[str, int | None, Any, Any]]]:
    """Return a group's records in `__consumer_offsets` on both nodes, without times and topic hashes."""
    records = []
    for answer in both.ask(fetch(12, Part("__consumer_offsets", max_bytes=50_000_000)), 12):
        data = bytes(answer.responses[0].partitions[0].records or b"")
        records.append(
            [
                (type(entry.key).__name__, entry.version, _comparable(entry.key), _comparable(entry.value))
                for pos, header in read_batches(data)
                for entry in entries_of(GroupsBehaviour.kinds, data, pos, header)
                if isinstance(entry, Stored) and getattr(entry.key, "group_id", None) == group
            ]
        )
    return records


def _comparable(message: Any) -> Any:
    """Return a stored message as plain values; lists keep their order, which is compared too."""
    if isinstance(message, list):
        return [_comparable(item) for item in message]
    if message is None or isinstance(message, int | str):
        return message
    return {
        name: bool(getattr(message, name)) if name in _DIFFERENT else _comparable(getattr(message, name))
        for name in schema_of(type(message)).fields
    }


_DIFFERENT = ("metadata_hash", "assignment_timestamp")


def sort_partitions(answer: Any) -> None:
    """Sort partitions, which both nodes send in the order of their hash tables."""
    for endpoint in answer.partitions_by_user_endpoint or ():
        for topic in (*endpoint.active_partitions, *endpoint.standby_partitions):
            topic.partitions.sort()
