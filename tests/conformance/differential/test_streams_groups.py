"""Streams groups (KIP-1071) behave as Kafka's; members choose their own ids, so whole lives of groups are compared."""

import random
from itertools import count
from typing import Any

import pytest

from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
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
from ottla.protocol.messages.rpc.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.conformance.differential.consumer_groups import compare_member_order, configure, new_topic
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.streams_groups import NOTHING, StreamsGroupMembers, read_group_records, word_count

numbers = count(1)
TOPIC_RESOURCE = 2


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture
def members(both: NodePair) -> StreamsGroupMembers:
    group = f"streams-{next(numbers)}"
    configure(both, group, streams_assignment_interval_ms="0", streams_initial_rebalance_delay_ms="0")
    return StreamsGroupMembers(both, group)


def test_members_join_share_tasks_and_leave(both: NodePair, members: StreamsGroupMembers) -> None:
    topology = word_count(new_topic(both, partitions=4), members.group)
    members.join("a", topology)
    members.compare_group()
    members.wait_until_ready("a")
    members.compare_group()
    members.join("b", topology, rack_id="r1", client_tags=[KeyValue(key="zone", value="1")])
    members.compare_group()
    members.heartbeat("a")
    members.heartbeat("b")
    members.compare_group()
    members.settle()
    members.compare_group()
    members.join("c", topology, process_id="a")
    members.settle()
    members.compare_group()
    assert sum(len(numbers) for owned in members.owned.values() for numbers in owned["active"].values()) == 8
    members.send_heartbeat("b", -1)
    members.settle(3)
    del members.epochs["b"]
    members.settle()
    members.compare_group()
    members.send_heartbeat("a", -1)
    members.send_heartbeat("c", -1)
    members.compare_group()
    members.join("d", topology)
    members.compare_group()


def test_members_are_described_in_the_order_of_kafkas_hash_table(both: NodePair, members: StreamsGroupMembers) -> None:
    topology = word_count(new_topic(both), members.group)
    for number in range(6):
        members.join(f"member-{number}", topology)
        members.wait_until_ready(f"member-{number}")
    assert len(compare_member_order(both, StreamsGroupDescribeRequest(group_ids=[members.group]), 0)) == 6


def test_internal_topics_are_created_as_the_topology_says(both: NodePair, members: StreamsGroupMembers) -> None:
    members.join("a", word_count(new_topic(both, partitions=3), members.group))
    members.wait_until_ready("a")
    names = [f"{members.group}-words-repartition", f"{members.group}-counts-changelog"]
    topics = [MetadataRequestTopic(name=name) for name in names]
    answers = both.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    for side, answer in zip(both.sides, answers, strict=True):
        assert [len(topic.partitions) for topic in answer.topics] == [3, 3], side
    for name in names:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"]
        )
        both.expect_same(DescribeConfigsRequest(resources=[resource]), 4)


def test_standby_tasks_are_assigned_the_same_way(both: NodePair, members: StreamsGroupMembers) -> None:
    configure(both, members.group, streams_num_standby_replicas="1")
    topology = word_count(new_topic(both, partitions=4), members.group)
    members.join("a", topology)
    members.wait_until_ready("a")
    for member in ("b", "c"):
        members.join(member, topology)
        members.settle()
        members.compare_group()
    standbys = [number for owned in members.owned.values() for number in owned["standby"].get("1", ())]
    assert sorted(standbys) == [0, 1, 2, 3]


def test_malformed_heartbeats_are_refused_with_the_same_messages(both: NodePair, members: StreamsGroupMembers) -> None:
    topic = new_topic(both)
    topology = word_count(topic, members.group)
    members.send_heartbeat("", 0)
    members.send_heartbeat("a", -3)
    members.send_heartbeat("a", -2)
    members.send_heartbeat("a", 0)
    members.send_heartbeat("a", 0, rebalance_timeout_ms=1000)
    members.send_heartbeat("a", 0, rebalance_timeout_ms=1000, owned=NOTHING)
    members.join("a", topology, group_id="")
    members.join("a", topology, rack_id=" ")
    members.join("a", topology, instance_id="i")
    members.join("a", topology, instance_id="")
    members.join("a", topology, owned={**NOTHING, "active": {"0": [0]}})
    members.join("a", topology, owned={**NOTHING, "warmup": {"0": [0]}})
    members.join("a", topology, task_offsets=[TaskOffset(subtopology_id="0")])
    members.join("a", topology, task_end_offsets=[])
    members.send_heartbeat("a", 1)
    members.send_heartbeat("a", -1)
    members.send_heartbeat("a", 1, topology=topology)
    members.send_heartbeat("a", 1, owned={"active": {}})
    members.join("a", topology)
    members.wait_until_ready("a")
    members.send_heartbeat("b", 1)
    members.send_heartbeat("b", -1)
    members.send_heartbeat("a", 99)
    members.send_heartbeat("a", 1)
    members.send_heartbeat("a", members.epochs["a"], owned={**NOTHING, "active": {"7": [0]}})
    members.send_heartbeat("a", members.epochs["a"], owned={**NOTHING, "active": {"0": [5]}})
    members.compare_group()


def test_invalid_topologies_are_refused(both: NodePair, members: StreamsGroupMembers) -> None:
    topic, wide = new_topic(both), new_topic(both, partitions=3)

    def expect_refusal(*subtopologies: Subtopology, epoch: int = 0) -> None:
        group = f"{members.group}-{next(numbers)}"
        StreamsGroupMembers(both, group).join("a", Topology(epoch=epoch, subtopologies=list(subtopologies)))

    one = Subtopology(subtopology_id="0", source_topics=[topic])
    expect_refusal(Subtopology(subtopology_id="0", source_topics=["__consumer_offsets", "__transaction_state"]))
    expect_refusal(Subtopology(subtopology_id="0", source_topics=["not valid", "..", topic]))
    expect_refusal(Subtopology(subtopology_id="0", source_topics=[topic], source_topic_regex=["a.*"]))
    expect_refusal(
        Subtopology(
            subtopology_id="0", source_topics=[topic], state_changelog_topics=[TopicInfo(name="c", partitions=2)]
        )
    )
    expect_refusal(Subtopology(subtopology_id="0"))
    expect_refusal(one, one)
    expect_refusal(one, epoch=-1)
    expect_refusal(Subtopology(subtopology_id="0", source_topics=["missing-1", "missing-3", "missing-2", "missing-0"]))
    expect_refusal(
        Subtopology(
            subtopology_id="0", source_topics=[topic], repartition_source_topics=[TopicInfo(name="never-written")]
        )
    )
    expect_refusal(
        Subtopology(
            subtopology_id="0",
            repartition_sink_topics=["loop"],
            repartition_source_topics=[TopicInfo(name="loop")],
        )
    )
    together = CopartitionGroup(source_topics=[0, 1])
    expect_refusal(Subtopology(subtopology_id="0", source_topics=[topic, wide], copartition_groups=[together]))
    expect_refusal(
        Subtopology(subtopology_id="0", source_topics=[topic], copartition_groups=[CopartitionGroup(source_topics=[9])])
    )
    expect_refusal(
        Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[TopicInfo(name=wide)])
    )


def test_internal_topics_that_cannot_be_created_are_reported(both: NodePair, members: StreamsGroupMembers) -> None:
    topic = new_topic(both)
    bad = TopicInfo(name=f"{members.group}-changelog", replication_factor=3)
    topology = Topology(
        subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[bad])]
    )
    # Kafka's first answer already reports the failure if the creation fails quickly.
    request = members.request("a", 0, **members.new_member("a", topology))
    (epoch,) = {answer.member_epoch for answer in both.ask(request, 0)}

    def is_failure_reported() -> bool:
        answers = both.ask(members.request("a", epoch), 0)
        details = [answer.status[0].status_detail for answer in answers]
        assert all("Internal topics are missing" in detail for detail in details)
        return all("Creation failed: " in detail for detail in details)

    assert any(is_failure_reported() for _ in range(100))


def test_other_topology_epochs_get_the_same_answers(both: NodePair, members: StreamsGroupMembers) -> None:
    topic = new_topic(both)
    members.join("a", word_count(topic, members.group, epoch=2))
    members.wait_until_ready("a")
    members.join("b", word_count(topic, members.group, epoch=1))
    members.heartbeat("b")
    members.join("c", word_count(topic, members.group, epoch=3))
    members.join("d", word_count(topic, f"{members.group}-other", epoch=2))
    members.compare_group()


def test_the_initial_rebalance_delay_applies(both: NodePair) -> None:
    members = StreamsGroupMembers(both, f"streams-{next(numbers)}")
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[new_topic(both, partitions=2)])])
    configure(both, members.group, streams_initial_rebalance_delay_ms="600000")
    members.join("a", topology)
    members.join("b", topology)
    members.heartbeat("a")
    members.compare_group()


def test_shutdown_requests_and_endpoints_are_passed_on_the_same_way(
    both: NodePair, members: StreamsGroupMembers
) -> None:
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[new_topic(both, partitions=4)])])
    members.join("a", topology, user_endpoint=Endpoint(host="a", port=1))
    members.heartbeat("a", endpoint_information_epoch=1)
    members.join("b", topology, user_endpoint=Endpoint(host="b", port=2))
    for _ in range(4):
        members.confirm("a", endpoint_information_epoch=2)
        members.confirm("b", endpoint_information_epoch=2)
    members.compare_group()
    members.heartbeat("a", shutdown_application=True, endpoint_information_epoch=3)
    members.heartbeat("b")
    members.send_heartbeat("b", -1, shutdown_application=True)
    members.heartbeat("a")
    members.compare_group()


def test_offset_requests_get_the_same_answers(both: NodePair, members: StreamsGroupMembers) -> None:
    topic = new_topic(both, partitions=2)
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    members.join("a", topology)
    members.settle()
    first = members.epochs["a"]

    def commit(member: str, epoch: int, name: str = topic, version: int = 9) -> None:
        partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=5) for number in (0, 1)]
        request = OffsetCommitRequest(
            group_id=members.group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions)],
        )
        both.expect_same(request, version)

    def fetch(member: str | None, epoch: int) -> None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id=members.group, member_id=member, member_epoch=epoch, topics=topics)
        both.expect_same(OffsetFetchRequest(groups=[group]), 9)

    for epoch in (first, first - 1, first + 1, -1):
        commit("a", epoch)
        fetch("a", epoch)
    commit("a", first, version=8)
    commit("x", first)
    commit("", -1)
    fetch(None, -1)
    members.join("b", topology)
    members.settle()
    commit("a", first)
    commit("b", first)
    commit("a", first, new_topic(both, partitions=2))
    delete = OffsetDeleteRequest(
        group_id=members.group,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    both.expect_same(delete, 0)
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    members.send_heartbeat("a", -1)
    members.send_heartbeat("b", -1)
    commit("", -1)
    both.expect_same(delete, 0)
    members.compare_group()
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    fetch(None, -1)


def test_stored_records_are_equal(both: NodePair, members: StreamsGroupMembers) -> None:
    topology = word_count(new_topic(both, partitions=3), members.group)
    configure(both, members.group, streams_num_standby_replicas="1")
    tags = [KeyValue(key="zone", value="1"), KeyValue(key="cluster", value="x")]
    members.join("a", topology, rack_id="r", user_endpoint=Endpoint(host="a", port=1), client_tags=tags)
    members.wait_until_ready("a")
    members.confirm("a", endpoint_information_epoch=1)
    members.join("b", topology)
    members.settle()
    members.send_heartbeat("a", -1)
    del members.epochs["a"]
    members.settle()
    members.send_heartbeat("b", -1)
    both.expect_same(DeleteGroupsRequest(groups_names=[members.group]), 2)
    kafka, ottla = read_group_records(both, members.group)
    assert ottla == kafka
    assert len({kind for kind, *_ in ottla}) == 6


def test_groups_of_other_types_and_missing_groups_get_the_same_answers(
    both: NodePair, members: StreamsGroupMembers
) -> None:
    topic = new_topic(both)
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=members.group,
        member_id="c",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    classic = JoinGroupRequest(
        group_id=members.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    both.expect_same(
        StreamsGroupDescribeRequest(group_ids=["nowhere", "", members.group]), 0, messages=Messages.EXACTLY
    )
    members.join("a", topology)
    both.expect_same(consumer, 1, messages=Messages.EXACTLY)
    both.expect_same(classic, 9)
    both.expect_same(HeartbeatRequest(group_id=members.group, generation_id=1, member_id="a"), 4)
    members.send_heartbeat("a", -1)
    both.expect_same(consumer, 1, messages=Messages.EXACTLY)
    other = f"{members.group}-consumer"
    consumer.group_id = other
    both.ask(consumer, 1)
    StreamsGroupMembers(both, other).join("a", topology)
    StreamsGroupMembers(both, other).send_heartbeat("c", -1)
    both.expect_same(StreamsGroupDescribeRequest(group_ids=[other]), 0, messages=Messages.EXACTLY)


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_of_groups_are_equal(both: NodePair, members: StreamsGroupMembers, seed: int) -> None:
    source = random.Random(seed)
    topology = word_count(new_topic(both, partitions=source.randint(1, 6)), members.group)
    members.join("first", topology)
    members.wait_until_ready("first")
    member_numbers = count(1)
    for _ in range(40):
        choice = source.random()
        alive: list[Any] = [member for member, epoch in members.epochs.items() if epoch > 0]
        if choice < 0.25 and len(alive) < 6:
            members.join(f"m{next(member_numbers)}", topology, process_id=f"p{source.randrange(3)}")
        elif choice < 0.35 and len(alive) > 1:
            member = source.choice(alive)
            members.send_heartbeat(member, -1)
            del members.epochs[member], members.owned[member]
        elif choice < 0.42:
            configure(both, members.group, streams_num_standby_replicas=str(source.randrange(3)))
        elif alive:
            member = source.choice(alive)
            (members.confirm if source.random() < 0.8 else members.heartbeat)(member)
    members.settle()
    members.compare_group()
