"""Consumer groups (KIP-848) behave as Kafka's; members choose their own ids, so whole lives of groups are compared."""

import random
from itertools import count
from typing import Any

import pytest

from ottla.protocol.messages.rpc.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.rpc.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.conformance.differential.consumer_groups import (
    ConsumerGroupMembers,
    compare_member_order,
    configure,
    new_topic,
)
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair, Side

numbers = count(1)


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture
def members(both: NodePair) -> ConsumerGroupMembers:
    group = f"consumer-{next(numbers)}"
    configure(both, group, consumer_assignment_interval_ms="0")
    return ConsumerGroupMembers(both, group)


def test_members_join_share_partitions_and_leave(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=6)
    members.join("a", topic)
    members.compare_group()
    members.join("b", topic)
    members.compare_group()
    members.heartbeat("a")
    members.heartbeat("b")
    members.compare_group()
    members.confirm("a")
    members.confirm("b")
    members.compare_group()
    members.join("c", topic, rack_id="r1", server_assignor="range")
    members.settle()
    members.compare_group()
    assert {len(owned[topic]) for owned in members.owned.values()} == {2}
    members.send_heartbeat("b", -1)
    members.heartbeat("a")
    members.settle()
    members.compare_group()
    members.send_heartbeat("a", -1)
    members.send_heartbeat("c", -1)
    members.compare_group()
    members.join("d", topic)
    members.compare_group()


def test_members_are_described_in_the_order_of_kafkas_hash_table(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both)
    for number in range(6):
        members.join(f"member-{number}", topic)
    assert len(compare_member_order(both, ConsumerGroupDescribeRequest(group_ids=[members.group]), 1)) == 6


@pytest.mark.parametrize("version", [0, 1])
def test_malformed_heartbeats_are_refused_with_the_same_messages(
    both: NodePair, members: ConsumerGroupMembers, version: int
) -> None:
    topic = new_topic(both)
    first: dict[str, Any] = {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "owned": {},
        "version": version,
    }
    members.send_heartbeat("", 1, version=version)
    members.send_heartbeat("", -1, version=version)
    members.send_heartbeat("a", -3, version=version)
    members.send_heartbeat("a", -2, version=version)
    members.send_heartbeat("a", 0, **{**first, "group_id": ""})
    members.send_heartbeat("a", 0, **{**first, "group_id": "  "})
    members.send_heartbeat("a", 0, **{**first, "instance_id": ""})
    members.send_heartbeat("a", 0, **{**first, "rack_id": ""})
    members.send_heartbeat("a", 0, **{**first, "rebalance_timeout_ms": -1})
    members.send_heartbeat("a", 0, **{**first, "owned": None})
    members.send_heartbeat("a", 0, **{**first, "owned": {topic: [0]}})
    members.send_heartbeat("a", 0, **{**first, "subscribed_topic_names": None})
    members.send_heartbeat("a", 0, **{**first, "server_assignor": "best"})
    members.send_heartbeat("a", 0, **{**first, "server_assignor": ""})
    members.send_heartbeat("a", 1, version=version)
    members.send_heartbeat("a", -1, version=version)
    members.send_heartbeat("a", -2, instance_id="i", version=version)
    if version:
        members.send_heartbeat("", 0, **first)
        for regex in ("a(", "[a", "*", "a{1001}", "\\"):
            members.send_heartbeat("a", 0, **{**first, "subscribed_topic_regex": regex})


def test_epochs_are_fenced(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)
    members.join("a", topic)
    members.send_heartbeat("b", 5)
    members.send_heartbeat("a", 9)
    members.send_heartbeat("a", 1)
    members.join("b", topic)
    members.heartbeat("a")
    members.send_heartbeat("a", 1, owned={topic: [0]})
    members.confirm("a")
    # If the answer was lost, the partitions of the previous epoch are still accepted.
    members.send_heartbeat("a", members.epochs["a"] - 1, owned=members.owned["a"])
    members.send_heartbeat("a", members.epochs["a"] - 1)
    members.send_heartbeat("a", members.epochs["a"] - 1, owned={topic: [0, 1, 2, 3]})
    members.join("a", topic)
    members.settle()
    members.compare_group()


def test_static_members_rejoin_the_same_way(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)
    members.join("a", topic, instance_id="i1")
    members.join("b", topic, instance_id="i2")
    members.confirm("a", instance_id="i1")
    members.confirm("b", instance_id="i2")
    members.confirm("a", instance_id="i1")
    members.confirm("b", instance_id="i2")
    members.join("c", topic, instance_id="i1")
    members.send_heartbeat("c", 3, instance_id="i1")
    members.send_heartbeat("a", 3, instance_id="unknown")
    members.send_heartbeat("c", -2, instance_id="i1")
    members.send_heartbeat("a", -2, instance_id="i1")
    members.compare_group()
    members.join("c", topic, instance_id="i1")
    members.send_heartbeat("a", 3, instance_id="i1")
    members.confirm("c", instance_id="i1")
    members.compare_group()
    members.send_heartbeat("c", -1, instance_id="i1")
    members.confirm("b", instance_id="i2")
    members.confirm("b", instance_id="i2")
    members.compare_group()


def test_changes_of_subscriptions_and_topics_rebalance_the_same_way(
    both: NodePair, members: ConsumerGroupMembers
) -> None:
    first, second = new_topic(both, partitions=3), new_topic(both, partitions=2)
    late = f"late-{members.group}"
    members.join("a", first, late, server_assignor="range")
    members.join("b", first, server_assignor="range")
    members.settle()
    members.compare_group()
    members.heartbeat("b", subscribed_topic_names=[second])
    members.settle()
    members.compare_group()
    epoch = max(members.group_epochs())
    both.create_topic(late, partitions=3)
    members.wait_for_epoch_above("b", epoch)
    members.settle()
    members.compare_group()
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=second, count=5, assignments=None)], timeout_ms=10_000
    )
    both.expect_same(grow, 3)
    members.wait_for_epoch_above("a", epoch + 1)
    members.settle()
    members.compare_group()
    both.delete_topic(late)
    members.wait_for_epoch_above("b", epoch + 2)
    members.owned["a"].pop(late, None)
    members.settle()
    members.compare_group()
    members.heartbeat("a", subscribed_topic_names=[])
    members.settle()
    members.compare_group()


def test_offset_requests_check_member_and_epoch(both: NodePair, members: ConsumerGroupMembers) -> None:
    topic = new_topic(both, partitions=4)

    def commit(member: str, epoch: int, partition: int = 0, *, version: int = 9) -> None:
        def make(side: Side) -> OffsetCommitRequest:
            partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)]
            topic_request = OffsetCommitRequestTopic(name=topic, topic_id=side.id_of(topic), partitions=partitions)
            return OffsetCommitRequest(
                group_id=members.group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic_request]
            )

        both.expect_same(make, version)

    def fetch(member: str | None, epoch: int, version: int = 9) -> None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        request = OffsetFetchRequestGroup(group_id=members.group, member_id=member, member_epoch=epoch, topics=topics)
        both.expect_same(OffsetFetchRequest(groups=[request]), version)

    commit("", -1)
    members.join("a", topic)
    epoch = members.epochs["a"]
    for version in (2, 8, 9, 10):
        commit("a", epoch, version=version)
    commit("", -1)
    commit("b", epoch)
    commit("a", epoch + 1)
    members.join("b", topic)
    members.heartbeat("a")
    members.confirm("a")
    members.confirm("b")
    lost = next(number for number in range(4) if number not in members.owned["a"][topic])
    kept = members.owned["a"][topic][0]
    assert members.epochs["a"] == epoch + 1
    commit("a", epoch, kept)
    commit("a", epoch, lost)
    commit("a", epoch - 1, kept)
    commit("b", epoch, members.owned["b"][topic][0])
    for member, member_epoch in ((None, -1), ("a", epoch + 1), ("a", epoch), ("b", -1), ("c", 1), ("", -1)):
        fetch(member, member_epoch)
    deleted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    both.expect_same(OffsetDeleteRequest(group_id=members.group, topics=[deleted]), 0)
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    members.send_heartbeat("a", -1)
    members.send_heartbeat("b", -1)
    both.expect_same(OffsetDeleteRequest(group_id=members.group, topics=[deleted]), 0)
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    members.compare_group()


def test_settings_of_a_group_apply(both: NodePair, members: ConsumerGroupMembers) -> None:
    configure(both, members.group, consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="50000")
    topic = new_topic(both)  # brokers that know the topic know the settings too
    answers = members.join("a", topic)
    assert answers.ottla.heartbeat_interval_ms == 7000


def test_an_assignment_lasts_for_the_assignment_interval(both: NodePair) -> None:
    """A member that joins shortly after an assignment waits for the next one."""
    members = ConsumerGroupMembers(both, f"consumer-{next(numbers)}")
    configure(both, members.group, consumer_assignment_interval_ms="15000")
    topic = new_topic(both, partitions=2)
    members.join("a", topic)
    members.join("b", topic)
    members.settle(2)
    members.compare_group()
    configure(both, members.group, consumer_assignment_interval_ms="0")
    new_topic(both)
    members.settle()
    members.compare_group()


def test_regular_expressions_subscribe_the_same_way(both: NodePair, members: ConsumerGroupMembers) -> None:
    prefix = f"rx-{members.group}"
    both.create_topic(f"{prefix}-1", partitions=2)
    members.join("a", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}.*")
    members.wait_for_epoch_above("a", 1)
    members.settle()
    members.compare_group()
    members.join("b", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}.*")
    members.settle()
    members.compare_group()
    members.heartbeat("a", subscribed_topic_regex="")
    members.settle()
    members.compare_group()
    members.send_heartbeat("b", -1)
    members.settle()
    members.compare_group()


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_of_groups_are_equal(both: NodePair, members: ConsumerGroupMembers, seed: int) -> None:
    source = random.Random(seed)
    # The order of two topics depends on their ids, which differ: use one topic, or the range assignor.
    assignor = source.choice(["uniform", "range"])
    topics = [new_topic(both, partitions=source.randint(1, 20)) for _ in range(1 if assignor == "uniform" else 3)]
    names = [f"member-{seed}-{number}" for number in range(8)]
    for _ in range(80):
        name, choice = source.choice(names), source.random()
        here = members.epochs.get(name, -1) >= 0
        if not here or choice < 0.05:
            subscribed = topics if assignor == "uniform" else source.sample(topics, source.randint(1, 3))
            members.join(name, *subscribed, server_assignor=assignor)
        elif choice < 0.12:
            members.send_heartbeat(name, -1)
        elif choice < 0.5:
            members.confirm(name)
        elif choice < 0.9:
            members.heartbeat(name)
        elif assignor == "range":
            members.heartbeat(name, subscribed_topic_names=source.sample(topics, source.randint(1, 3)))
        if source.random() < 0.1:
            members.describe(1)
    members.settle()
    members.compare_group()
