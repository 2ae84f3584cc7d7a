"""Members of consumer groups beside both nodes: they bring their own ids, so that whole lives of groups are equal.

walker = Walker(both, group)
walker.join("a", topic)     # fails unless both nodes say the same, word by word
walker.confirm("a")
walker.look()
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
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, Both, Side
from tests.conformance.differential.normal import Messages

GROUP_RESOURCE = 32
probes = count(1)
intervals_ms = count(5_001)
"""Those of no group but one: between what is the least and the most by default."""


class Walker:
    """Members of one group, as both nodes know them."""

    def __init__(self, both: Both, group: str) -> None:
        self.both = both
        self.group = group
        self.owned: dict[str, dict[str, list[int]]] = {}
        self.epochs: dict[str, int] = {}

    def say(self, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Answers:
        """The answers to a heartbeat, which must be equal, messages included."""
        owned = fields.pop("owned", None)

        def make(side: Side) -> ConsumerGroupHeartbeatRequest:
            partitions = None
            if owned is not None:
                partitions = [
                    TopicPartitions(topic_id=side.id_of(topic), partitions=list(each)) for topic, each in owned.items()
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
        for each in answers:
            sort_partitions(each.assignment)
        found = self.both.differences(answers, version, messages=Messages.EXACTLY)
        assert not found, (make(self.both.ottla), found)
        answer = answers.ottla
        if not answer.error_code:
            self.epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[member] = {
                    self.both.ottla.known.topics[each.topic_id]: each.partitions
                    for each in answer.assignment.topic_partitions
                }
        return answers

    def join(self, member: str, *topics: str, **fields: Any) -> Answers:
        how: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": list(topics),
            "owned": {},
            **fields,
        }
        return self.say(member, 0, **how)

    def beat(self, member: str, **fields: Any) -> Answers:
        return self.say(member, self.epochs[member], **fields)

    def confirm(self, member: str, **fields: Any) -> Answers:
        """A heartbeat that tells what the member has: just what it was told to."""
        return self.say(member, self.epochs[member], owned=self.owned.get(member, {}), **fields)

    def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for member in list(self.epochs):
                if self.epochs[member] >= 0:
                    self.confirm(member)

    def notice(self, member: str, epoch: int) -> None:
        """Let the coordinators learn of a change of topics, which takes them a moment: speak until the epoch rises."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        epochs = dict.fromkeys((side.name for side in self.both.sides), self.epochs[member])

        def make(side: Side) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=member, member_epoch=epochs[side.name], topic_partitions=None
            )

        while min(self.group_epochs()) <= epoch or len(set(epochs.values())) > 1:
            assert time.monotonic() < deadline, "the change was not noticed"
            for side, answer in zip(self.both.sides, self.both.ask(make, 1), strict=True):
                assert not answer.error_code, answer
                epochs[side.name] = answer.member_epoch
        self.epochs[member] = epochs["Ottla"]

    def group_epochs(self) -> list[int]:
        """The group's epoch on both."""
        answers = self.both.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1)
        return [int(answer.groups[0].group_epoch) for answer in answers]

    def look(self) -> None:
        """Both tell the same of the group."""
        self.describe(0)
        self.describe(1)
        self.describe(1, include_authorized_operations=True)
        listed = self.both.ask(ListGroupsRequest(types_filter=["consumer"]), 5)
        for answer in listed:
            answer.groups = [each for each in answer.groups if each.group_id == self.group]
        found = self.both.differences(listed, 5)
        assert not found, found
        self.both.same(DescribeGroupsRequest(groups=[self.group]), 6, messages=Messages.EXACTLY)

    def describe(self, version: int, **fields: Any) -> None:
        answers = self.both.ask(ConsumerGroupDescribeRequest(group_ids=[self.group], **fields), version)
        for answer in answers:
            for member in answer.groups[0].members:
                sort_partitions(member.assignment)
                sort_partitions(member.target_assignment)
                member.subscribed_topic_names.sort()
        found = self.both.differences(answers, version, messages=Messages.EXACTLY)
        assert not found, found


def told_in_order(both: Both, request: Any, version: int) -> list[str]:
    """The members of the one group that is described, which must come in the same order from both."""
    kafka, ottla = (
        [str(member.member_id) for member in answer.groups[0].members] for answer in both.ask(request, version)
    )
    assert ottla == kafka
    return ottla


def sort_partitions(assignment: Any) -> None:
    """What is a set to both nodes goes over the wire in the order of their tables."""
    if assignment is not None:
        for topic in assignment.topic_partitions:
            topic.partitions.sort()


def configure(both: Both, group: str, **settings: str) -> None:
    """Set a group's own settings on both, and wait until both coordinators go by them."""
    probe, interval_ms = f"probe-{next(probes)}", next(intervals_ms)
    resources = [
        AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=name,
            configs=[AlterableConfig(name=each.replace("_", "."), value=value) for each, value in given.items()],
        )
        for name, given in ((group, settings), (probe, {"consumer_heartbeat_interval_ms": str(interval_ms)}))
    ]
    answers = both.same(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert not any(each.error_code for each in answers.ottla.responses), answers
    # Coordinators learn of settings a moment after they are stored, of all that were stored together at once.
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while {each.heartbeat_interval_ms for each in probed(both, probe, "no-topic")} != {interval_ms}:
        assert time.monotonic() < deadline, "the settings are not known"


def probed(both: Both, group: str, topic: str) -> Answers:
    """What a member is told that joins a group of its own and leaves at once."""
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


def new_topic(both: Both, *, partitions: int = 1) -> str:
    """A topic that both coordinators know of: they learn of it a moment after it can be used."""
    name = both.new_topic(partitions=partitions)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        found = [answer.assignment.topic_partitions for answer in probed(both, f"probe-{next(probes)}", name)]
        if all(found):
            return name
        assert time.monotonic() < deadline, f"{name} is not known: {found}"
