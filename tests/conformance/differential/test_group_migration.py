"""Groups change their protocol while they are in use as Kafka's do (KIP-848's online migration)."""

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
from tests.conformance.differential.groups import Member, member, wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair

numbers = count(1)
VERSION = 2
LAST = "~"
"""A member id that sorts after all generated ids, whatever their first letter."""


def encode_subscription(topics: Sequence[str], owned: Mapping[str, Sequence[int]], generation: int = -1) -> bytes:
    """Return a classic consumer's subscription with its owned partitions."""
    partitions = [TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in owned.items()]
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions, generation_id=generation)
    return b"\0\2" + bytes(encode(message, VERSION))


def encode_assignment(topic: str, *partitions: int) -> bytes:
    """Return a classic consumer's assignment."""
    assigned_topic = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return b"\0\2" + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=[assigned_topic]), VERSION))


def decode_assignment(answer: Any) -> dict[str, list[int]]:
    assignment = decode(ConsumerProtocolAssignment, VERSION, bytes(answer.assignment)[2:])
    return {entry.topic: entry.partitions for entry in assignment.assigned_partitions}


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture
def members(both: NodePair) -> ConsumerGroupMembers:
    group = f"migrating-{next(numbers)}"
    configure(both, group, consumer_assignment_interval_ms="0")
    return ConsumerGroupMembers(both, group)


class ClassicConsumer:
    """A classic consumer that joins, syncs and remembers its partitions."""

    def __init__(self, inner: Member, topic: str) -> None:
        self.inner = inner
        self.topic = topic
        self.owned: list[int] = []

    def offer(self) -> None:
        owned = {self.topic: self.owned} if self.owned else {}
        self.inner.protocols = [("range", encode_subscription([self.topic], owned, self.inner.generation))]

    def join(self) -> int:
        self.offer()
        answer = self.inner.join().ottla
        return int(answer.error_code)

    def sync(self) -> int:
        answer = self.inner.expect_same(self.inner.sync_request(), 5).ottla
        if not answer.error_code:
            self.owned = decode_assignment(answer).get(self.topic, [])
        return int(answer.error_code)

    def heartbeat(self) -> int:
        return self.inner.heartbeat()

    def catch_up(self) -> None:
        """Rejoin until the group is stable, as a consumer does."""
        for _ in range(10):
            if not self.heartbeat():
                return
            assert not self.join()
            self.sync()
        raise AssertionError("the group does not become stable")


def compare_group_twice(members: ConsumerGroupMembers) -> None:
    members.compare_group()
    members.both.expect_same(DescribeGroupsRequest(groups=[members.group]), 6)


def start_classic(a: ClassicConsumer, b: ClassicConsumer) -> None:
    """Bring two members into a stable classic group, with three partitions each."""
    a.offer()
    a.inner.join()
    a.inner.expect_same(a.inner.sync_request({a.inner: encode_assignment(a.topic, 0, 1, 2, 3, 4, 5)}), 5)
    b.offer()
    b.inner.send_join()
    a.inner.wait_for_rebalance()
    a.inner.send_join()
    a.inner.end()
    b.inner.end()
    leader, other = a, b
    both_have = {a.inner: encode_assignment(a.topic, 0, 1, 2), b.inner: encode_assignment(a.topic, 3, 4, 5)}
    leader.inner.expect_same(leader.inner.sync_request(both_have), 5)
    other.inner.expect_same(other.inner.sync_request(), 5)
    a.owned, b.owned = [0, 1, 2], [3, 4, 5]


def test_a_classic_group_becomes_a_consumer_group_and_back(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=6)
    with (
        member(both, "a", members.group, instance="i1") as first,
        member(both, "b", members.group, instance="i2") as second,
    ):
        a, b = ClassicConsumer(first, topic), ClassicConsumer(second, topic)
        start_classic(a, b)
        compare_group_twice(members)
        members.join("z", topic, server_assignor="range")
        compare_group_twice(members)
        assert a.heartbeat() == b.heartbeat() == 27
        for _ in range(3):
            a.catch_up()
            b.catch_up()
            members.confirm("z")
            compare_group_twice(members)
        assert sorted([*a.owned, *b.owned, *members.owned["z"][topic]]) == list(range(6))
        assert members.owned["z"][topic]
        # When the last member of the new protocol leaves, the group is classic again.
        members.send_heartbeat("z", -1)
        compare_group_twice(members)
        assert a.heartbeat() == b.heartbeat() == 27
        a.offer()
        b.offer()
        a.inner.send_join()
        b.inner.send_join()
        # The leader depends on the generated ids.
        a.inner.end(ignoring=("leader", "members*"))
        b.inner.end(ignoring=("leader", "members*"))
        compare_group_twice(members)


def test_classic_members_take_part_in_a_consumer_group(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)
    members.join(LAST, topic, server_assignor="range")
    with member(both, "a", members.group) as first:
        a = ClassicConsumer(first, topic)
        first.protocol_type = "other"
        a.offer()
        first.expect_same(first.join_request(), 9)
        first.protocol_type = "consumer"
        first.protocols = []
        first.expect_same(first.join_request(), 9)
        assert a.join() == 0
        compare_group_twice(members)
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
        compare_group_twice(members)
        assert sorted([*a.owned, *members.owned[LAST][topic]]) == [0, 1, 2, 3]
        first.expect_same(first.commit_request(topic, 7), 9)
        first.expect_same(first.commit_request(topic, 7, generation_id_or_member_epoch=99), 9)
        unknown = LeaveGroupRequest(group_id=members.group, members=[MemberIdentity(member_id="nobody")])
        both.expect_same(unknown, 5)
        first.expect_same(first.leave_request(), 5)
        compare_group_twice(members)
        members.settle()
        compare_group_twice(members)


def test_an_empty_group_accepts_either_protocol(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=2)
    with member(both, "a", members.group, instance="i1") as first:
        a = ClassicConsumer(first, topic)
        a.join()
        first.expect_same(first.sync_request({first: encode_assignment(topic, 0, 1)}), 5)
        first.expect_same(first.leave_request(), 5)
        members.compare_group()
        members.join("z", topic)
        members.compare_group()
        members.send_heartbeat("z", -1)
        members.compare_group()
        a.join()
        compare_group_twice(members)
    # Kafka forgets the group when it refuses the member; delete it, because later tests list all groups.
    both.ask(DeleteGroupsRequest(groups_names=[members.group]), 2)


def test_groups_of_other_types_do_not_change_protocol(both: NodePair, members: ConsumerGroupMembers) -> None:
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
        a, b = ClassicConsumer(first, topic), ClassicConsumer(second, topic)
        start_with_two_partitions(a)
        # The same instance joins with the new protocol and replaces the classic member.
        members.join("y", topic, instance_id="i1", server_assignor="range")
        compare_group_twice(members)
        first.heartbeat()
        b.join()
        b.sync()
        members.confirm("y", instance_id="i1")
        b.catch_up()
        members.confirm("y", instance_id="i1")
        compare_group_twice(members)
        # Back: only classic members are left, so the group is classic again.
        for side in both.sides:
            del side.memory[f"{members.group}/a"]
        a.owned = []
        a.offer()
        first.expect_same(first.join_request(), 9)
        compare_group_twice(members)


def start_with_two_partitions(a: ClassicConsumer) -> None:
    a.offer()
    a.inner.join()
    a.inner.expect_same(a.inner.sync_request({a.inner: encode_assignment(a.topic, 0, 1, 2, 3)}), 5)
    a.owned = [0, 1, 2, 3]
