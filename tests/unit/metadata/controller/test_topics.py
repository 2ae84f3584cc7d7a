"""CreateTopics, DeleteTopics and CreatePartitions."""

from collections import Counter
from random import Random

import pytest

from ottla.metadata.controller.create_partitions import create_partitions
from ottla.metadata.controller.create_topics import CreationContext, create_topics
from ottla.metadata.controller.delete_topics import delete_topics
from ottla.metadata.controller.replica_placer import ReplicaPlacer, usable_brokers
from ottla.metadata.controller.view import ControllerOptions, ControllerView, NewTopic
from ottla.metadata.image.values import DIRECTORY_UNASSIGNED
from ottla.protocol.errors import (
    ApiError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.rpc.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.metadata.controller.cluster import Cluster, directory, uuid


def context(cluster: Cluster, **changes: object) -> CreationContext:
    return CreationContext(random=cluster.random, new_id=cluster.new_id, **changes)  # type: ignore[arg-type]


def grow(cluster: Cluster, name: str, count: int, *assignments: list[int], validate_only: bool = False) -> int:
    manual = [CreatePartitionsAssignment(broker_ids=each) for each in assignments] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=manual)
    request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
    return cluster.apply(create_partitions(cluster.view, request, random=cluster.random)).results[0].error_code


def delete(cluster: Cluster, **request: object) -> list[tuple[str | None, int]]:
    wanted = DeleteTopicsRequest(**request)  # type: ignore[arg-type]
    reply = cluster.apply(delete_topics(cluster.view, wanted))
    return [(each.name, each.error_code) for each in reply.responses]


def test_a_topic_is_its_record_then_settings_then_partitions() -> None:
    cluster = Cluster(1, 2, 3)
    result = cluster.create("t", partitions=2, factor=3, configs={"retention.ms": "5"})
    kinds = [type(each) for each in cluster.written]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    assert (result.error_code, result.error_message, result.topic_id) == (0, None, cluster.topic_id())
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    assert dict(cluster.image.topic_config("t")) == {"retention.ms": "5"}
    for number in (0, 1):
        partition = cluster.partition("t", number)
        assert partition.leader == partition.replicas[0]
        assert sorted(partition.isr) == [1, 2, 3]
        assert partition.directories == tuple(directory(each) for each in partition.replicas)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_the_response_has_every_config_with_its_source() -> None:
    cluster = Cluster(1, settings={"log.segment.bytes": "1048576"})
    result = cluster.create("t", partitions=1, factor=1, configs={"retention.ms": "5"})
    assert result.configs is not None
    shown = {each.name: (each.value, each.config_source) for each in result.configs}
    assert shown["retention.ms"] == ("5", 1)
    assert shown["segment.bytes"] == ("1048576", 4)
    assert shown["cleanup.policy"] == ("delete", 5)
    assert [each.name for each in result.configs] == sorted(shown)


def test_defaults_come_from_the_controllers_file() -> None:
    cluster = Cluster(1, 2, settings={"num.partitions": "3", "default.replication.factor": "2"})
    result = cluster.create("t")
    assert (result.num_partitions, result.replication_factor) == (3, 2)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidTopic),
        (".", InvalidTopic),
        ("..", InvalidTopic),
        ("a b", InvalidTopic),
        ("ä", InvalidTopic),
        ("x" * 250, InvalidTopic),
        ("__cluster_metadata", InvalidRequest),
        ("taken", TopicAlreadyExists),
        ("some_name", InvalidTopic),
    ],
)
def test_invalid_or_existing_topic_names_are_rejected(name: str, error: type[ApiError]) -> None:
    cluster = Cluster(1)
    cluster.create("taken", [1])
    cluster.create("some.name", [1])
    assert cluster.create(name, [1]).error_code == error.code


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([[1, 1]], InvalidReplicaAssignment),
        ([[9]], InvalidReplicaAssignment),
        ([[1], [1, 2]], InvalidReplicaAssignment),
        ([[]], InvalidReplicaAssignment),
        ([[4]], InvalidReplicaAssignment),
    ],
)
def test_invalid_manual_assignments_are_rejected(assignments: list[list[int]], error: type[ApiError]) -> None:
    cluster = Cluster(1, 2)
    cluster.register(4)
    assert cluster.create("t", *assignments).error_code == error.code


def test_manual_assignments_exclude_counts_and_gaps() -> None:
    cluster = Cluster(1)
    assert cluster.create("t", [1], factor=1).error_code == InvalidRequest.code
    assert cluster.create("t", [1], partitions=1).error_code == InvalidRequest.code
    gap = [CreatableReplicaAssignment(partition_index=number, broker_ids=[1]) for number in (0, 2)]
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=gap)
    reply = create_topics(cluster.view, CreateTopicsRequest(topics=[topic]), context(cluster)).reply
    assert reply.topics[0].error_code == InvalidReplicaAssignment.code


def test_a_manually_assigned_fenced_broker_is_not_in_sync() -> None:
    cluster = Cluster(1)
    cluster.register(2)
    cluster.create("t", [2, 1])
    assert (cluster.partition().isr, cluster.partition().leader) == ((1,), 1)


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (0, 1, InvalidPartitions),
        (-2, 1, InvalidPartitions),
        (1, 0, InvalidReplicationFactor),
        (1, -2, InvalidReplicationFactor),
        (1, 3, InvalidReplicationFactor),
    ],
)
def test_invalid_partition_and_replica_counts_are_rejected(partitions: int, factor: int, error: type[ApiError]) -> None:
    assert Cluster(1, 2).create("t", partitions=partitions, factor=factor).error_code == error.code


def test_placement_needs_an_unfenced_broker() -> None:
    cluster = Cluster()
    cluster.register(1)
    result = cluster.create("t", partitions=1, factor=1)
    assert result.error_code == InvalidReplicationFactor.code
    assert result.error_message == "Unable to replicate the partition 1 time(s): All brokers are currently fenced."


@pytest.mark.parametrize("value", [{"retention.ms": "soon"}, {"no.such": "1"}, {"min.compaction.lag.ms": "-1"}])
def test_settings_must_be_valid(value: dict[str, str]) -> None:
    assert Cluster(1).create("t", [1], configs=value).error_code == InvalidConfig.code


def test_a_setting_without_a_value_is_refused() -> None:
    cluster = Cluster(1)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    topic.configs = [CreatableTopicConfig(name="retention.ms", value=None)]
    reply = create_topics(cluster.view, CreateTopicsRequest(topics=[topic]), context(cluster)).reply
    assert reply.topics[0].error_code == InvalidConfig.code


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster(1)
    assert cluster.create("t", [1], validate_only=True).error_code == 0
    assert not cluster.image.topics


def test_an_invalid_topic_fails_alone_and_a_repeated_one_is_not_created() -> None:
    cluster = Cluster(1)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "a", "?")]
    reply = cluster.apply(create_topics(cluster.view, CreateTopicsRequest(topics=topics), context(cluster)))
    codes = {each.name: each.error_code for each in reply.topics}
    assert codes == {"a": InvalidRequest.code, "b": 0, "?": InvalidTopic.code}
    assert set(cluster.image.topics) == {"b"}


def test_a_request_creates_at_most_one_batch_of_partitions() -> None:
    cluster = Cluster(1)
    with pytest.raises(PolicyViolation):
        cluster.create("t", partitions=10_001, factor=1)


def test_policies_and_quotas_may_refuse_a_topic() -> None:
    seen: list[NewTopic] = []

    def policy(topic: NewTopic) -> None:
        seen.append(topic)
        raise PolicyViolation("no")

    def charge(partitions: int) -> None:
        raise ThrottlingQuotaExceeded(f"{partitions} too many")

    cluster = Cluster(1)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
    charged = create_topics(cluster.view, request, context(cluster, charge=charge))
    assert charged.reply.topics[0].error_code == ThrottlingQuotaExceeded.code
    view = ControllerView(cluster.image, ControllerOptions(node_id=1, cluster_id="c", create_topic_policy=policy))
    assert create_topics(view, request, context(cluster)).reply.topics[0].error_code == PolicyViolation.code
    assert seen == [NewTopic("t", 2, 1, None, {})]


def test_a_topic_is_deleted_by_name_or_id_with_its_configs() -> None:
    cluster = Cluster(1)
    cluster.create("a", [1], configs={"retention.ms": "5"})
    cluster.create("b", [1])
    states = [DeleteTopicState(name="a"), DeleteTopicState(topic_id=cluster.topic_id("b"))]
    assert delete(cluster, topics=states) == [("a", 0), ("b", 0)]
    assert not cluster.image.topics
    assert not cluster.image.configs


def test_ambiguous_deletions_are_rejected() -> None:
    cluster = Cluster(1)
    for name in ("a", "b", "c"):
        cluster.create(name, [1])
    ids = {name: cluster.topic_id(name) for name in "abc"}
    assert delete(cluster, topic_names=["a", "a", "none"]) == [
        ("a", InvalidRequest.code),
        ("none", UnknownTopicOrPartition.code),
    ]
    states = [
        DeleteTopicState(topic_id=uuid(99)),
        DeleteTopicState(),
        DeleteTopicState(name="a", topic_id=ids["a"]),
        DeleteTopicState(name="b"),
        DeleteTopicState(topic_id=ids["b"]),
    ]
    assert delete(cluster, topics=states) == [
        (None, UnknownTopicId.code),
        (None, InvalidRequest.code),
        ("a", InvalidRequest.code),
        ("b", InvalidRequest.code),
        ("b", 0),
    ]
    assert set(cluster.image.topics) == {"a", "c"}


def test_topic_deletion_can_be_disabled() -> None:
    with pytest.raises(TopicDeletionDisabled):
        delete(Cluster(1, settings={"delete.topic.enable": "false"}), topic_names=["a"])


def test_a_topic_gets_more_partitions() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2])
    assert grow(cluster, "t", 3) == 0
    assert len(cluster.image.topics["t"].partitions) == 3
    assert len(cluster.partition("t", 2).replicas) == 2
    assert grow(cluster, "t", 4, [2, 1]) == 0
    assert cluster.partition("t", 3).replicas == (2, 1)
    assert grow(cluster, "t", 5, validate_only=True) == 0
    assert len(cluster.image.topics["t"].partitions) == 4


def test_a_partition_count_must_rise_and_match_the_assignments() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", [1])
    assert grow(cluster, "none", 2) == UnknownTopicOrPartition.code
    assert grow(cluster, "t", 1) == InvalidPartitions.code
    assert grow(cluster, "t", 0) == InvalidPartitions.code
    assert grow(cluster, "t", 3, [1]) == InvalidReplicaAssignment.code
    assert grow(cluster, "t", 2, [1, 2]) == InvalidReplicaAssignment.code
    cluster.stop(1)
    cluster.stop(2)
    assert grow(cluster, "t", 2) == InvalidReplicationFactor.code
    assert grow(cluster, "t", 2, [2]) == InvalidReplicaAssignment.code


def test_a_broker_with_several_directories_assigns_them_itself() -> None:
    cluster = Cluster()
    cluster.start(1, log_dirs=[directory(1, 0), directory(1, 1)])
    cluster.create("t", [1])
    assert cluster.partition().directories == (DIRECTORY_UNASSIGNED,)


def test_brokers_that_shut_down_or_are_cordoned_get_no_replicas() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", [3, 1])
    cluster.beat(3, want_shut_down=True)
    cluster.beat(2, cordoned_log_dirs=[directory(2)])
    assert [broker.id for broker in usable_brokers(cluster.view)] == [1]
    assert cluster.create("u", partitions=1, factor=2).error_code == InvalidReplicationFactor.code


@pytest.mark.parametrize("seed", range(20))
def test_placement_is_even_and_each_rack_gets_one_before_any_gets_two(seed: int) -> None:
    cluster = Cluster()
    for broker in range(6):
        cluster.start(broker, rack="abc"[broker % 3])
    assignments = ReplicaPlacer(usable_brokers(cluster.view)).place(60, 3, Random(seed))
    for replicas in assignments:
        assert {broker % 3 for broker in replicas} == {0, 1, 2}
    leaders = Counter(replicas[0] for replicas in assignments)
    held = Counter(broker for replicas in assignments for broker in replicas)
    assert max(leaders.values()) - min(leaders.values()) <= 6
    assert set(held.values()) == {30}


def test_fenced_brokers_get_replicas_only_where_others_do_not_suffice() -> None:
    cluster = Cluster(1, 2)
    cluster.register(3)
    for replicas in ReplicaPlacer(usable_brokers(cluster.view)).place(20, 2, Random(1)):
        assert 3 not in replicas
    for replicas in ReplicaPlacer(usable_brokers(cluster.view)).place(20, 3, Random(1)):
        assert replicas[2] == 3
