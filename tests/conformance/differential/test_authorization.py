"""ACLs decide as Kafka's StandardAuthorizer does, API by API; without authentication every client is User:ANONYMOUS."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from ottla.broker.authorization.actions import CLUSTER_NAME, Operation
from ottla.broker.authorization.actions import ResourceType as AclResourceType
from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.rpc import describe_configs as described
from ottla.protocol.messages.rpc import incremental_alter_configs as altered_configs
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.rpc.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.rpc.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.rpc.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.rpc.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.rpc.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.rpc.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.rpc.describe_topic_partitions import TopicRequest as DescribedTopic
from ottla.protocol.messages.rpc.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.rpc.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.rpc.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.rpc.update_features import UpdateFeaturesRequest
from tests.conformance.differential.harness import NodePair, RequestSource, running_node_pair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, batch, fetch, produce, topic_id_of
from tests.support.ottla_node import OttlaNode

LITERAL, PREFIXED = 3, 4
ANY, MATCH = 1, 2
DENY, ALLOW = 2, 3
LOADING = 14
ME, SOMEBODY = "User:ANONYMOUS", "User:somebody"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
    "auto.create.topics.enable": "true",
}


class Rule(NamedTuple):
    """An ACL, as a request creates it."""

    kind: int
    name: str
    operation: int
    permission: int = ALLOW
    principal: str = ME
    host: str = "*"
    pattern: int = LITERAL


@pytest.fixture(scope="module")
def guarded_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with running_node_pair(tmp_path_factory.mktemp("authorization"), SETTINGS) as nodes:
        yield nodes


@pytest.fixture
def guarded(guarded_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    """Return both nodes, with authorizers and without ACLs."""
    both, node = guarded_nodes
    log_start = node.log_path.stat().st_size
    yield both
    both.reconnect()
    errors = node.logged_errors(log_start)
    assert not errors, errors


def describe_acls_request(**fields: Any) -> Any:
    return DescribeAclsRequest(
        **{
            "resource_type_filter": ANY,
            "resource_name_filter": None,
            "pattern_type_filter": ANY,
            "principal_filter": None,
            "host_filter": None,
            "operation": ANY,
            "permission_type": ANY,
            **fields,
        }
    )


def count_rules(both: NodePair) -> tuple[int, int]:
    answers = both.ask(describe_acls_request(), 3)
    return tuple(sum(len(resource.acls) for resource in answer.resources) for answer in answers)  # type: ignore[return-value]


def wait_for_rules(both: NodePair, count: int) -> None:
    deadline = time.monotonic() + 20
    while count_rules(both) != (count, count):
        assert time.monotonic() < deadline, count_rules(both)
        time.sleep(0.02)


@contextmanager
def apply_rules(both: NodePair, *acls: Rule) -> Iterator[None]:
    """Apply ACLs on both nodes inside the block."""
    before = count_rules(both)[0]
    both.expect_same(CreateAclsRequest(creations=[acl_creation(rule) for rule in acls]), 3)
    wait_for_rules(both, before + len(set(acls)))
    try:
        yield
    finally:
        # In one request: with half of the cluster's ACLs removed, the client could not remove the rest.
        both.ask(DeleteAclsRequest(filters=[acl_filter(rule) for rule in acls]), 3)
        wait_for_rules(both, before)


def acl_creation(rule: Rule) -> AclCreation:
    return AclCreation(
        resource_type=rule.kind,
        resource_name=rule.name,
        resource_pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def acl_filter(rule: Rule) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=rule.kind,
        resource_name_filter=rule.name,
        pattern_type_filter=rule.pattern,
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


TOPIC_RULES: dict[str, Callable[[str], list[Rule]]] = {
    **{
        f"only {operation.name.lower()}": lambda topic, operation=operation: [
            Rule(AclResourceType.TOPIC, topic, operation)
        ]  # type: ignore[misc]
        for operation in (
            Operation.ALL,
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    },
    "somebody else": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.ALL, principal=SOMEBODY)],
    "anybody": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.ALL, principal="User:*")],
    "from elsewhere": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.ALL, host="192.0.2.1")],
    "from here": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.ALL, host="127.0.0.1")],
    "all but read": lambda topic: [
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
        Rule(AclResourceType.TOPIC, topic, Operation.READ, DENY),
    ],
    "all but describe": lambda topic: [
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
        Rule(AclResourceType.TOPIC, topic, Operation.DESCRIBE, DENY, "User:*"),
    ],
    "a prefix allows": lambda topic: [
        Rule(AclResourceType.TOPIC, topic[:-1], Operation.READ, pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, topic, Operation.ALTER, principal=SOMEBODY),
    ],
    "a prefix denies": lambda topic: [
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
        Rule(AclResourceType.TOPIC, topic[:-2], Operation.WRITE, DENY, pattern=PREFIXED),
    ],
    "the whole name as a prefix": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.WRITE, pattern=PREFIXED)],
    "a longer prefix": lambda topic: [Rule(AclResourceType.TOPIC, f"{topic}x", Operation.WRITE, pattern=PREFIXED)],
    "all topics": lambda topic: [Rule(AclResourceType.TOPIC, "*", Operation.READ)],
    "all topics denied": lambda topic: [
        Rule(AclResourceType.TOPIC, "*", Operation.READ, DENY),
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
    ],
}


def resource(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


def topic_requests(topic: str, open_topic: str) -> list[tuple[RequestSource, int]]:
    """Return requests that use a topic and another topic without ACLs."""
    both_names = (topic, open_topic)

    def by_id(side: Any) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=topic_id_of(side, name)) for name in both_names]
        )

    return [
        *(
            (produce(version, (topic, 0, batch()), (open_topic, 0, batch()), (topic, 7, batch())), version)
            for version in (3, 8, 12, 13)
        ),
        *((fetch(version, Part(topic), Part(open_topic), Part(topic, 9)), version) for version in (4, 12, 13, 17)),
        (fetch(12, Part(topic), max_wait_ms=50, min_bytes=1_000_000), 12),
        *(
            (
                ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
                        for name in both_names
                    ],
                ),
                version,
            )
            for version in (1, 7)
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition()]) for name in both_names
                ]
            ),
            4,
        ),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(offset=0)]) for name in both_names
                ],
                timeout_ms=5000,
            ),
            2,
        ),
        (
            DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 5]) for name in both_names]),
            0,
        ),
        *(
            (
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name) for name in both_names],
                    include_topic_authorized_operations=version >= 8,
                    include_cluster_authorized_operations=8 <= version <= 10,
                ),
                version,
            )
            for version in (0, 1, 8, 13)
        ),
        (MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 0),
        *((MetadataRequest(topics=None if version else []), version) for version in (0, 12)),
        (by_id, 12),
        (DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=name) for name in both_names]), 0),
        (DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=topic)]), 0),
        (DescribeTopicPartitionsRequest(topics=[]), 0),
        (
            described.DescribeConfigsRequest(
                resources=[
                    described.DescribeConfigsResource(
                        **resource(ResourceType.TOPIC, name), configuration_keys=["retention.ms"]
                    )
                    for name in both_names
                ]
            ),
            4,
        ),
        (
            altered_configs.IncrementalAlterConfigsRequest(
                resources=[
                    altered_configs.AlterConfigsResource(
                        **resource(ResourceType.TOPIC, name),
                        configs=[altered_configs.AlterableConfig(name="retention.ms", value="-1")],
                    )
                    for name in both_names
                ],
                validate_only=True,
            ),
            1,
        ),
        (
            AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        **resource(ResourceType.TOPIC, name),
                        configs=[AlterableConfig(name="retention.ms", value="-1")],
                    )
                    for name in both_names
                ],
                validate_only=True,
            ),
            2,
        ),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=3, assignments=None) for name in both_names],
                timeout_ms=5000,
                validate_only=True,
            ),
            3,
        ),
    ]


@pytest.mark.parametrize("name", TOPIC_RULES)
def test_acls_of_a_topic_decide_as_in_kafka(guarded: NodePair, name: str) -> None:
    topic, open_topic = guarded.new_topic(), guarded.new_topic()
    with apply_rules(guarded, *TOPIC_RULES[name](topic)):
        for request, version in topic_requests(topic, open_topic):
            guarded.expect_same(request, version, messages=Messages.LOOSELY)


def test_an_unauthorized_produce_without_acks_closes_the_connection(guarded: NodePair) -> None:
    topic, open_topic = guarded.new_topic(), guarded.new_topic()
    with apply_rules(guarded, Rule(AclResourceType.TOPIC, topic, Operation.READ)):
        for version in (3, 12):
            request = produce(version, (topic, 0, batch()), (open_topic, 0, batch()), acks=0)
            assert guarded.send_unanswered(request, version) == ("closed", "closed")
        guarded.expect_same_soon(fetch(12, Part(open_topic)), 12)


def test_creating_topics_needs_the_right_to_create(guarded: NodePair) -> None:
    names = ("mine-1", "mine-2", "theirs-1", "free-1")
    acls = [
        Rule(AclResourceType.TOPIC, "mine-", Operation.CREATE, pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, "mine-9", Operation.DESCRIBE),
        Rule(AclResourceType.TOPIC, "mine-2", Operation.DESCRIBE_CONFIGS),
        Rule(AclResourceType.TOPIC, "theirs-", Operation.ALL, principal=SOMEBODY, pattern=PREFIXED),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
    ]
    requested = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    requested += [CreatableTopic(name="theirs-2", num_partitions=1, replication_factor=1)] * 2
    with apply_rules(guarded, *acls):
        for version in (2, 4, 5, 7):
            request = CreateTopicsRequest(topics=requested, timeout_ms=5000, validate_only=True)
            guarded.expect_same(request, version, messages=Messages.LOOSELY)
        guarded.expect_same(CreateTopicsRequest(topics=requested, timeout_ms=5000), 7, messages=Messages.LOOSELY)
        for name in ("mine-9", "theirs-9"):
            # A metadata request for a missing topic creates it, if the client may create it.
            metadata_request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            codes = [answer.topics[0].error_code for answer in guarded.ask(metadata_request, 9)]
            assert codes == ([3, 3] if name == "mine-9" else [29, 29])


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.READ, Operation.CREATE])
def test_deleting_topics_needs_the_right_to_delete(guarded: NodePair, operation: Operation) -> None:
    topics = [guarded.new_topic() for _ in range(3)]

    def by_id(side: Any) -> DeleteTopicsRequest:
        states = [DeleteTopicState(name=None, topic_id=topic_id_of(side, topic)) for topic in topics[1:2]]
        states += [DeleteTopicState(name=topic) for topic in topics[2:]]
        return DeleteTopicsRequest(topics=states, timeout_ms=5000)

    acls = [
        *(Rule(AclResourceType.TOPIC, topic, operation) for topic in topics),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
    ]
    with apply_rules(guarded, *acls):
        names = [topics[0], "nowhere"]
        guarded.expect_same(DeleteTopicsRequest(topic_names=names, timeout_ms=5000), 5, messages=Messages.LOOSELY)
        guarded.expect_same(by_id, 6, messages=Messages.LOOSELY)


def group_requests(group: str, topic: str) -> list[tuple[RequestSource, int]]:
    """Return requests that need rights on the group."""
    commit = OffsetCommitRequestTopic(
        name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    return [
        (FindCoordinatorRequest(key=group, key_type=0), 3),
        (FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4),
        (JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer"), 5),
        (SyncGroupRequest(group_id=group, member_id="m"), 3),
        (HeartbeatRequest(group_id=group, member_id="m"), 3),
        (LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="m")]), 3),
        (OffsetCommitRequest(group_id=group, topics=[commit]), 7),
        (OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]), 7),
        (OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]), 1),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
                    )
                ]
            ),
            8,
        ),
        (DescribeGroupsRequest(groups=[group], include_authorized_operations=True), 5),
        (DeleteGroupsRequest(groups_names=[group]), 2),
        (
            OffsetDeleteRequest(
                group_id=group,
                topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition()])],
            ),
            0,
        ),
    ]


def test_acls_of_a_group_decide_as_in_kafka(guarded: NodePair) -> None:
    topic = guarded.new_topic()
    with apply_rules(guarded, Rule(AclResourceType.GROUP, "closed", Operation.ALL, principal=SOMEBODY)):
        for request, version in group_requests("closed", topic):
            guarded.expect_same(request, version, messages=Messages.LOOSELY)


def test_acls_of_transactional_ids_decide_as_in_kafka(guarded: NodePair) -> None:
    topic = guarded.new_topic()
    data = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with apply_rules(guarded, Rule(AclResourceType.TRANSACTIONAL_ID, "closed", Operation.ALL, principal=SOMEBODY)):
        for version in (3, 12, 13):
            guarded.expect_same(produce(version, (topic, 0, data), transactional_id="closed"), version)
        for version in (0, 4):
            guarded.expect_same(InitProducerIdRequest(transactional_id="closed", transaction_timeout_ms=1000), version)
        guarded.expect_same(FindCoordinatorRequest(key="closed", key_type=1), 3, messages=Messages.LOOSELY)
        guarded.expect_same(
            FindCoordinatorRequest(coordinator_keys=["closed"], key_type=1), 4, messages=Messages.LOOSELY
        )


IDEMPOTENCE: dict[str, tuple[list[Rule], bool]] = {
    "no rules for topics": ([], True),
    "all topics denied": ([Rule(AclResourceType.TOPIC, "*", Operation.WRITE, DENY)], False),
    "one topic allowed": (
        [Rule(AclResourceType.TOPIC, "*", Operation.READ), Rule(AclResourceType.TOPIC, "one", Operation.WRITE)],
        True,
    ),
    "one topic allowed and denied": (
        [
            Rule(AclResourceType.TOPIC, "*", Operation.READ),
            Rule(AclResourceType.TOPIC, "one", Operation.WRITE),
            Rule(AclResourceType.TOPIC, "on", Operation.ALL, DENY, pattern=PREFIXED),
        ],
        False,
    ),
    "a prefix allowed, a longer one denied": (
        [
            Rule(AclResourceType.TOPIC, "*", Operation.READ),
            Rule(AclResourceType.TOPIC, "on", Operation.WRITE, pattern=PREFIXED),
            Rule(AclResourceType.TOPIC, "one", Operation.WRITE, DENY, pattern=PREFIXED),
        ],
        True,
    ),
}


@pytest.mark.parametrize("name", IDEMPOTENCE)
def test_the_right_to_write_any_topic_allows_idempotent_writes(guarded: NodePair, name: str) -> None:
    acls, is_allowed = IDEMPOTENCE[name]
    with apply_rules(guarded, *acls, *keep_control()):
        deadline = time.monotonic() + 20
        while True:
            answers = guarded.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            codes = [answer.error_code for answer in answers]
            if LOADING not in codes:
                break
            assert time.monotonic() < deadline  # Kafka needs a moment for its first producer ids
        assert codes == ([0, 0] if is_allowed else [31, 31])


def keep_control() -> list[Rule]:
    """Return ACLs with which the nodes keep working and this client can remove ACLs."""
    return [
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
        Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER),
    ]


def cluster_requests() -> list[tuple[RequestSource, int]]:
    broker = resource(ResourceType.BROKER, "1")
    return [
        *((DescribeClusterRequest(include_cluster_authorized_operations=True), version) for version in (0, 1)),
        (MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8),
        (DescribeLogDirsRequest(topics=[]), 4),
        (DescribeClientQuotasRequest(), 1),
        (DescribeUserScramCredentialsRequest(), 0),
        (ListPartitionReassignmentsRequest(topics=[]), 0),
        (AlterPartitionReassignmentsRequest(), 0),
        (ElectLeadersRequest(topic_partitions=[]), 2),
        (AlterClientQuotasRequest(), 1),
        (UpdateFeaturesRequest(validate_only=True), 1),
        (UnregisterBrokerRequest(broker_id=99), 0),
        (ListConfigResourcesRequest(), 1),
        (
            AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
            ),
            2,
        ),
        (
            described.DescribeConfigsRequest(
                resources=[described.DescribeConfigsResource(**broker, configuration_keys=["num.io.threads"])]
            ),
            4,
        ),
        (
            altered_configs.IncrementalAlterConfigsRequest(
                resources=[
                    altered_configs.AlterConfigsResource(
                        **broker, configs=[altered_configs.AlterableConfig(name="log.retention.ms", value="99")]
                    )
                ],
                validate_only=True,
            ),
            1,
        ),
        (DescribeQuorumRequest(), 2),
    ]


@pytest.mark.parametrize(
    "more",
    [(), (Operation.DESCRIBE_CONFIGS,), (Operation.ALTER_CONFIGS,), (Operation.CREATE, Operation.IDEMPOTENT_WRITE)],
    ids=str,
)
def test_acls_of_the_cluster_decide_as_in_kafka(guarded: NodePair, more: tuple[Operation, ...]) -> None:
    with apply_rules(
        guarded, *keep_control(), *(Rule(AclResourceType.CLUSTER, CLUSTER_NAME, operation) for operation in more)
    ):
        for request, version in cluster_requests():
            guarded.expect_same(request, version, ignoring=VARYING_FIELDS)


VARYING_FIELDS = (
    "usable_bytes",
    "total_bytes",
    "log_dir",
    "topics[].partitions[].partition_size",
    "partition_size",
    "offset_lag",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "replica_directory_id",
    "high_watermark",
    "log_end_offset",
    "leader_epoch",
    "topics",
)


def test_describing_acls_needs_the_right_to_describe_the_cluster(guarded: NodePair) -> None:
    """The same holds at a broker and a controller, and for changes without the right to alter the cluster."""
    denied = Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, DENY)
    with apply_rules(guarded, *keep_control()):
        guarded.expect_same(CreateAclsRequest(creations=[acl_creation(denied)]), 3)
        deadline = time.monotonic() + 20
        while [answer.error_code for answer in guarded.ask(describe_acls_request(), 3)] != [31, 31]:
            assert time.monotonic() < deadline
        for listener in ("PLAINTEXT", "CONTROLLER"):
            guarded.expect_same(describe_acls_request(), 3, messages=Messages.LOOSELY, listener=listener)
        guarded.expect_same(DeleteAclsRequest(filters=[acl_filter(denied)]), 3)
        wait_for_rules(guarded, len(keep_control()))


def test_a_controller_requires_the_same_rights_as_a_broker(guarded: NodePair) -> None:
    """The right to alter the cluster is not the right to alter its settings, at either listener."""
    with apply_rules(guarded, *keep_control()):
        others = Rule(AclResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER_CONFIGS, principal=SOMEBODY)
        with apply_rules(guarded, others):
            for request in (AlterClientQuotasRequest(), UpdateFeaturesRequest(validate_only=True)):
                for listener in ("PLAINTEXT", "CONTROLLER"):
                    guarded.expect_same(request, 1, listener=listener)


def test_acls_are_described_by_filter(guarded: NodePair) -> None:
    acls = [
        Rule(AclResourceType.TOPIC, "described", Operation.READ),
        Rule(AclResourceType.TOPIC, "tol", Operation.WRITE, DENY, SOMEBODY, "192.0.2.7", PREFIXED),
        Rule(AclResourceType.TOPIC, "*", Operation.DESCRIBE),
        Rule(AclResourceType.GROUP, "described", Operation.READ),
        Rule(AclResourceType.TRANSACTIONAL_ID, "described", Operation.WRITE),
    ]
    with apply_rules(guarded, *acls):
        for fields in (
            {},
            {"resource_type_filter": AclResourceType.TOPIC},
            {"resource_name_filter": "described"},
            {"resource_name_filter": "described", "pattern_type_filter": MATCH},
            {"resource_name_filter": "described", "pattern_type_filter": PREFIXED},
            {"pattern_type_filter": LITERAL},
            {"principal_filter": SOMEBODY},
            {"host_filter": "192.0.2.7"},
            {"operation": Operation.WRITE},
            {"permission_type": DENY},
            {"resource_type_filter": AclResourceType.USER},
        ):
            for version in (1, 2, 3):
                guarded.expect_same(describe_acls_request(**fields), version)


def test_invalid_acls_are_refused(guarded: NodePair) -> None:
    bad = [
        Rule(AclResourceType.CLUSTER, "another", Operation.ALTER),
        Rule(AclResourceType.TOPIC, "", Operation.READ),
        Rule(AclResourceType.TOPIC, "fine", Operation.READ),
        Rule(AclResourceType.TOPIC, "fine", Operation.READ, principal="nocolon"),
    ]
    for rule in bad[:2]:
        guarded.expect_same(CreateAclsRequest(creations=[acl_creation(rule)]), 3, messages=Messages.LOOSELY)
    with apply_rules(guarded, bad[2]):
        # Creating the same ACL again adds no ACL.
        guarded.expect_same(CreateAclsRequest(creations=[acl_creation(bad[2])]), 3)
        guarded.expect_same(describe_acls_request(), 3)


def test_acls_are_deleted_by_filter(guarded: NodePair) -> None:
    acls = [
        Rule(AclResourceType.TOPIC, "gone-1", Operation.READ),
        Rule(AclResourceType.TOPIC, "gone-1", Operation.WRITE),
        Rule(AclResourceType.GROUP, "gone-1", Operation.READ),
    ]
    before = count_rules(guarded)[0]
    guarded.expect_same(CreateAclsRequest(creations=[acl_creation(rule) for rule in acls]), 2)
    wait_for_rules(guarded, before + 3)
    filters = [
        DeleteAclsFilter(
            resource_type_filter=AclResourceType.TOPIC,
            resource_name_filter="gone-1",
            pattern_type_filter=MATCH,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
        acl_filter(acls[2]),
        acl_filter(Rule(AclResourceType.TOPIC, "never", Operation.READ)),
    ]
    guarded.expect_same(DeleteAclsRequest(filters=filters), 3)
    wait_for_rules(guarded, before)
