"""Members of consumer groups on both nodes: they choose their own ids, so a group can be compared over its whole life.

members = ConsumerGroupMembers(both, group)
members.join("a", topic)     # fails unless both answers are equal, messages included
members.confirm("a")
members.compare_group()
"""

import time
from itertools import count
from typing import Any

from ottla.protocol.messages.rpc.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, NodePair, Side
from tests.conformance.differential.normalization import Messages

GROUP_RESOURCE = 32
probes = count(1)
intervals_ms = count(5_001)
"""Heartbeat intervals, each for one group, between the default minimum and maximum."""


class ConsumerGroupMembers:
    """The members of one group on both nodes."""

    def __init__(self, both: NodePair, group: str) -> None:
        self.both = both
        self.group = group
        self.owned: dict[str, dict[str, list[int]]] = {}
        self.epochs: dict[str, int] = {}

    def send_heartbeat(self, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Answers:
        """Send a heartbeat, and return the answers, which must be equal, messages included."""
        owned = fields.pop("owned", None)

        def make(side: Side) -> ConsumerGroupHeartbeatRequest:
            partitions = None
            if owned is not None:
                partitions = [
                    TopicPartitions(topic_id=side.id_of(topic), partitions=list(numbers))
                    for topic, numbers in owned.items()
                ]
            return ConsumerGroupHeartbeatRequest(
                **{
                    "group_id": self.group,
                    "member_id": member,
                    "member_epoch": epoch,
                    "topic_partitions": partitions,
                    **fields,
                }
            )

        answers = self.both.ask(make, version)
        for answer in answers:
            sort_partitions(answer.assignment)
        differences = self.both.differences(answers, version, messages=Messages.EXACTLY)
        assert not differences, (make(self.both.ottla), differences)
        answer = answers.ottla
        if not answer.error_code:
            self.epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[member] = {
                    self.both.ottla.names.topics[topic.topic_id]: topic.partitions
                    for topic in answer.assignment.topic_partitions
                }
        return answers

    def join(self, member: str, *topics: str, **fields: Any) -> Answers:
        values: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": list(topics),
            "owned": {},
            **fields,
        }
        return self.send_heartbeat(member, 0, **values)

    def heartbeat(self, member: str, **fields: Any) -> Answers:
        return self.send_heartbeat(member, self.epochs[member], **fields)

    def confirm(self, member: str, **fields: Any) -> Answers:
        """Send a heartbeat in which the member owns the partitions that it was assigned."""
        return self.send_heartbeat(member, self.epochs[member], owned=self.owned.get(member, {}), **fields)

    def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for member in list(self.epochs):
                if self.epochs[member] >= 0:
                    self.confirm(member)

    def wait_for_epoch_above(self, member: str, epoch: int) -> None:
        """Send heartbeats until both coordinators have noticed a change of topics, and the group epoch rises."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        epochs = dict.fromkeys((side.name for side in self.both.sides), self.epochs[member])

        def make(side: Side) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=member, member_epoch=epochs[side.name], topic_partitions=None
            )

        while min(self.group_epochs()) <= epoch or len(set(epochs.values())) > 1:
            assert time.monotonic() < deadline, "the coordinators did not notice the change"
            for side, answer in zip(self.both.sides, self.both.ask(make, 1), strict=True):
                assert not answer.error_code, answer
                epochs[side.name] = answer.member_epoch
        self.epochs[member] = epochs["Ottla"]

    def group_epochs(self) -> list[int]:
        """Return the group epoch on both nodes."""
        answers = self.both.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1)
        return [int(answer.groups[0].group_epoch) for answer in answers]

    def compare_group(self) -> None:
        """Check that both nodes describe and list the group alike."""
        self.describe(0)
        self.describe(1)
        self.describe(1, include_authorized_operations=True)
        listed = self.both.ask(ListGroupsRequest(types_filter=["consumer"]), 5)
        for answer in listed:
            answer.groups = [group for group in answer.groups if group.group_id == self.group]
        differences = self.both.differences(listed, 5)
        assert not differences, differences
        self.both.expect_same(DescribeGroupsRequest(groups=[self.group]), 6, messages=Messages.EXACTLY)

    def describe(self, version: int, **fields: Any) -> None:
        answers = self.both.ask(ConsumerGroupDescribeRequest(group_ids=[self.group], **fields), version)
        for answer in answers:
            for member in answer.groups[0].members:
                sort_partitions(member.assignment)
                sort_partitions(member.target_assignment)
                member.subscribed_topic_names.sort()
        differences = self.both.differences(answers, version, messages=Messages.EXACTLY)
        assert not differences, differences


def compare_member_order(both: NodePair, request: Any, version: int) -> list[str]:
    """Return the members of a described group, which both nodes must return in the same order."""
    kafka, ottla = (
        [str(member.member_id) for member in answer.groups[0].members] for answer in both.ask(request, version)
    )
    assert ottla == kafka
    return ottla


def sort_partitions(assignment: Any) -> None:
    """Sort partitions, which both nodes send in the order of their hash tables."""
    if assignment is not None:
        for topic in assignment.topic_partitions:
            topic.partitions.sort()


def configure(both: NodePair, group: str, **settings: str) -> None:
    """Set settings of a group on both nodes, and wait until both coordinators use them."""
    probe, interval_ms = f"probe-{next(probes)}", next(intervals_ms)
    resources = [
        AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=name,
            configs=[AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()],
        )
        for name, values in ((group, settings), (probe, {"consumer_heartbeat_interval_ms": str(interval_ms)}))
    ]
    answers = both.expect_same(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert not any(result.error_code for result in answers.ottla.responses), answers
    # Coordinators apply settings a moment after they are stored, and settings stored together at the same time.
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while {answer.heartbeat_interval_ms for answer in probe_group(both, probe, "no-topic")} != {interval_ms}:
        assert time.monotonic() < deadline, "the coordinators do not use the settings"


def probe_group(both: NodePair, group: str, topic: str) -> Answers:
    """Join a group as its only member, leave at once, and return the answers to the join."""
    member = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="probe",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    answers = both.ask(member, 1)
    both.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id="probe", member_epoch=-1), 1)
    return answers


def new_topic(both: NodePair, *, partitions: int = 1) -> str:
    """Create a topic, and wait until both coordinators know it, which is a moment after it has leaders."""
    name = both.new_topic(partitions=partitions)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        assigned = [answer.assignment.topic_partitions for answer in probe_group(both, f"probe-{next(probes)}", name)]
        if all(assigned):
            return name
        assert time.monotonic() < deadline, f"the coordinators do not know {name}: {assigned}"
