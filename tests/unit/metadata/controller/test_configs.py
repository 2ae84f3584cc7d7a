"""Configs, features and the activation of a controller."""

from collections.abc import Mapping

import pytest

from ottla.metadata.controller.activation import activate, write_no_op
from ottla.metadata.controller.configs import Operation, alter_configs, incremental_alter_configs
from ottla.metadata.controller.features import requested_kraft_version, update_features
from ottla.metadata.controller.registration import register_controller
from ottla.metadata.controller.view import ControllerOptions, ControllerView
from ottla.metadata.image.image import EMPTY
from ottla.metadata.image.loader import MetadataLoader
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.protocol.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    InvalidUpdateVersion,
    PolicyViolation,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.messages.rpc.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.rpc.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.metadata_versions import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, SHARE_VERSION
from tests.unit.metadata.controller.cluster import Cluster

TOPIC, BROKER, GROUP, CLIENTS = (
    int(each) for each in (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
)
SET, DELETE, APPEND, SUBTRACT = Operation


def alter(
    cluster: Cluster,
    kind: int,
    name: str,
    *changes: tuple[int, str, str | None],
    validate_only: bool = False,
    forwarded: bool = True,
) -> int:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, key, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    decision = incremental_alter_configs(cluster.view, request, forwarded=forwarded)
    return cluster.apply(decision).responses[0].error_code


def replace_all(cluster: Cluster, kind: int, name: str, settings: Mapping[str, str | None]) -> int:
    configs = [legacy.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = legacy.AlterConfigsRequest(resources=[resource])
    return cluster.apply(alter_configs(cluster.view, request)).responses[0].error_code


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 2)
    cluster.create("t", [1, 2])
    return cluster


def test_configs_are_set_deleted_appended_to_and_subtracted_from(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, "t", (SET, "retention.ms", "7"), (APPEND, "cleanup.policy", "compact")) == 0
    assert dict(cluster.image.topic_config("t")) == {"retention.ms": "7", "cleanup.policy": "delete,compact"}
    assert alter(cluster, TOPIC, "t", (SUBTRACT, "cleanup.policy", "delete"), (DELETE, "retention.ms", None)) == 0
    assert dict(cluster.image.topic_config("t")) == {"cleanup.policy": "compact"}


def test_unchanged_configs_are_written_for_brokers_only(cluster: Cluster) -> None:
    alter(cluster, TOPIC, "t", (SET, "retention.ms", "7"))
    alter(cluster, TOPIC, "t", (SET, "retention.ms", "7"))
    assert cluster.written == []
    for _ in range(2):
        alter(cluster, BROKER, "1", (SET, "ssl.keystore.location", "/keys"))
        assert len(cluster.written) == 1


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, "t", (SET, "retention.ms", "7"), validate_only=True) == 0
    assert not cluster.image.configs


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "t", (SET, "retention.ms", "x"), InvalidConfig),
        (TOPIC, "t", (SET, "no.such", "1"), InvalidConfig),
        (TOPIC, "t", (APPEND, "retention.ms", "1"), InvalidConfig),
        (TOPIC, "t", (SET, "retention.ms", None), InvalidRequest),
        (TOPIC, "t", (9, "retention.ms", "1"), InvalidRequest),
        (TOPIC, "t", (SET, "follower.replication.throttled.replicas", "0:1," * 9000 + "0:1"), InvalidConfig),
        (TOPIC, "none", (SET, "retention.ms", "1"), UnknownTopicOrPartition),
        (TOPIC, "", (SET, "retention.ms", "1"), InvalidRequest),
        (BROKER, "x", (SET, "background.threads", "1"), InvalidRequest),
        (BROKER, "-1", (SET, "background.threads", "1"), InvalidRequest),
        (BROKER, "9", (SET, "background.threads", "1"), BrokerIdNotRegistered),
        (BROKER, "1", (SET, "background.threads", "many"), InvalidConfig),
        (BROKER, "1", (SET, "node.id", "7"), InvalidConfig),
        (BROKER, "", (SET, "cordoned.log.dirs", "/d"), InvalidConfig),
        (GROUP, "", (SET, "consumer.session.timeout.ms", "50000"), InvalidRequest),
        (GROUP, "g", (SET, "no.such", "1"), InvalidConfig),
        (GROUP, "g", (SET, "consumer.session.timeout.ms", "1000"), InvalidConfig),
        (GROUP, "g", (SET, "consumer.session.timeout.ms", "61000"), InvalidConfig),
        (CLIENTS, "", (SET, "interval.ms", "1000"), InvalidRequest),
        (CLIENTS, "c", (SET, "interval.ms", "50"), InvalidRequest),
        (CLIENTS, "c", (SET, "interval.ms", "x"), InvalidConfig),
        (CLIENTS, "c", (SET, "no.such", "1"), InvalidRequest),
        (CLIENTS, "c", (SET, "match", "client_id=["), InvalidConfig),
        (CLIENTS, "c", (SET, "match", "color=red"), InvalidConfig),
        (8, "1", (SET, "kafka", "DEBUG"), InvalidRequest),
        (0, "x", (SET, "a", "b"), UnsupportedVersion),
    ],
)
def test_invalid_configs_are_rejected(
    cluster: Cluster, kind: int, name: str, change: tuple[int, str, str | None], error: type[ApiError]
) -> None:
    assert alter(cluster, kind, name, change) == error.code
    assert cluster.written == []


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (BROKER, "", (SET, "background.threads", "5")),
        (BROKER, "1", (SET, "listener.name.outside.ssl.keystore.location", "/x")),
        (GROUP, "g", (SET, "consumer.session.timeout.ms", "50000")),
        (GROUP, "g", (SET, "share.auto.offset.reset", "earliest")),
        (CLIENTS, "c", (SET, "interval.ms", "1000")),
        (CLIENTS, "c", (SET, "match", "client_id=a.*,client_software_name=x")),
        (CLIENTS, "c", (SET, "metrics", "org.apache.kafka")),
    ],
)
def test_every_resource_type_has_configs(
    cluster: Cluster, kind: int, name: str, change: tuple[int, str, str | None]
) -> None:
    assert alter(cluster, kind, name, change) == 0
    assert dict(cluster.image.config(kind, name)) == {change[1]: change[2]}


def test_repeated_resources_and_configs_are_rejected(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, "t", (SET, "retention.ms", "1"), (SET, "retention.ms", "2")) == InvalidRequest.code
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    [response] = incremental_alter_configs(cluster.view, request).reply.responses
    assert response.error_code == InvalidRequest.code


def test_alter_configs_replaces_all_configs(cluster: Cluster) -> None:
    alter(cluster, TOPIC, "t", (SET, "retention.ms", "7"), (SET, "segment.ms", "9"))
    assert replace_all(cluster, TOPIC, "t", {"retention.ms": "8"}) == 0
    assert dict(cluster.image.topic_config("t")) == {"retention.ms": "8"}
    assert replace_all(cluster, TOPIC, "t", {"retention.ms": None}) == InvalidRequest.code
    assert replace_all(cluster, TOPIC, "t", {}) == 0
    assert not cluster.image.configs


def test_a_policy_sees_the_altered_configs_and_may_refuse(cluster: Cluster) -> None:
    seen: list[tuple[ConfigResource, Mapping[str, str | None]]] = []

    def policy(resource: ConfigResource, altered: Mapping[str, str | None]) -> None:
        seen.append((resource, altered))
        raise PolicyViolation("no")

    cluster.options = ControllerOptions(node_id=3000, cluster_id="c", alter_config_policy=policy)
    assert alter(cluster, TOPIC, "t", (SET, "retention.ms", "7")) == PolicyViolation.code
    assert seen == [(ConfigResource(TOPIC, "t"), {"retention.ms": "7"})]


def test_directories_are_cordoned_by_their_broker_from_4_3_on(cluster: Cluster) -> None:
    assert alter(cluster, BROKER, "1", (SET, "cordoned.log.dirs", "/a,/b"), forwarded=False) == InvalidConfig.code
    assert alter(cluster, BROKER, "1", (SET, "cordoned.log.dirs", "/a,/b")) == 0
    assert alter(cluster, BROKER, "1", (SET, "cordoned.log.dirs", "/b"), forwarded=False) == 0
    old = Cluster(1, metadata_version=29)
    assert alter(old, BROKER, "1", (SET, "cordoned.log.dirs", "/a")) == InvalidConfig.code


def test_with_elr_a_new_min_isr_clears_eligible_leader_replicas() -> None:
    cluster = Cluster(1, 2, 3, elr=True)
    cluster.create("t", [1, 2, 3], configs={"min.insync.replicas": "3"})
    cluster.stop(1)
    assert cluster.partition().elr == (1,)
    assert alter(cluster, BROKER, "1", (SET, "min.insync.replicas", "2")) == InvalidConfig.code
    assert alter(cluster, BROKER, "", (DELETE, "min.insync.replicas", None)) == InvalidConfig.code
    assert replace_all(cluster, BROKER, "", {}) == InvalidConfig.code
    assert alter(cluster, TOPIC, "t", (SET, "min.insync.replicas", "2")) == 0
    assert cluster.written[-1] == ClearElrRecord(topic_name="t")
    assert cluster.partition().elr == ()
    assert alter(cluster, BROKER, "", (SET, "min.insync.replicas", "2")) == 0
    assert cluster.written[-1] == ClearElrRecord(topic_name="")


def test_a_new_min_isr_keeps_the_elr_of_a_partition_without_a_leader() -> None:
    cluster = Cluster(1, 2, elr=True)
    cluster.create("t", [1, 2], configs={"min.insync.replicas": "2"})
    cluster.stop(1)
    cluster.stop(2)
    before = cluster.partition()
    assert (before.isr, before.elr, before.last_known_elr) == ((), (1, 2), (2,))
    assert alter(cluster, TOPIC, "t", (SET, "min.insync.replicas", "1")) == 0
    after = cluster.partition()
    assert (after.isr, after.elr, after.last_known_elr) == ((), (1, 2), (2,))
    cluster.start(2, previous_broker_epoch=cluster.epochs[2])
    assert cluster.partition().leader == 2


def update(cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False) -> tuple[int, str | None]:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    reply = cluster.apply(update_features(cluster.view, request, kraft_version=1, voters=[3000]))
    return reply.error_code, reply.error_message


def test_features_are_upgraded_and_downgraded(cluster: Cluster) -> None:
    assert update(cluster, (SHARE_VERSION, 1, 1), validate_only=True) == (0, None)
    assert cluster.image.features.level(SHARE_VERSION) == 0
    assert update(cluster, (SHARE_VERSION, 1, 1)) == (0, None)
    assert update(cluster, (SHARE_VERSION, 0, 1))[0] == InvalidUpdateVersion.code
    assert update(cluster, (SHARE_VERSION, 0, 2)) == (0, None)
    assert cluster.image.features.level(SHARE_VERSION) == 0


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        ("no.such", 1, 1, "Local controller 3000 does not support this feature"),
        (SHARE_VERSION, 9, 1, "only supports versions 0-1"),
        (SHARE_VERSION, -1, 1, "cannot be less than 0"),
        (SHARE_VERSION, 1, 7, "upgrade type"),
        (SHARE_VERSION, 1, 2, "Can't downgrade to a newer version"),
        (METADATA_VERSION, 25, 2, "might delete metadata"),
        (METADATA_VERSION, 25, 3, "Unsafe metadata downgrade is not supported"),
        (METADATA_VERSION, 31, 1, "only supports versions 7-30"),
        (KRAFT_VERSION, 0, 2, "Can't downgrade the version of this feature"),
    ],
)
def test_invalid_feature_levels_are_rejected(cluster: Cluster, name: str, level: int, kind: int, why: str) -> None:
    code, message = update(cluster, (name, level, kind))
    assert code == InvalidUpdateVersion.code
    assert message is not None
    assert why in message


def test_a_level_must_be_supported_by_every_broker_and_controller(cluster: Cluster) -> None:
    cluster.register(9, features=[each for each in cluster.registration_of(9).features if each.name != SHARE_VERSION])
    code, message = update(cluster, (SHARE_VERSION, 1, 1))
    assert (code, "Broker 9" in str(message)) == (InvalidUpdateVersion.code, True)
    other = Cluster()
    key = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[key])
    refused = update_features(other.view, request, kraft_version=1, voters=[3000, 3001])
    assert "3001 has not registered" in str(refused.reply.error_message)
    other.apply(register_controller(other.view, ControllerRegistrationRequest(controller_id=3001)))
    refused = update_features(other.view, request, kraft_version=1, voters=[3000, 3001])
    assert "Controller 3001 does not support" in str(refused.reply.error_message)


def test_a_downgrade_that_loses_nothing_is_allowed() -> None:
    cluster = Cluster(1, metadata_version=22)
    assert update(cluster, (METADATA_VERSION, 20, 2)) == (0, None)
    assert cluster.image.features.metadata_version == 20


def test_enabling_elr_moves_min_isr_to_the_cluster_level(cluster: Cluster) -> None:
    old = Cluster(1, metadata_version=22)
    code, message = update(old, (ELR_VERSION, 1, 1))
    assert (code, "depends on metadata.version level 23" in str(message)) == (InvalidUpdateVersion.code, True)
    assert update(old, (ELR_VERSION, 1, 1), (METADATA_VERSION, 23, 1)) == (0, None)
    alter(cluster, BROKER, "1", (SET, "min.insync.replicas", "2"))
    assert update(cluster, (ELR_VERSION, 1, 1)) == (0, None)
    assert dict(cluster.image.default_broker_config) == {"min.insync.replicas": "1"}
    assert not cluster.image.broker_config(1)


def test_the_kraft_version_is_left_to_the_quorum(cluster: Cluster) -> None:
    key = FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[key])
    decision = update_features(cluster.view, request, kraft_version=0, voters=[])
    assert decision.records == (NoOpRecord(),)
    assert requested_kraft_version(request) == 1
    request.validate_only = True
    assert requested_kraft_version(request) is None


def test_one_invalid_feature_fails_the_request(cluster: Cluster) -> None:
    code, _ = update(cluster, (SHARE_VERSION, 1, 1), ("no.such", 1, 1))
    assert code == InvalidUpdateVersion.code
    assert cluster.image.features.level(SHARE_VERSION) == 0


def test_an_empty_log_starts_with_the_bootstrap_records_in_a_transaction() -> None:
    view = ControllerView(EMPTY, ControllerOptions(node_id=1, cluster_id="c", settings={"min.insync.replicas": "2"}))
    bootstrap = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    decision = activate(view, bootstrap)
    assert decision.records == (
        BeginTransactionRecord(name="Bootstrap records"),
        *bootstrap,
        ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2"),
        EndTransactionRecord(),
    )
    loader = MetadataLoader()
    loader.load(decision.records, base_offset=0, last_offset=len(decision.records) - 1, epoch=1, timestamp=0)
    loader.publish()
    assert loader.image.features.metadata_version == 30
    again = activate(view, bootstrap, in_transaction=True)
    assert again.records == (AbortTransactionRecord(reason="Controller failover"), *decision.records)


def test_an_old_cluster_starts_with_one_batch() -> None:
    view = ControllerView(EMPTY, ControllerOptions(node_id=1, cluster_id="c"))
    bootstrap = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=11)]
    decision = activate(view, bootstrap)
    assert (decision.records, decision.atomic) == (tuple(bootstrap), True)


def test_an_open_transaction_of_an_earlier_controller_is_aborted(cluster: Cluster) -> None:
    assert activate(cluster.view, []).records == ()
    aborted = activate(cluster.view, [], in_transaction=True)
    assert aborted.records == (AbortTransactionRecord(reason="Controller failover"),)
    cluster.apply(write_no_op())
    assert cluster.written == [NoOpRecord()]
