"""Consumer groups (KIP-848) beside Kafka: members bring their own ids, so that whole lives of groups are equal."""

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
from tests.conformance.differential.consumer_groups import Walker, configure, new_topic, told_in_order
from tests.conformance.differential.groups import coordinators_ready
from tests.conformance.differential.harness import Both, Side

numbers = count(1)


@pytest.fixture(autouse=True)
def ready(both: Both) -> None:
    coordinators_ready(both)


@pytest.fixture
def walker(both: Both) -> Walker:
    group = f"consumer-{next(numbers)}"
    configure(both, group, consumer_assignment_interval_ms="0")
    return Walker(both, group)


def test_members_come_share_and_go(both: Both, walker: Walker) -> None:
    topic = new_topic(both, partitions=6)
    walker.join("a", topic)
    walker.look()
    walker.join("b", topic)
    walker.look()
    walker.beat("a")
    walker.beat("b")
    walker.look()
    walker.confirm("a")
    walker.confirm("b")
    walker.look()
    walker.join("c", topic, rack_id="r1", server_assignor="range")
    walker.settle()
    walker.look()
    assert {len(owned[topic]) for owned in walker.owned.values()} == {2}
    walker.say("b", -1)
    walker.beat("a")
    walker.settle()
    walker.look()
    walker.say("a", -1)
    walker.say("c", -1)
    walker.look()
    walker.join("d", topic)
    walker.look()


def test_members_are_told_in_the_order_of_kafkas_table(both: Both, walker: Walker) -> None:
    topic = new_topic(both)
    for number in range(6):
        walker.join(f"member-{number}", topic)
    assert len(told_in_order(both, ConsumerGroupDescribeRequest(group_ids=[walker.group]), 1)) == 6


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_malformed_is_refused_with_the_same_words(both: Both, walker: Walker, version: int) -> None:
    topic = new_topic(both)
    first: dict[str, Any] = {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "owned": {},
        "version": version,
    }
    walker.say("", 1, version=version)
    walker.say("", -1, version=version)
    walker.say("a", -3, version=version)
    walker.say("a", -2, version=version)
    walker.say("a", 0, **{**first, "group_id": ""})
    walker.say("a", 0, **{**first, "group_id": "  "})
    walker.say("a", 0, **{**first, "instance_id": ""})
    walker.say("a", 0, **{**first, "rack_id": ""})
    walker.say("a", 0, **{**first, "rebalance_timeout_ms": -1})
    walker.say("a", 0, **{**first, "owned": None})
    walker.say("a", 0, **{**first, "owned": {topic: [0]}})
    walker.say("a", 0, **{**first, "subscribed_topic_names": None})
    walker.say("a", 0, **{**first, "server_assignor": "best"})
    walker.say("a", 0, **{**first, "server_assignor": ""})
    walker.say("a", 1, version=version)
    walker.say("a", -1, version=version)
    walker.say("a", -2, instance_id="i", version=version)
    if version:
        walker.say("", 0, **first)
        for regex in ("a(", "[a", "*", "a{1001}", "\\"):
            walker.say("a", 0, **{**first, "subscribed_topic_regex": regex})


def test_epochs_are_fenced(both: Both, walker: Walker) -> None:
    topic = new_topic(both, partitions=4)
    walker.join("a", topic)
    walker.say("b", 5)
    walker.say("a", 9)
    walker.say("a", 1)
    walker.join("b", topic)
    walker.beat("a")
    walker.say("a", 1, owned={topic: [0]})
    walker.confirm("a")
    # The answer was lost: what it had in the epoch before is still accepted.
    walker.say("a", walker.epochs["a"] - 1, owned=walker.owned["a"])
    walker.say("a", walker.epochs["a"] - 1)
    walker.say("a", walker.epochs["a"] - 1, owned={topic: [0, 1, 2, 3]})
    walker.join("a", topic)
    walker.settle()
    walker.look()


def test_static_members_come_back(both: Both, walker: Walker) -> None:
    topic = new_topic(both, partitions=4)
    walker.join("a", topic, instance_id="i1")
    walker.join("b", topic, instance_id="i2")
    walker.confirm("a", instance_id="i1")
    walker.confirm("b", instance_id="i2")
    walker.confirm("a", instance_id="i1")
    walker.confirm("b", instance_id="i2")
    walker.join("c", topic, instance_id="i1")
    walker.say("c", 3, instance_id="i1")
    walker.say("a", 3, instance_id="unknown")
    walker.say("c", -2, instance_id="i1")
    walker.say("a", -2, instance_id="i1")
    walker.look()
    walker.join("c", topic, instance_id="i1")
    walker.say("a", 3, instance_id="i1")
    walker.confirm("c", instance_id="i1")
    walker.look()
    walker.say("c", -1, instance_id="i1")
    walker.confirm("b", instance_id="i2")
    walker.confirm("b", instance_id="i2")
    walker.look()


def test_subscriptions_and_topics_change(both: Both, walker: Walker) -> None:
    first, second = new_topic(both, partitions=3), new_topic(both, partitions=2)
    late = f"late-{walker.group}"
    walker.join("a", first, late, server_assignor="range")
    walker.join("b", first, server_assignor="range")
    walker.settle()
    walker.look()
    walker.beat("b", subscribed_topic_names=[second])
    walker.settle()
    walker.look()
    epoch = max(walker.group_epochs())
    both.create_topic(late, partitions=3)
    walker.notice("b", epoch)
    walker.settle()
    walker.look()
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=second, count=5, assignments=None)], timeout_ms=10_000
    )
    both.same(grow, 3)
    walker.notice("a", epoch + 1)
    walker.settle()
    walker.look()
    both.delete_topic(late)
    walker.notice("b", epoch + 2)
    walker.owned["a"].pop(late, None)
    walker.settle()
    walker.look()
    walker.beat("a", subscribed_topic_names=[])
    walker.settle()
    walker.look()


def test_offsets_belong_to_members_and_epochs(both: Both, walker: Walker) -> None:
    topic = new_topic(both, partitions=4)

    def commit(member: str, epoch: int, partition: int = 0, *, version: int = 9) -> None:
        def make(side: Side) -> OffsetCommitRequest:
            partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)]
            named = OffsetCommitRequestTopic(name=topic, topic_id=side.id_of(topic), partitions=partitions)
            return OffsetCommitRequest(
                group_id=walker.group, member_id=member, generation_id_or_member_epoch=epoch, topics=[named]
            )

        both.same(make, version)

    def fetch(member: str | None, epoch: int, version: int = 9) -> None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(group_id=walker.group, member_id=member, member_epoch=epoch, topics=topics)
        both.same(OffsetFetchRequest(groups=[asked]), version)

    commit("", -1)
    walker.join("a", topic)
    epoch = walker.epochs["a"]
    for version in (2, 8, 9, 10):
        commit("a", epoch, version=version)
    commit("", -1)
    commit("b", epoch)
    commit("a", epoch + 1)
    walker.join("b", topic)
    walker.beat("a")
    walker.confirm("a")
    walker.confirm("b")
    lost = next(number for number in range(4) if number not in walker.owned["a"][topic])
    kept = walker.owned["a"][topic][0]
    assert walker.epochs["a"] == epoch + 1
    commit("a", epoch, kept)
    commit("a", epoch, lost)
    commit("a", epoch - 1, kept)
    commit("b", epoch, walker.owned["b"][topic][0])
    for member, at in ((None, -1), ("a", epoch + 1), ("a", epoch), ("b", -1), ("c", 1), ("", -1)):
        fetch(member, at)
    deleted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    both.same(OffsetDeleteRequest(group_id=walker.group, topics=[deleted]), 0)
    both.same(DeleteGroupsRequest(groups_names=[walker.group]), 2)
    walker.say("a", -1)
    walker.say("b", -1)
    both.same(OffsetDeleteRequest(group_id=walker.group, topics=[deleted]), 0)
    both.same(DeleteGroupsRequest(groups_names=[walker.group]), 2)
    walker.look()


def test_own_settings_of_a_group(both: Both, walker: Walker) -> None:
    configure(both, walker.group, consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="50000")
    topic = new_topic(both)  # brokers that know of it know of the settings, too
    answers = walker.join("a", topic)
    assert answers.ottla.heartbeat_interval_ms == 7000


def test_a_target_lasts_for_the_interval(both: Both) -> None:
    """Whoever comes shortly after a target was made waits for the next one."""
    walker = Walker(both, f"consumer-{next(numbers)}")
    configure(both, walker.group, consumer_assignment_interval_ms="15000")
    topic = new_topic(both, partitions=2)
    walker.join("a", topic)
    walker.join("b", topic)
    walker.settle(2)
    walker.look()
    configure(both, walker.group, consumer_assignment_interval_ms="0")
    new_topic(both)
    walker.settle()
    walker.look()


def test_regular_expressions_find_topics(both: Both, walker: Walker) -> None:
    prefix = f"rx-{walker.group}"
    both.create_topic(f"{prefix}-1", partitions=2)
    walker.join("a", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}.*")
    walker.notice("a", 1)
    walker.settle()
    walker.look()
    walker.join("b", subscribed_topic_names=None, subscribed_topic_regex=f"{prefix}.*")
    walker.settle()
    walker.look()
    walker.beat("a", subscribed_topic_regex="")
    walker.settle()
    walker.look()
    walker.say("b", -1)
    walker.settle()
    walker.look()


@pytest.mark.parametrize("seed", range(12))
def test_random_walks(both: Both, walker: Walker, seed: int) -> None:
    source = random.Random(seed)
    # Which of two topics comes first depends on their ids, which differ: one topic, or stretches.
    assignor = source.choice(["uniform", "range"])
    topics = [new_topic(both, partitions=source.randint(1, 20)) for _ in range(1 if assignor == "uniform" else 3)]
    names = [f"member-{seed}-{number}" for number in range(8)]
    for _ in range(80):
        name, choice = source.choice(names), source.random()
        here = walker.epochs.get(name, -1) >= 0
        if not here or choice < 0.05:
            subscribed = topics if assignor == "uniform" else source.sample(topics, source.randint(1, 3))
            walker.join(name, *subscribed, server_assignor=assignor)
        elif choice < 0.12:
            walker.say(name, -1)
        elif choice < 0.5:
            walker.confirm(name)
        elif choice < 0.9:
            walker.beat(name)
        elif assignor == "range":
            walker.beat(name, subscribed_topic_names=source.sample(topics, source.randint(1, 3)))
        if source.random() < 0.1:
            walker.describe(1)
    walker.settle()
    walker.look()
