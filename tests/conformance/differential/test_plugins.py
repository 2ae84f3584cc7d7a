"""Policies and assignors written in Java get the same questions from both nodes, with the same effect.

The policies put their arguments into their messages, which are compared literally.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path

from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    PolicyViolation,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedAssignor,
)
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.consumer_groups import ConsumerGroupMembers, configure, new_topic
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, NodePair, running_node_pair
from tests.conformance.differential.normalization import Messages
from tests.support.ottla_node import OttlaNode

SETTINGS = {
    "create.topic.policy.class.name": "TopicRules",
    "alter.config.policy.class.name": "ConfigRules",
    "group.consumer.assignors": "FirstTakesAll,range,org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "rules.greeting": "the rules say",
    "auto.create.topics.enable": "true",
}
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    """Run two nodes with the same plug-ins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSPATH", class_path())
        with running_node_pair(tmp_path_factory.mktemp("plugins"), SETTINGS) as nodes:
            yield nodes


@pytest.fixture
def both(two_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    """Return the two nodes; errors in Ottla's log are allowed, because plug-ins break on purpose."""
    both, _ = two_nodes
    yield both
    both.reconnect()


def topic(name: str, partitions: int = 2, factor: int = 1, **configs: str) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def assigned_topic(name: str, *replicas: list[int], **configs: str) -> CreatableTopic:
    """Return a topic with a manual assignment."""
    entry = topic(name, -1, -1, **configs)
    entry.assignments = [
        CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)
    ]
    return entry


def error_codes(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", range(2, 8))
def test_a_policy_gets_all_fields_of_a_topic_and_can_refuse_it(
    both: NodePair, version: int, validate_only: bool
) -> None:
    request = CreateTopicsRequest(
        topics=[
            topic("refused"),
            topic("refused-by-default", -1, -1) if version >= 4 else topic("refused-by-default", 3),
            topic("refused-with-settings", retention_ms="1000", cleanup_policy="compact"),
            assigned_topic("refused-and-placed", [1], [1], segment_ms="5000"),
            topic(f"allowed-{version}-{validate_only}", segment_ms="5000"),
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    answers = both.expect_same(request, version, messages=Messages.EXACTLY, ignoring=["*.topic_id"])
    errors = error_codes(answers.ottla)
    assert errors.pop(f"allowed-{version}-{validate_only}") == 0
    assert set(errors.values()) == {PolicyViolation.code}


def test_api_exceptions_of_a_policy_reach_the_client_and_others_do_not(both: NodePair) -> None:
    request = CreateTopicsRequest(topics=[topic("numbered"), topic("fine", 1)], timeout_ms=10_000, validate_only=True)
    answers = both.expect_same(request, 7, messages=Messages.EXACTLY, ignoring=["*.topic_id"])
    assert error_codes(answers.ottla) == {"numbered": InvalidPartitions.code, "fine": 0}
    broken = CreateTopicsRequest(topics=[topic("broken"), topic("fine", 1)], timeout_ms=10_000, validate_only=True)
    answers = both.expect_same(broken, 7, ignoring=["*.topic_id"])
    assert error_codes(answers.ottla) == {"broken": UnknownServerError.code, "fine": 0}


@pytest.mark.parametrize(
    "topics",
    [
        [topic("refused/name")],
        [topic("refused", 0)],
        [topic("refused", 2, 5)],
        [topic("refused", 2, 0)],
        [topic("refused", no_such_setting="1")],
        [topic("refused", retention_ms="x")],
        [topic("refused", retention_ms="777")],
        [topic("allowed", retention_ms="777")],
        [topic("allowed", retention_ms="778")],
        [assigned_topic("allowed", [1], retention_ms="777")],
        [topic("refused", 0, retention_ms="777")],
        [topic("refused.name_x"), topic("refused_name.x")],
        [topic("refused"), topic("refused")],
        [topic("exists")],
        [assigned_topic("refused", [2])],
        [assigned_topic("refused", [1], [1, 1])],
        [topic("refused", 10_001)],
        [topic("kept", retention_ms="5")],
    ],
    ids=str,
)
def test_policies_run_between_the_checks_as_in_kafka(both: NodePair, topics: list[CreatableTopic]) -> None:
    both.ask(CreateTopicsRequest(topics=[topic("exists")], timeout_ms=10_000), 7)
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True)
    both.expect_same(request, 7, messages=Messages.EXACTLY, ignoring=["*.topic_id"])


def config_changes(kind: int, name: str, *changes: tuple[int, str, str | None]) -> incremental.AlterConfigsResource:
    configs = [
        incremental.AlterableConfig(config_operation=operation, name=setting, value=value)
        for operation, setting, value in changes
    ]
    return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def replacement(kind: int, name: str, **configs: str) -> legacy.AlterConfigsResource:
    settings = [legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", range(2))
def test_a_policy_gets_the_changed_settings(both: NodePair, version: int, validate_only: bool) -> None:
    name = both.new_topic()
    first = incremental.IncrementalAlterConfigsRequest(
        resources=[config_changes(TOPIC, name, (SET, "segment.ms", "5000"), (SET, "retention.ms", "9000"))]
    )
    both.expect_same(first, version, messages=Messages.EXACTLY)
    for resource in (
        config_changes(
            TOPIC, name, (SET, "retention.ms", "777"), (SET, "segment.ms", "5000"), (DELETE, "flush.ms", None)
        ),
        config_changes(TOPIC, name, (SET, "flush.ms", "777"), (DELETE, "segment.ms", None)),
        config_changes(TOPIC, name, (SET, "retention.ms", "778")),
        config_changes(TOPIC, name, (SET, "retention.ms", "777"), (SET, "no.such.setting", "1")),
        config_changes(TOPIC, "nowhere", (SET, "retention.ms", "777")),
        config_changes(TOPIC, name),
        config_changes(BROKER, "", (SET, "log.retention.ms", "777")),
        config_changes(BROKER, "1", (SET, "log.retention.ms", "777"), (SET, "log.segment.delete.delay.ms", "3")),
        config_changes(BROKER, "", (SET, "node.id", "777")),
        config_changes(ResourceType.GROUP, "kept-group", (SET, "consumer.session.timeout.ms", "50000")),
        config_changes(ResourceType.CLIENT_METRICS, "kept-metrics", (SET, "interval.ms", "50000")),
    ):
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        both.expect_same(request, version, messages=Messages.EXACTLY)
    broken = config_changes(TOPIC, name, (SET, "retention.ms", "779"))
    both.expect_same(
        incremental.IncrementalAlterConfigsRequest(resources=[broken], validate_only=validate_only), version
    )


def test_a_policy_runs_even_if_nothing_changes(both: NodePair) -> None:
    both.create_topic("kept-as-it-is")
    for changes in ([], [(DELETE, "flush.ms", None)], [(SET, "flush.ms", "5")]):
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[config_changes(TOPIC, "kept-as-it-is", *changes)]
        )
        answers = both.expect_same(request, 1, messages=Messages.EXACTLY)
        assert answers.ottla.responses[0].error_code == PolicyViolation.code
    both.expect_same(
        legacy.AlterConfigsRequest(resources=[replacement(TOPIC, "kept-as-it-is")]), 2, messages=Messages.EXACTLY
    )


@pytest.mark.parametrize("version", range(3))
def test_a_policy_does_not_get_settings_removed_by_omission(both: NodePair, version: int) -> None:
    name = both.new_topic()
    for resource, code in (
        (replacement(TOPIC, name, segment_ms="5000", flush_ms="9000"), 0),
        (replacement(TOPIC, name, retention_ms="777", flush_ms="9000"), PolicyViolation.code),
        (replacement(TOPIC, name, retention_ms="778"), InvalidConfig.code),
        (replacement(TOPIC, name, retention_ms="1000"), 0),
        (replacement(BROKER, "1", log_retention_ms="777"), PolicyViolation.code),
    ):
        for validate_only in (True, False):
            request = legacy.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            answers = both.expect_same(request, version, messages=Messages.EXACTLY)
            assert answers.ottla.responses[0].error_code == code


def test_a_policy_judges_automatically_created_topics(both: NodePair) -> None:
    names = [MetadataRequestTopic(name=name) for name in ("refused-auto", "allowed-auto")]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
    both.expect_same(request, 12, ignoring=["*.topic_id"])
    again = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    expected = {"allowed-auto": 0, "refused-auto": UnknownTopicOrPartition.code}
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while [{topic.name: topic.error_code for topic in answer.topics} for answer in both.ask(again, 12)] != [
        expected
    ] * 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_members_get_a_custom_assignor_by_name_or_by_default(both: NodePair) -> None:
    wait_for_group_coordinators(both)
    members, name = ConsumerGroupMembers(both, "assigned"), new_topic(both, partitions=4)
    configure(both, "assigned", consumer_assignment_interval_ms="0")
    members.join("b", name)
    members.settle()
    assert members.owned["b"] == {name: [0, 1, 2, 3]}
    members.join("a", name)
    members.compare_group()
    members.settle()
    assert (members.owned["a"], members.owned["b"]) == ({name: [0, 1, 2, 3]}, {})
    members.join("c", name, server_assignor="range")
    members.compare_group()
    answers = members.send_heartbeat(
        "d", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[name], owned={}, server_assignor="x"
    )
    assert answers.ottla.error_code == UnsupportedAssignor.code


def test_an_exception_of_an_assignor_fails_the_heartbeat(both: NodePair) -> None:
    wait_for_group_coordinators(both)
    name = new_topic(both, partitions=2)
    for instance in ("objects", "breaks"):
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"{instance}-{name}",
            member_id="m",
            instance_id=instance,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        )
        answers = both.expect_same(request, 1)
        assert answers.ottla.error_code == UnknownServerError.code
