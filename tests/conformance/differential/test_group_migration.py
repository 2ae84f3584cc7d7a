"""Groups that change their protocol while they are in use, beside Kafka (KIP-848's online migration)."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.wire.codec import decode, encode
from tests.conformance.differential.consumer_groups import ConsumerGroupMembers, configure, new_topic
from tests.conformance.differential.groups import Member, coordinators_ready, member
from tests.conformance.differential.harness import NodePair

numbers = count(1)
VERSION = 2
LAST = "~"
"""A member's id behind all ids that coordinators make up, whatever letter those begin with."""


def wants(topics: Sequence[str], owned: Mapping[str, Sequence[int]], generation: int = -1) -> bytes:
    """A classic consumer's subscription, with what it owns."""
    partitions = [TopicPartition(topic=topic, partitions=list(each)) for topic, each in owned.items()]
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions, generation_id=generation)
    return b"\0\2" + bytes(encode(message, VERSION))


def has(topic: str, *partitions: int) -> bytes:
    """A classic consumer's assignment."""
    named = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return b"\0\2" + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=[named]), VERSION))


def assigned(answer: Any) -> dict[str, list[int]]:
    found = decode(ConsumerProtocolAssignment, VERSION, bytes(answer.assignment)[2:])
    return {each.topic: each.partitions for each in found.assigned_partitions}


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    coordinators_ready(both)


@pytest.fixture
def members(both: NodePair) -> ConsumerGroupMembers:
    group = f"migrating-{next(numbers)}"
    configure(both, group, consumer_assignment_interval_ms="0")
    return ConsumerGroupMembers(both, group)


class Classic:
    """A classic consumer that joins, syncs and remembers what it has."""

    def __init__(self, inner: Member, topic: str) -> None:
        self.inner = inner
        self.topic = topic
        self.owned: list[int] = []

    def offer(self) -> None:
        owned = {self.topic: self.owned} if self.owned else {}
        self.inner.protocols = [("range", wants([self.topic], owned, self.inner.generation))]

    def join(self) -> int:
        self.offer()
        answer = self.inner.join().ottla
        return int(answer.error_code)

    def sync(self) -> int:
        answer = self.inner.expect_same(self.inner.sync_request(), 5).ottla
        if not answer.error_code:
            self.owned = assigned(answer).get(self.topic, [])
        return int(answer.error_code)

    def heartbeat(self) -> int:
        return self.inner.heartbeat()

    def catch_up(self) -> None:
        """Join again as long as it is told to, as a consumer does."""
        for _ in range(10):
            if not self.heartbeat():
                return
            assert not self.join()
            self.sync()
        raise AssertionError("it is told to join again and again")


def look(members: ConsumerGroupMembers) -> None:
    members.compare_group()
    members.both.expect_same(DescribeGroupsRequest(groups=[members.group]), 6)


def start_classic(a: Classic, b: Classic) -> None:
    """A stable classic group of two, with three partitions each."""
    a.offer()
    a.inner.join()
    a.inner.expect_same(a.inner.sync_request({a.inner: has(a.topic, 0, 1, 2, 3, 4, 5)}), 5)
    b.offer()
    b.inner.send_join()
    a.inner.wait_for_rebalance()
    a.inner.send_join()
    a.inner.end()
    b.inner.end()
    leader, other = a, b
    both_have = {a.inner: has(a.topic, 0, 1, 2), b.inner: has(a.topic, 3, 4, 5)}
    leader.inner.expect_same(leader.inner.sync_request(both_have), 5)
    other.inner.expect_same(other.inner.sync_request(), 5)
    a.owned, b.owned = [0, 1, 2], [3, 4, 5]


def test_a_classic_group_becomes_a_consumer_group_and_back(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=6)
    with (
        member(both, "a", members.group, instance="i1") as first,
        member(both, "b", members.group, instance="i2") as second,
    ):
        a, b = Classic(first, topic), Classic(second, topic)
        start_classic(a, b)
        look(members)
        members.join("z", topic, server_assignor="range")
        look(members)
        assert a.heartbeat() == b.heartbeat() == 27
        for _ in range(3):
            a.catch_up()
            b.catch_up()
            members.confirm("z")
            look(members)
        assert sorted([*a.owned, *b.owned, *members.owned["z"][topic]]) == list(range(6))
        assert members.owned["z"][topic]
        # With its last member of the new protocol the group is classic again.
        members.send_heartbeat("z", -1)
        look(members)
        assert a.heartbeat() == b.heartbeat() == 27
        a.offer()
        b.offer()
        a.inner.send_join()
        b.inner.send_join()
        # Who leads depends on the ids that the nodes gave.
        a.inner.end(ignoring=("leader", "members*"))
        b.inner.end(ignoring=("leader", "members*"))
        look(members)


def test_classic_members_in_a_consumer_group(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)
    members.join(LAST, topic, server_assignor="range")
    with member(both, "a", members.group) as first:
        a = Classic(first, topic)
        first.protocol_type = "other"
        a.offer()
        first.expect_same(first.join_request(), 9)
        first.protocol_type = "consumer"
        first.protocols = []
        first.expect_same(first.join_request(), 9)
        assert a.join() == 0
        look(members)
        a.sync()
        first.expect_same(first.join_request(protocols=[]), 9)
        first.expect_same(first.join_request(protocol_type="other"), 9)
        first.expect_same(first.sync_request(generation_id=99), 5)
        first.expect_same(first.sync_request(protocol_name="other"), 5)
        first.expect_same(first.sync_request(protocol_type="other"), 5)
        first.heartbeat(generation_id=99)
        first.expect_same(first.heartbeat_request(member_id="nobody"), 4)
        first.expect_same(first.heartbeat_request(group_instance_id="nobody"), 4)
        first.expect_same(first.sync_request(member_id=LAST), 5)
        members.confirm(LAST)
        a.catch_up()
        members.confirm(LAST)
        a.catch_up()
        look(members)
        assert sorted([*a.owned, *members.owned[LAST][topic]]) == [0, 1, 2, 3]
        first.expect_same(first.commit_request(topic, 7), 9)
        first.expect_same(first.commit_request(topic, 7, generation_id_or_member_epoch=99), 9)
        unknown = LeaveGroupRequest(group_id=members.group, members=[MemberIdentity(member_id="nobody")])
        both.expect_same(unknown, 5)
        first.expect_same(first.leave_request(), 5)
        look(members)
        members.settle()
        look(members)


def test_an_empty_group_takes_either_protocol(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=2)
    with member(both, "a", members.group, instance="i1") as first:
        a = Classic(first, topic)
        a.join()
        first.expect_same(first.sync_request({first: has(topic, 0, 1)}), 5)
        first.expect_same(first.leave_request(), 5)
        members.compare_group()
        members.join("z", topic)
        members.compare_group()
        members.send_heartbeat("z", -1)
        members.compare_group()
        a.join()
        look(members)
    # Kafka forgets the group when it refuses the member; later tests, which list all groups, should not see it here.
    both.ask(DeleteGroupsRequest(groups_names=[members.group]), 2)


def test_other_kinds_of_groups_do_not_change(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both)
    with member(both, "a", members.group, instance="i1") as first:
        first.protocol_type = "connect"
        first.join()
        first.expect_same(first.sync_request({first: b"all"}), 5)
        members.join("z", topic)
    malformed = ConsumerGroupMembers(both, f"{members.group}-malformed")
    with member(both, "b", malformed.group, instance="i1") as second:
        second.protocols = [("range", b"\0")]
        second.join()
        second.expect_same(second.sync_request({second: b""}), 5)
        malformed.join("z", topic)


def test_a_static_member_changes_its_protocol(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)
    with (
        member(both, "a", members.group, instance="i1") as first,
        member(both, "b", members.group, instance="i2") as second,
    ):
        a, b = Classic(first, topic), Classic(second, topic)
        start_small(a)
        # The same instance as a consumer of the new protocol: it takes the place of the classic one.
        members.join("y", topic, instance_id="i1", server_assignor="range")
        look(members)
        first.heartbeat()
        b.join()
        b.sync()
        members.confirm("y", instance_id="i1")
        b.catch_up()
        members.confirm("y", instance_id="i1")
        look(members)
        # And back: only classic members are left, so that the group is classic again.
        for side in both.sides:
            del side.memory[f"{members.group}/a"]
        a.owned = []
        a.offer()
        first.expect_same(first.join_request(), 9)
        look(members)


def start_small(a: Classic) -> None:
    a.offer()
    a.inner.join()
    a.inner.expect_same(a.inner.sync_request({a.inner: has(a.topic, 0, 1, 2, 3)}), 5)
    a.owned = [0, 1, 2, 3]
