"""Streams groups (KIP-1071) beside Kafka: members bring their own ids, so that whole lives of groups are equal."""

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
from tests.conformance.differential.consumer_groups import configure, new_topic, told_in_order
from tests.conformance.differential.groups import coordinators_ready
from tests.conformance.differential.harness import Both
from tests.conformance.differential.normal import Messages
from tests.conformance.differential.streams_groups import NOTHING, StreamsWalker, word_count, written

numbers = count(1)
TOPIC_RESOURCE = 2


@pytest.fixture(autouse=True)
def ready(both: Both) -> None:
    coordinators_ready(both)


@pytest.fixture
def walker(both: Both) -> StreamsWalker:
    group = f"streams-{next(numbers)}"
    configure(both, group, streams_assignment_interval_ms="0", streams_initial_rebalance_delay_ms="0")
    return StreamsWalker(both, group)


def test_members_come_share_and_go(both: Both, walker: StreamsWalker) -> None:
    topology = word_count(new_topic(both, partitions=4), walker.group)
    walker.join("a", topology)
    walker.look()
    walker.until_ready("a")
    walker.look()
    walker.join("b", topology, rack_id="r1", client_tags=[KeyValue(key="zone", value="1")])
    walker.look()
    walker.beat("a")
    walker.beat("b")
    walker.look()
    walker.settle()
    walker.look()
    walker.join("c", topology, process_id="a")
    walker.settle()
    walker.look()
    assert sum(len(each) for owned in walker.owned.values() for each in owned["active"].values()) == 8
    walker.say("b", -1)
    walker.settle(3)
    del walker.epochs["b"]
    walker.settle()
    walker.look()
    walker.say("a", -1)
    walker.say("c", -1)
    walker.look()
    walker.join("d", topology)
    walker.look()


def test_members_are_told_in_the_order_of_kafkas_table(both: Both, walker: StreamsWalker) -> None:
    topology = word_count(new_topic(both), walker.group)
    for number in range(6):
        walker.join(f"member-{number}", topology)
        walker.until_ready(f"member-{number}")
    assert len(told_in_order(both, StreamsGroupDescribeRequest(group_ids=[walker.group]), 0)) == 6


def test_internal_topics_are_made_as_the_topology_wants_them(both: Both, walker: StreamsWalker) -> None:
    walker.join("a", word_count(new_topic(both, partitions=3), walker.group))
    walker.until_ready("a")
    names = [f"{walker.group}-words-repartition", f"{walker.group}-counts-changelog"]
    topics = [MetadataRequestTopic(name=name) for name in names]
    answers = both.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    for side, answer in zip(both.sides, answers, strict=True):
        assert [len(topic.partitions) for topic in answer.topics] == [3, 3], side
    for name in names:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["cleanup.policy"]
        )
        both.same(DescribeConfigsRequest(resources=[resource]), 4)


def test_standbys(both: Both, walker: StreamsWalker) -> None:
    configure(both, walker.group, streams_num_standby_replicas="1")
    topology = word_count(new_topic(both, partitions=4), walker.group)
    walker.join("a", topology)
    walker.until_ready("a")
    for member in ("b", "c"):
        walker.join(member, topology)
        walker.settle()
        walker.look()
    standbys = [number for owned in walker.owned.values() for number in owned["standby"].get("1", ())]
    assert sorted(standbys) == [0, 1, 2, 3]


def test_what_is_malformed_is_refused_with_the_same_words(both: Both, walker: StreamsWalker) -> None:
    topic = new_topic(both)
    topology = word_count(topic, walker.group)
    walker.say("", 0)
    walker.say("a", -3)
    walker.say("a", -2)
    walker.say("a", 0)
    walker.say("a", 0, rebalance_timeout_ms=1000)
    walker.say("a", 0, rebalance_timeout_ms=1000, owned=NOTHING)
    walker.join("a", topology, group_id="")
    walker.join("a", topology, rack_id=" ")
    walker.join("a", topology, instance_id="i")
    walker.join("a", topology, instance_id="")
    walker.join("a", topology, owned={**NOTHING, "active": {"0": [0]}})
    walker.join("a", topology, owned={**NOTHING, "warmup": {"0": [0]}})
    walker.join("a", topology, task_offsets=[TaskOffset(subtopology_id="0")])
    walker.join("a", topology, task_end_offsets=[])
    walker.say("a", 1)
    walker.say("a", -1)
    walker.say("a", 1, topology=topology)
    walker.say("a", 1, owned={"active": {}})
    walker.join("a", topology)
    walker.until_ready("a")
    walker.say("b", 1)
    walker.say("b", -1)
    walker.say("a", 99)
    walker.say("a", 1)
    walker.say("a", walker.epochs["a"], owned={**NOTHING, "active": {"7": [0]}})
    walker.say("a", walker.epochs["a"], owned={**NOTHING, "active": {"0": [5]}})
    walker.look()


def test_topologies_that_cannot_be(both: Both, walker: StreamsWalker) -> None:
    topic, wide = new_topic(both), new_topic(both, partitions=3)

    def refused(*subtopologies: Subtopology, epoch: int = 0) -> None:
        group = f"{walker.group}-{next(numbers)}"
        StreamsWalker(both, group).join("a", Topology(epoch=epoch, subtopologies=list(subtopologies)))

    one = Subtopology(subtopology_id="0", source_topics=[topic])
    refused(Subtopology(subtopology_id="0", source_topics=["__consumer_offsets", "__transaction_state"]))
    refused(Subtopology(subtopology_id="0", source_topics=["not valid", "..", topic]))
    refused(Subtopology(subtopology_id="0", source_topics=[topic], source_topic_regex=["a.*"]))
    refused(
        Subtopology(
            subtopology_id="0", source_topics=[topic], state_changelog_topics=[TopicInfo(name="c", partitions=2)]
        )
    )
    refused(Subtopology(subtopology_id="0"))
    refused(one, one)
    refused(one, epoch=-1)
    refused(Subtopology(subtopology_id="0", source_topics=["missing-1", "missing-3", "missing-2", "missing-0"]))
    refused(
        Subtopology(
            subtopology_id="0", source_topics=[topic], repartition_source_topics=[TopicInfo(name="never-written")]
        )
    )
    refused(
        Subtopology(
            subtopology_id="0",
            repartition_sink_topics=["loop"],
            repartition_source_topics=[TopicInfo(name="loop")],
        )
    )
    together = CopartitionGroup(source_topics=[0, 1])
    refused(Subtopology(subtopology_id="0", source_topics=[topic, wide], copartition_groups=[together]))
    refused(
        Subtopology(subtopology_id="0", source_topics=[topic], copartition_groups=[CopartitionGroup(source_topics=[9])])
    )
    refused(Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[TopicInfo(name=wide)]))


def test_topics_that_cannot_be_made_are_told(both: Both, walker: StreamsWalker) -> None:
    topic = new_topic(both)
    bad = TopicInfo(name=f"{walker.group}-changelog", replication_factor=3)
    topology = Topology(
        subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[bad])]
    )
    # Kafka's first answer tells of the failure already if it is quick to fail.
    request = walker.request("a", 0, **walker.new_member("a", topology))
    (epoch,) = {answer.member_epoch for answer in both.ask(request, 0)}

    def told() -> bool:
        answers = both.ask(walker.request("a", epoch), 0)
        details = [answer.status[0].status_detail for answer in answers]
        assert all("Internal topics are missing" in detail for detail in details)
        return all("Creation failed: " in detail for detail in details)

    assert any(told() for _ in range(100))


def test_older_and_other_topologies(both: Both, walker: StreamsWalker) -> None:
    topic = new_topic(both)
    walker.join("a", word_count(topic, walker.group, epoch=2))
    walker.until_ready("a")
    walker.join("b", word_count(topic, walker.group, epoch=1))
    walker.beat("b")
    walker.join("c", word_count(topic, walker.group, epoch=3))
    walker.join("d", word_count(topic, f"{walker.group}-other", epoch=2))
    walker.look()


def test_delays(both: Both) -> None:
    walker = StreamsWalker(both, f"streams-{next(numbers)}")
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[new_topic(both, partitions=2)])])
    configure(both, walker.group, streams_initial_rebalance_delay_ms="600000")
    walker.join("a", topology)
    walker.join("b", topology)
    walker.beat("a")
    walker.look()


def test_a_wish_to_stop_and_endpoints(both: Both, walker: StreamsWalker) -> None:
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[new_topic(both, partitions=4)])])
    walker.join("a", topology, user_endpoint=Endpoint(host="a", port=1))
    walker.beat("a", endpoint_information_epoch=1)
    walker.join("b", topology, user_endpoint=Endpoint(host="b", port=2))
    for _ in range(4):
        walker.confirm("a", endpoint_information_epoch=2)
        walker.confirm("b", endpoint_information_epoch=2)
    walker.look()
    walker.beat("a", shutdown_application=True, endpoint_information_epoch=3)
    walker.beat("b")
    walker.say("b", -1, shutdown_application=True)
    walker.beat("a")
    walker.look()


def test_offsets(both: Both, walker: StreamsWalker) -> None:
    topic = new_topic(both, partitions=2)
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    walker.join("a", topology)
    walker.settle()
    first = walker.epochs["a"]

    def commit(member: str, epoch: int, name: str = topic, version: int = 9) -> None:
        partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=5) for number in (0, 1)]
        request = OffsetCommitRequest(
            group_id=walker.group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions)],
        )
        both.same(request, version)

    def fetch(member: str | None, epoch: int) -> None:
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id=walker.group, member_id=member, member_epoch=epoch, topics=wanted)
        both.same(OffsetFetchRequest(groups=[group]), 9)

    for epoch in (first, first - 1, first + 1, -1):
        commit("a", epoch)
        fetch("a", epoch)
    commit("a", first, version=8)
    commit("x", first)
    commit("", -1)
    fetch(None, -1)
    walker.join("b", topology)
    walker.settle()
    commit("a", first)
    commit("b", first)
    commit("a", first, new_topic(both, partitions=2))
    delete = OffsetDeleteRequest(
        group_id=walker.group,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    both.same(delete, 0)
    both.same(DeleteGroupsRequest(groups_names=[walker.group]), 2)
    walker.say("a", -1)
    walker.say("b", -1)
    commit("", -1)
    both.same(delete, 0)
    walker.look()
    both.same(DeleteGroupsRequest(groups_names=[walker.group]), 2)
    fetch(None, -1)


def test_what_is_written(both: Both, walker: StreamsWalker) -> None:
    topology = word_count(new_topic(both, partitions=3), walker.group)
    configure(both, walker.group, streams_num_standby_replicas="1")
    tags = [KeyValue(key="zone", value="1"), KeyValue(key="cluster", value="x")]
    walker.join("a", topology, rack_id="r", user_endpoint=Endpoint(host="a", port=1), client_tags=tags)
    walker.until_ready("a")
    walker.confirm("a", endpoint_information_epoch=1)
    walker.join("b", topology)
    walker.settle()
    walker.say("a", -1)
    del walker.epochs["a"]
    walker.settle()
    walker.say("b", -1)
    both.same(DeleteGroupsRequest(groups_names=[walker.group]), 2)
    kafka, ottla = written(both, walker.group)
    assert ottla == kafka
    assert len({kind for kind, *_ in ottla}) == 6


def test_other_protocols_and_missing_groups(both: Both, walker: StreamsWalker) -> None:
    topic = new_topic(both)
    topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=walker.group,
        member_id="c",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    classic = JoinGroupRequest(
        group_id=walker.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    both.same(StreamsGroupDescribeRequest(group_ids=["nowhere", "", walker.group]), 0, messages=Messages.EXACTLY)
    walker.join("a", topology)
    both.same(consumer, 1, messages=Messages.EXACTLY)
    both.same(classic, 9)
    both.same(HeartbeatRequest(group_id=walker.group, generation_id=1, member_id="a"), 4)
    walker.say("a", -1)
    both.same(consumer, 1, messages=Messages.EXACTLY)
    other = f"{walker.group}-consumer"
    consumer.group_id = other
    both.ask(consumer, 1)
    StreamsWalker(both, other).join("a", topology)
    StreamsWalker(both, other).say("c", -1)
    both.same(StreamsGroupDescribeRequest(group_ids=[other]), 0, messages=Messages.EXACTLY)


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_are_the_same(both: Both, walker: StreamsWalker, seed: int) -> None:
    source = random.Random(seed)
    topology = word_count(new_topic(both, partitions=source.randint(1, 6)), walker.group)
    walker.join("first", topology)
    walker.until_ready("first")
    made = count(1)
    for _ in range(40):
        choice = source.random()
        alive: list[Any] = [member for member, epoch in walker.epochs.items() if epoch > 0]
        if choice < 0.25 and len(alive) < 6:
            walker.join(f"m{next(made)}", topology, process_id=f"p{source.randrange(3)}")
        elif choice < 0.35 and len(alive) > 1:
            member = source.choice(alive)
            walker.say(member, -1)
            del walker.epochs[member], walker.owned[member]
        elif choice < 0.42:
            configure(both, walker.group, streams_num_standby_replicas=str(source.randrange(3)))
        elif alive:
            member = source.choice(alive)
            (walker.confirm if source.random() < 0.8 else walker.beat)(member)
    walker.settle()
    walker.look()
