"""Admin APIs of a broker and its controller answer as Kafka's: settings, topics, partitions, quotas, credentials."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ottla.protocol.errors import InvalidConfig
from ottla.protocol.messages.rpc import alter_client_quotas as alter_quotas
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import alter_user_scram_credentials as scram
from ottla.protocol.messages.rpc import create_acls, delete_acls
from ottla.protocol.messages.rpc import create_partitions as partitions
from ottla.protocol.messages.rpc import create_topics as topics
from ottla.protocol.messages.rpc import describe_client_quotas as quotas
from ottla.protocol.messages.rpc import describe_configs as described
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.rpc.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.messages.rpc.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.rpc.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.rpc.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.rpc.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.differential.harness import NodePair, Side
from tests.conformance.differential.normalization import Messages

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
GROUP_TYPES = ("consumer", "share", "streams")
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE_SPECIFIC = ("listeners", "log.dirs", "controller.quorum.voters")
Alteration = tuple[str, int, str | None]


def describe(
    *resources: tuple[int, str], keys: list[str] | None = None, synonyms: bool = True
) -> described.DescribeConfigsRequest:
    return described.DescribeConfigsRequest(
        resources=[
            described.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_synonyms=synonyms,
    )


def alter(*resources: tuple[int, str, Sequence[Alteration]], dry: bool = False) -> Any:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=setting, config_operation=operation, value=value)
                    for setting, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
        validate_only=dry,
    )


def replace(*resources: tuple[int, str, dict[str, str | None]]) -> legacy.AlterConfigsRequest:
    return legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[legacy.AlterableConfig(name=setting, value=value) for setting, value in configs.items()],
            )
            for kind, name, configs in resources
        ]
    )


def expect_same_settings(both: NodePair, request: described.DescribeConfigsRequest, version: int = 4) -> None:
    """Fail unless both nodes soon describe the same settings; Kafka's broker learns of changes after the client."""
    deadline = time.monotonic() + 5
    while True:
        answers = both.ask(request, version)
        kafka, ottla = dict(_entries(answers.kafka)), dict(_entries(answers.ottla))
        if kafka == ottla or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert {*kafka} == {*ottla}
    assert not {key: (kafka[key], ottla[key]) for key in kafka if kafka[key] != ottla[key]}


def _entries(answer: Any) -> Iterator[tuple[tuple[int, str, str], tuple[Any, ...]]]:
    for result in answer.results:
        assert not result.error_code, result
        for entry in result.configs:
            synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
            value: tuple[Any, ...] = (entry.value, synonyms)
            if entry.name in NODE_SPECIFIC:
                value = ()
            flags = (entry.read_only, entry.config_source, entry.is_sensitive, entry.config_type)
            yield (result.resource_type, result.resource_name, entry.name), (*value, *flags)


# -- settings --


@pytest.mark.parametrize("version", range(1, 5))
def test_all_resources_are_described_the_same_way(both: NodePair, version: int) -> None:
    topic = both.new_topic(configs={"retention.ms": "1234567", "cleanup.policy": "compact,delete"})
    expect_same_settings(
        both, describe((TOPIC, topic), (BROKER, "1"), (BROKER, ""), (GROUP, "g"), (METRICS, "m")), version
    )
    expect_same_settings(both, describe((TOPIC, topic), (GROUP, "g"), synonyms=False), version)


@pytest.mark.parametrize("version", [1, 4])
def test_selected_settings_are_described_the_same_way(both: NodePair, version: int) -> None:
    topic = both.new_topic()
    expect_same_settings(
        both, describe((TOPIC, topic), keys=["retention.ms", "segment.bytes", "nobody.knows.it"]), version
    )
    expect_same_settings(both, describe((BROKER, "1"), keys=["num.io.threads", "ssl.key.password", "node.id"]), version)


@pytest.mark.parametrize(
    "resource",
    [
        (TOPIC, "missing"),
        (TOPIC, "a/b"),
        (TOPIC, ""),
        (BROKER, "2"),
        (BROKER, "x"),
        (LOGGER, ""),
        (LOGGER, "2"),
        (LOGGER, "x"),
        (METRICS, ""),
        (GROUP, ""),
        (5, "x"),
        (0, ""),
    ],
)
def test_describing_invalid_resources_fails_the_same_way(both: NodePair, resource: tuple[int, str]) -> None:
    for version in (1, 4):
        both.expect_same(describe(resource, (BROKER, "1"), keys=["node.id"]), version)


TOPIC_ALTERATIONS: list[list[Alteration]] = [
    [("retention.ms", SET, "777"), ("cleanup.policy", APPEND, "compact"), ("segment.bytes", DELETE, None)],
    [("cleanup.policy", SUBTRACT, "delete")],
    [("cleanup.policy", SET, "")],
    [("cleanup.policy", SET, "foo")],
    [("nope", SET, "1")],
    [("nope", DELETE, None)],
    [("nope", APPEND, "1")],
    [("retention.ms", APPEND, "1")],
    [("retention.ms", SUBTRACT, "1")],
    [("retention.ms", SET, None)],
    [("retention.ms", SET, "x")],
    [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    [("segment.bytes", SET, "1")],
    [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")],
    [("remote.storage.enable", SET, "true")],
    [("compression.type", SET, "zzz")],
    [("min.insync.replicas", SET, "0")],
    [("preallocate", SET, "maybe")],
    [],
]


@pytest.mark.parametrize("alteration", TOPIC_ALTERATIONS, ids=str)
def test_topic_settings_are_altered_the_same_way(both: NodePair, alteration: list[Alteration]) -> None:
    topic = both.new_topic(configs={"retention.ms": "5"})
    for version in (0, 1):
        both.expect_same(alter((TOPIC, topic, alteration), dry=True), version)
        both.expect_same(alter((TOPIC, topic, alteration)), version)
    expect_same_settings(both, describe((TOPIC, topic)))


BROKER_ALTERATIONS: list[tuple[str, list[Alteration]]] = [
    ("1", [("num.io.threads", SET, "400")]),
    ("1", [("num.io.threads", SET, "0")]),
    ("1", [("num.io.threads", SET, "x")]),
    ("2", [("num.io.threads", SET, "4")]),
    ("x", [("num.io.threads", SET, "4")]),
    ("1", [("broker.id", SET, "4")]),
    ("", [("log.dirs", SET, "4")]),
    ("", [("listeners", SET, "PLAINTEXT://:1")]),
    ("1", [("listeners", SET, "PLAINTEXT://:1")]),
    ("1", [("advertised.listeners", SET, "PLAINTEXT://x:1")]),
    ("1", [("ssl.keystore.location", SET, "/x")]),
    ("1", [("num.io.threads", APPEND, "4")]),
    ("1", [("num.io.threads", 7, "4")]),
    ("1", [("nope", APPEND, "4")]),
    ("", [("log.cleaner.threads", SET, "9")]),
    ("", [("max.connections", SET, "-1")]),
    ("", [("max.connections.per.ip.overrides", SET, "bad")]),
    ("", [("max.connections.per.ip", SET, "0")]),
    ("1", [("min.insync.replicas", SET, "2")]),
    ("", [("min.insync.replicas", DELETE, None)]),
    ("", [("background.threads", SET, "30")]),
    ("", [("log.segment.bytes", SET, "5")]),
    ("", [("log.local.retention.ms", SET, "-1"), ("log.retention.ms", SET, "100000")]),
    ("", [("log.local.retention.bytes", SET, "5"), ("log.retention.bytes", SET, "4")]),
    ("", [("log.message.timestamp.type", SET, "Foo")]),
    ("1", [("max.connection.creation.rate", SET, "0")]),
    ("", [("metric.reporters", SET, "no.such.Class")]),
    ("1", [("cordoned.log.dirs", SET, "/nope")]),
    ("1", [("num.network.threads", SET, "9")]),
    ("1", [("log.roll.ms", SET, "0")]),
    ("1", [("compression.gzip.level", SET, "15")]),
    ("1", [("remote.log.manager.copier.thread.pool.size", SET, "3")]),
    ("1", [("log.retention.ms", SET, None)]),
    ("1", [("leader.replication.throttled.rate", SET, "x")]),
]


@pytest.mark.parametrize(("broker", "alteration"), BROKER_ALTERATIONS, ids=str)
def test_invalid_broker_settings_are_refused(both: NodePair, broker: str, alteration: list[Alteration]) -> None:
    for version in (0, 1):
        answers = both.expect_same(alter((BROKER, broker, alteration)), version)
        assert answers.ottla.responses[0].error_code


VALID_BROKER_SETTINGS: list[tuple[str, dict[str, str]]] = [
    ("1", {"num.io.threads": "4"}),
    ("", {"num.io.threads": "3"}),
    ("1", {"nope": "4"}),
    ("", {"log.cleaner.threads": "2"}),
    ("", {"log.cleaner.io.buffer.size": "1"}),
    ("", {"max.connections": "1000", "max.connection.creation.rate": "1000"}),
    ("", {"max.connections.per.ip.overrides": "127.0.0.1:400"}),
    ("", {"message.max.bytes": "2000000", "log.retention.ms": "86400000"}),
    ("1", {"log.retention.ms": "-5", "log.flush.interval.ms": "100"}),
    ("", {"unclean.leader.election.enable": "true"}),
    ("", {"background.threads": "3"}),
    ("1", {"listener.name.plaintext.max.connections": "600"}),
    ("1", {"listener.name.plaintext.ssl.keystore.location": "/nope"}),
    ("1", {"cordoned.log.dirs": "*"}),
    ("1", {"producer.id.expiration.ms": "5000", "transaction.partition.verification.enable": "false"}),
    ("1", {"num.replica.fetchers": "2", "num.recovery.threads.per.data.dir": "3", "num.network.threads": "2"}),
    ("1", {"follower.replication.throttled.rate": "1000"}),
]


@pytest.mark.parametrize(("broker", "settings"), VALID_BROKER_SETTINGS, ids=str)
def test_valid_broker_settings_are_altered_the_same_way(both: NodePair, broker: str, settings: dict[str, str]) -> None:
    both.expect_same(alter((BROKER, broker, [(name, SET, value) for name, value in settings.items()])), 1)
    try:
        expect_same_settings(both, describe((BROKER, "1"), (BROKER, "")))
    finally:
        both.expect_same(alter((BROKER, broker, [(name, DELETE, None) for name in settings])), 1)
    expect_same_settings(both, describe((BROKER, "1"), (BROKER, "")))


@pytest.mark.parametrize(
    ("kind", "name", "alteration"),
    [
        (GROUP, "g1", [("consumer.session.timeout.ms", SET, "46000")]),
        (GROUP, "g1", [("consumer.session.timeout.ms", SET, "1")]),
        (GROUP, "g1", [("consumer.session.timeout.ms", SET, "x")]),
        (GROUP, "g1", [("consumer.heartbeat.interval.ms", SET, "100000")]),
        (GROUP, "g1", [("share.auto.offset.reset", SET, "foo")]),
        (GROUP, "g1", [("share.record.lock.duration.ms", SET, "1")]),
        (GROUP, "g1", [("nope", SET, "1")]),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")]),
        (METRICS, "m1", [("metrics", SET, "org.a"), ("interval.ms", SET, "1000"), ("match", SET, "client_id=.*")]),
        (METRICS, "m1", [("interval.ms", SET, "1")]),
        (METRICS, "m1", [("interval.ms", SET, "x")]),
        (METRICS, "m1", [("match", SET, "foo=bar")]),
        (METRICS, "m1", [("match", SET, "client_id=[")]),
        (METRICS, "m1", [("nope", SET, "1")]),
        (METRICS, "m1", [("metrics", APPEND, "a")]),
        (METRICS, "", [("interval.ms", SET, "1000")]),
        (TOPIC, "missing", [("retention.ms", SET, "1")]),
        (TOPIC, "a/b", [("retention.ms", SET, "1")]),
        (TOPIC, "", [("retention.ms", SET, "1")]),
        (LOGGER, "1", [("no.such.logger", SET, "INFO")]),
        (LOGGER, "1", [("root", SET, "NOPE")]),
        (LOGGER, "1", [("root", DELETE, None)]),
        (LOGGER, "1", [("root", APPEND, "INFO")]),
        (LOGGER, "2", [("root", SET, "INFO")]),
        (LOGGER, "", [("root", SET, "INFO")]),
        (LOGGER, "x", [("root", SET, "INFO")]),
        (5, "x", [("a", SET, "b")]),
        (0, "x", [("a", SET, "b")]),
    ],
    ids=str,
)
def test_settings_of_other_resources_are_altered_the_same_way(
    both: NodePair, kind: int, name: str, alteration: list[Alteration]
) -> None:
    try:
        for version in (0, 1):
            both.expect_same(alter((kind, name, alteration)), version)
        expect_same_settings(both, describe((GROUP, "g1"), (METRICS, "m1")))
    finally:  # otherwise the node would request these metrics from other tests' clients
        settings = ("metrics", "interval.ms", "match")
        both.expect_same(alter((METRICS, "m1", [(setting, DELETE, None) for setting in settings])), 1)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *((f"{kind}.heartbeat.interval.ms", value) for kind in GROUP_TYPES for value in ("1", "100000")),
        *((f"{kind}.session.timeout.ms", value) for kind in GROUP_TYPES for value in ("1", "1000000")),
        ("streams.num.standby.replicas", "3"),
        ("share.delivery.count.limit", "100"),
        ("share.record.lock.duration.ms", "1000000"),
    ],
)
def test_a_group_setting_out_of_bounds_is_refused_with_the_bounds(both: NodePair, setting: str, value: str) -> None:
    answers = both.expect_same(alter((GROUP, "g1", [(setting, SET, value)])), 1, messages=Messages.EXACTLY)
    assert answers.ottla.responses[0].error_code == InvalidConfig.code


def test_each_altered_resource_has_its_own_result(both: NodePair) -> None:
    topic = both.new_topic()
    both.expect_same(
        alter(
            (BROKER, "1", [("num.io.threads", SET, "x")]),
            (TOPIC, topic, [("retention.ms", SET, "55")]),
            (LOGGER, "2", [("root", SET, "INFO")]),
            (TOPIC, "missing", [("retention.ms", SET, "1")]),
        ),
        1,
    )
    both.expect_same(
        alter((TOPIC, topic, [("retention.ms", SET, "1")]), (TOPIC, topic, [("retention.ms", SET, "2")])), 1
    )
    both.expect_same(alter(), 0)


@pytest.mark.parametrize("version", range(3))
def test_settings_are_replaced_the_same_way(both: NodePair, version: int) -> None:
    topic = both.new_topic(configs={"retention.ms": "5", "segment.bytes": "2000000"})
    resources: list[tuple[int, str, dict[str, str | None]]] = [
        (TOPIC, topic, {"retention.ms": "888"}),
        (TOPIC, topic, {"nope": "1"}),
        (TOPIC, topic, {"retention.ms": None}),
        (TOPIC, "missing", {}),
        (BROKER, "1", {"broker.id": "3"}),
        (BROKER, "2", {}),
        (BROKER, "", {"log.retention.ms": "100000"}),
        (LOGGER, "1", {"root": "INFO"}),
        (5, "x", {}),
        (GROUP, "g1", {"consumer.session.timeout.ms": "47000"}),
        (METRICS, "m1", {"interval.ms": "2000"}),
    ]
    for resource in resources:
        both.expect_same(replace(resource), version)
    expect_same_settings(both, describe((TOPIC, topic), (GROUP, "g1"), (METRICS, "m1"), (BROKER, "")))


def test_resources_with_settings_are_listed_the_same_way(both: NodePair) -> None:
    both.new_topic()
    both.expect_same(ListConfigResourcesRequest(), 0)
    for kinds in ([], [16], [2, 4, 8, 16, 32], [4], [8], [32], [3], [0], [2, 3], [2, 2]):
        both.expect_same(ListConfigResourcesRequest(resource_types=kinds), 1)


# -- topics --


def new_topic_entry(
    name: str, count: int = 1, factor: int = 1, *, placement: list[list[int]] | None = None, **configs: Any
) -> Any:
    return topics.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            topics.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(placement or [])
        ],
        configs=[
            topics.CreatableTopicConfig(name=setting.replace("_", "."), value=value)
            for setting, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_invalid_topics_are_refused(both: NodePair, version: int) -> None:
    there = both.new_topic()
    refused = [
        new_topic_entry(""),
        new_topic_entry("."),
        new_topic_entry("a/b"),
        new_topic_entry("x" * 250),
        new_topic_entry(there),
        new_topic_entry("factor", factor=3),
        new_topic_entry("no-factor", factor=0),
        new_topic_entry("no-partitions", 0),
        new_topic_entry("negative", -2),
        new_topic_entry("twice"),
        new_topic_entry("twice", 2),
        new_topic_entry("unknown-setting", nope="1"),
        new_topic_entry("bad-setting", retention_ms="x"),
        new_topic_entry("no-setting", segment_bytes=None),
        new_topic_entry("both", 2, 1, placement=[[1]]),
        new_topic_entry("nobody", -1, -1, placement=[[7]]),
        new_topic_entry("repeated", -1, -1, placement=[[1, 1]]),
        new_topic_entry("__cluster_metadata"),
    ]
    both.expect_same(topics.CreateTopicsRequest(topics=refused), version)
    both.expect_same(topics.CreateTopicsRequest(topics=[new_topic_entry("many", 10_001)]), version)
    both.expect_same(topics.CreateTopicsRequest(topics=[]), version)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_the_same_way(both: NodePair, version: int) -> None:
    for name, entry in (
        (f"dry-{version}", new_topic_entry(f"dry-{version}", 2)),
        (f"man-{version}", new_topic_entry(f"man-{version}", -1, -1, placement=[[1], [1], [1]])),
        (f"set-{version}", new_topic_entry(f"set-{version}", retention_ms="5", cleanup_policy="compact")),
    ):
        dry = topics.CreateTopicsRequest(topics=[entry], validate_only=True)
        both.expect_same(dry, version, ignoring=["topic_id"])
        answers = both.expect_same(topics.CreateTopicsRequest(topics=[entry]), version, ignoring=["topic_id"])
        assert answers.ottla.topics[0].error_code == 0, name
        both.expect_same(topics.CreateTopicsRequest(topics=[entry]), version)
    if version >= 4:
        both.expect_same(
            topics.CreateTopicsRequest(topics=[new_topic_entry(f"d.{version}", -1, -1)]), version, ignoring=["topic_id"]
        )
        both.expect_same(topics.CreateTopicsRequest(topics=[new_topic_entry(f"d_{version}", -1, -1)]), version)


def test_a_creation_with_timeout_0_times_out(both: NodePair) -> None:
    both.expect_same(topics.CreateTopicsRequest(topics=[new_topic_entry("at-once")], timeout_ms=0), 7)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_the_same_way(both: NodePair, version: int) -> None:
    first = both.new_topic()
    if version < 6:
        both.expect_same(
            DeleteTopicsRequest(topic_names=[first, "missing", "twice", "twice"], timeout_ms=5000), version
        )
        both.expect_same(DeleteTopicsRequest(topic_names=[first], timeout_ms=5000), version)
        return
    second = both.new_topic()

    def request(side: Side) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=first),
                DeleteTopicState(name=None, topic_id=side.id_of(second)),
                DeleteTopicState(name="missing"),
                DeleteTopicState(name=None),
                DeleteTopicState(name=None, topic_id=b"9" * 16),
                DeleteTopicState(name="named", topic_id=b"8" * 16),
                DeleteTopicState(name="twice"),
                DeleteTopicState(name="twice"),
                DeleteTopicState(name=None, topic_id=b"7" * 16),
                DeleteTopicState(name=None, topic_id=b"7" * 16),
            ],
            timeout_ms=5000,
        )

    both.expect_same(request, version)
    both.expect_same(request, version)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_the_same_way(both: NodePair, version: int) -> None:
    two, four = both.new_topic(partitions=2), both.new_topic(partitions=4)

    def more(name: str, count: int, placement: list[list[int]] | None = None) -> partitions.CreatePartitionsTopic:
        assignments = (
            None
            if placement is None
            else [partitions.CreatePartitionsAssignment(broker_ids=brokers) for brokers in placement]
        )
        return partitions.CreatePartitionsTopic(name=name, count=count, assignments=assignments)

    def expect_same(*entries: partitions.CreatePartitionsTopic, dry: bool = False) -> None:
        request = partitions.CreatePartitionsRequest(topics=list(entries), timeout_ms=30_000, validate_only=dry)
        both.expect_same(request, version)

    expect_same(more(two, 2), more(four, 2), more("missing", 2), more("twice", 2), more("twice", 3))
    expect_same(more(two, 4, [[1]]), more(four, 5, [[9]]))
    expect_same(more(two, 3, [[1, 1]]), more(four, 5, [[]]))
    expect_same(more(two, 0), more(four, -1))
    expect_same(more(two, 3), dry=True)
    expect_same(more(two, 3), more(four, 6, [[1], [1]]))
    expect_same(more(two, 3), more(four, 6))


# -- leaders, moves, features --


@pytest.mark.parametrize("version", range(3))
def test_unneeded_elections_get_the_same_answers(both: NodePair, version: int) -> None:
    topic = both.new_topic(partitions=2)
    partitions = [TopicPartitions(topic=topic, partitions=[0, 1, 77]), TopicPartitions(topic="missing", partitions=[0])]
    both.expect_same(ElectLeadersRequest(topic_partitions=partitions, timeout_ms=5000), version)
    both.expect_same(ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), version)
    if version > 0:
        both.expect_same(ElectLeadersRequest(election_type=1, topic_partitions=partitions, timeout_ms=5000), version)
        both.expect_same(ElectLeadersRequest(election_type=5, topic_partitions=partitions, timeout_ms=5000), version)


@pytest.mark.parametrize("version", range(2))
def test_reassignments_get_the_same_answers(both: NodePair, version: int) -> None:
    topic = both.new_topic(partitions=4)
    placement = {0: [1], 1: None, 2: [5], 3: [], 99: [1]}
    entries = [ReassignablePartition(partition_index=number, replicas=brokers) for number, brokers in placement.items()]
    missing = ReassignableTopic(name="missing", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=entries), missing])
    both.expect_same(request, version)
    both.expect_same(ListPartitionReassignmentsRequest(topics=None), 0)
    listed = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 88]) for name in (topic, "missing")]
    both.expect_same(ListPartitionReassignmentsRequest(topics=listed), 0)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "updates",
    [
        [("metadata.version", 99, 1)],
        [("nope", 1, 1)],
        [("metadata.version", 7, 1)],
        [("metadata.version", 25, 2)],
        [("group.version", 0, 1)],
        [("group.version", 1, 9)],
        [("group.version", -1, 2)],
        [("group.version", 1, 1)],
        [],
        [("transaction.version", 2, 1), ("nope", 2, 1)],
        [("", 1, 1)],
    ],
    ids=str,
)
def test_feature_updates_get_the_same_answers(
    both: NodePair, version: int, updates: list[tuple[str, int, int]]
) -> None:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    both.expect_same(UpdateFeaturesRequest(feature_updates=keys), version, messages=Messages.EXACTLY)


def test_an_unknown_broker_cannot_be_unregistered(both: NodePair) -> None:
    both.expect_same(UnregisterBrokerRequest(broker_id=55), 0)


# -- quotas and credentials --


Entity = list[tuple[str, str | None]]


def quota(entity: Entity, *ops: tuple[str, float, bool]) -> alter_quotas.EntryData:
    return alter_quotas.EntryData(
        entity=[alter_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter_quotas.OpData(key=key, value=value, remove=remove) for key, value, remove in ops],
    )


FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", 0, "u1")], False),
    ([("user", 0, "u1")], True),
    ([("user", 1, None)], False),
    ([("user", 2, None)], False),
    ([("user", 2, None)], True),
    ([("user", 2, None), ("client-id", 2, None)], False),
    ([("client-id", 1, None)], True),
    ([("ip", 2, None)], False),
    ([("nope", 2, None)], False),
    ([("user", 7, None)], False),
    ([("user", 0, None)], False),
    ([("user", 1, "x")], False),
    ([("user", 0, "a"), ("user", 0, "b")], False),
    ([("ip", 2, None), ("user", 2, None)], False),
    ([("", 2, None)], False),
]


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_altered_and_described_the_same_way(both: NodePair, version: int) -> None:
    good = [
        quota([("user", "u1")], ("producer_byte_rate", 1000.0, False)),
        quota([("user", "u1"), ("client-id", "c1")], ("consumer_byte_rate", 2000.0, False)),
        quota([("client-id", None)], ("request_percentage", 50.5, False)),
        quota([("ip", "127.0.0.1")], ("connection_creation_rate", 10_000.0, False)),
        quota([("user", None)], ("controller_mutation_rate", 500_000.0, False)),
    ]
    both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=good, validate_only=True), version)
    both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=good), version)
    time.sleep(0.5)
    for components, strict in FILTERS:
        components_data = [
            quotas.ComponentData(entity_type=kind, match_type=match, match=text) for kind, match, text in components
        ]
        both.expect_same(quotas.DescribeClientQuotasRequest(components=components_data, strict=strict), version)
    for entry in good:
        entry.ops[0].remove = True
    both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=good), version)


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ([("user", "u")], [("nope", 1.0, False)]),
        ([("nope", "u")], [("producer_byte_rate", 1.0, False)]),
        ([("user", "")], [("producer_byte_rate", 1.0, False)]),
        ([], [("producer_byte_rate", 1.0, False)]),
        ([("user", "u"), ("user", "v")], [("producer_byte_rate", 1.0, True)]),
        ([("user", "u")], [("producer_byte_rate", 0.0, False)]),
        ([("user", "u")], [("producer_byte_rate", 1.5, False)]),
        ([("user", "u")], [("producer_byte_rate", 1e30, False)]),
        ([("user", "u")], [("producer_byte_rate", 1.0, False), ("producer_byte_rate", 2.0, False)]),
        ([("ip", "1.2.3.4"), ("user", "u")], [("connection_creation_rate", 1.0, False)]),
        ([("ip", "not an ip")], [("connection_creation_rate", 1.0, False)]),
        ([("ip", "10.0.0.400")], [("connection_creation_rate", 1.0, False)]),
        ([("ip", "nobody.invalid")], [("connection_creation_rate", 1.0, False)]),
        ([("ip", "x" * 300)], [("connection_creation_rate", 1.0, False)]),
        ([("ip", "1.2.3.4")], [("producer_byte_rate", 1.0, False)]),
        ([("user", "u")], [("producer_byte_rate", 1.0, True)]),
    ],
    ids=str,
)
def test_invalid_quotas_are_refused(both: NodePair, entity: Entity, ops: list[tuple[str, float, bool]]) -> None:
    for version in (0, 1):
        both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=[quota(entity, *ops)]), version)


def test_a_repeated_entity_gets_the_quotas_of_its_first_entry(both: NodePair) -> None:
    entries = [
        quota([("user", "u"), ("client-id", "twice")], ("producer_byte_rate", 1000.0, False)),
        quota([("client-id", "twice"), ("user", "u")], ("consumer_byte_rate", 2000.0, False)),
        quota([("client-id", "once")], ("consumer_byte_rate", 3000.0, False)),
        quota([("user", "wrong")], ("nope", 1.0, False)),
        quota([("user", "wrong")], ("consumer_byte_rate", 1.0, False)),
    ]
    request = quotas.DescribeClientQuotasRequest()
    try:
        both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=entries), 1)
        assert len(both.expect_same_soon(request, 1).ottla.entries) == 2
    finally:
        for entry in (entries[0], entries[2]):
            entry.ops[0].remove = True
        both.expect_same(alter_quotas.AlterClientQuotasRequest(entries=[entries[0], entries[2]]), 1)
        both.expect_same_soon(request, 1)


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> scram.ScramCredentialUpsertion:
    return scram.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"x" * 32
    )


def test_scram_credentials_are_altered_and_described_the_same_way(both: NodePair) -> None:
    def expect_same(*upsertions: scram.ScramCredentialUpsertion, deletions: Sequence[tuple[str, int]] = ()) -> None:
        deletion_entries = [
            scram.ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in deletions
        ]
        both.expect_same(
            scram.AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=deletion_entries), 0
        )

    expect_same(upsertion("alice"), upsertion("bob", 2, 8192))
    expect_same(upsertion(""), upsertion("few", 1, 1), upsertion("many", 1, 99_999), upsertion("what", 7))
    expect_same(deletions=[("nobody", 1), ("alice", 2), ("", 1), ("x", 0)])
    expect_same(upsertion("alice", 2), deletions=[("alice", 1)])
    expect_same(upsertion("alice"), upsertion("alice", 2))
    time.sleep(0.5)
    for users in (None, [], ["bob", "nobody", ""], ["bob", "bob", "alice"]):
        user_names = None if users is None else [UserName(name=user) for user in users]
        both.expect_same(DescribeUserScramCredentialsRequest(users=user_names), 0)
    expect_same(deletions=[("alice", 1), ("bob", 2)])


# -- features that are switched off --


def filtered(kind: int = 1) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": None,
        "pattern_type_filter": 1 if kind else 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_without_an_authorizer_fail(both: NodePair, version: int) -> None:
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    both.expect_same(DescribeAclsRequest(**filtered()), version)
    both.expect_same(create_acls.CreateAclsRequest(creations=[creation, creation]), version)
    both.expect_same(create_acls.CreateAclsRequest(creations=[]), version)
    both.expect_same(delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**filtered())]), version)
    both.expect_same(DescribeAclsRequest(**filtered(0)), version)
    creation.resource_type = 0
    both.expect_same(create_acls.CreateAclsRequest(creations=[creation]), version)


def test_delegation_token_requests_fail_if_tokens_are_disabled(both: NodePair) -> None:
    for version in range(1, 4):
        both.expect_same(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
        both.expect_same(DescribeDelegationTokenRequest(owners=None), version)
    for version in range(1, 3):
        both.expect_same(RenewDelegationTokenRequest(hmac=b"abc", renew_period_ms=1000), version)
        both.expect_same(ExpireDelegationTokenRequest(hmac=b"abc", expiry_time_period_ms=1000), version)
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="ann", max_lifetime_ms=-1)
    both.expect_same(request, 3)


# -- the quorum --

VARYING = ["leader_epoch", "high_watermark", "log_end_offset", "*_timestamp", "replica_directory_id"]


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_described_the_same_way(both: NodePair, version: int) -> None:
    for name, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        topic = TopicData(topic_name=name, partitions=[PartitionData(partition_index=number)])
        both.expect_same(DescribeQuorumRequest(topics=[topic]), version, ignoring=VARYING)
    both.expect_same(DescribeQuorumRequest(topics=[]), version)


def test_changes_of_voters_with_another_cluster_id_are_refused(both: NodePair) -> None:
    for version in range(2):
        both.expect_same(AddRaftVoterRequest(cluster_id="other", voter_id=5, voter_directory_id=b"1" * 16), version)
    both.expect_same(RemoveRaftVoterRequest(cluster_id="other", voter_id=5, voter_directory_id=b"1" * 16), 0)
    both.expect_same(RemoveRaftVoterRequest(cluster_id=None, voter_id=5, voter_directory_id=b"1" * 16), 0)


# -- automatic topic creation --


def missing(name: str) -> Callable[[bool], MetadataRequest]:
    return lambda create: MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)


def test_no_topic_is_created_if_automatic_creation_is_off(both: NodePair) -> None:
    for name in ("asked-for", "__consumer_offsets", "a/b"):
        both.expect_same(missing(name)(True), 12)
        time.sleep(0.3)
        both.expect_same(missing(name)(True), 12)
