"""A controller's listener answers brokers, other controllers and direct clients as Kafka's."""

import struct
from typing import Any

import pytest

from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.rpc.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.rpc.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.rpc.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.rpc.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest
from ottla.protocol.messages.rpc.fetch import FetchRequest
from ottla.protocol.messages.rpc.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.rpc.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.messages.rpc.vote import VoteRequest
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.harness import NodePair, decode_response, frame_of

CONTROLLER = "CONTROLLER"
VARYING = ["leader_epoch", "high_watermark", "log_end_offset", "*_timestamp", "replica_directory_id"]
PRINCIPAL = struct.pack(">h", 0) + encode(DefaultPrincipal(type="User", name="ANONYMOUS"), 0)
LOCALHOST = b"\x7f\x00\x00\x01"
LIST_REASSIGNMENTS = ListPartitionReassignmentsRequest(topics=None)


def expect_same(both: NodePair, request: Any, version: int, **options: Any) -> Any:
    return both.expect_same(request, version, listener=CONTROLLER, **options).ottla


@pytest.mark.parametrize("version", range(5))
def test_api_versions_of_a_controller_are_the_same(both: NodePair, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    expect_same(both, request, version)


@pytest.mark.parametrize("version", range(3))
def test_authentication_on_a_plaintext_controller_fails_the_same_way(both: NodePair, version: int) -> None:
    expect_same(both, SaslAuthenticateRequest(auth_bytes=b"\0admin\0secret"), version)
    expect_same(both, SaslHandshakeRequest(mechanism="PLAIN"), min(version, 1))


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("kind", [1, 2, 7])
def test_the_cluster_is_described_the_same_way(both: NodePair, version: int, kind: int) -> None:
    for include in (True, False):
        request = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=include)
        expect_same(both, request, version)


def test_the_quorum_is_described_the_same_way(both: NodePair) -> None:
    for version in range(3):
        topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        expect_same(both, DescribeQuorumRequest(topics=[topic]), version, ignoring=VARYING)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (VoteRequest(cluster_id="other"), 2),
        (BeginQuorumEpochRequest(cluster_id="other"), 1),
        (EndQuorumEpochRequest(cluster_id="other"), 1),
        (FetchRequest(cluster_id="other", max_wait_ms=0), 17),
        (FetchSnapshotRequest(cluster_id="other"), 1),
        (UpdateRaftVoterRequest(cluster_id="other", voter_id=3), 0),
        (BrokerHeartbeatRequest(broker_id=77, broker_epoch=1, current_metadata_offset=1), 1),
        (BrokerRegistrationRequest(broker_id=77, cluster_id="other", incarnation_id=b"1" * 16), 4),
        (AllocateProducerIdsRequest(broker_id=77, broker_epoch=1), 0),
        (AssignReplicasToDirsRequest(broker_id=77, broker_epoch=1), 0),
    ],
    ids=lambda request: type(request).__name__,
)
def test_requests_of_foreign_nodes_are_refused(both: NodePair, request_: Any, version: int) -> None:
    expect_same(both, request_, version, ignoring=["leader_epoch"])


def test_clients_get_answers_from_the_controller_itself(both: NodePair) -> None:
    expect_same(
        both, CreateTopicsRequest(topics=[CreatableTopic(name="direct", num_partitions=1, replication_factor=1)]), 7
    )
    expect_same(both, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="direct", partitions=[0])]), 2)
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms", "node.id"])
        for kind, name in ((2, "direct"), (2, "missing"), (4, "1"), (4, "2"), (32, "g"), (16, "m"))
    ]
    expect_same(both, DescribeConfigsRequest(resources=resources), 4)
    expect_same(both, DeleteTopicsRequest(topics=[DeleteTopicState(name="direct")], timeout_ms=5000), 6)
    expect_same(
        both, DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3
    )
    expect_same(both, CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    expect_same(both, DescribeDelegationTokenRequest(owners=None), 3)
    expect_same(both, MetadataRequest(topics=[]), 4)


def test_clients_alter_settings_at_the_controller_itself(both: NodePair) -> None:
    topic = both.new_topic()

    def resource(kind: int, name: str, setting: str, value: str) -> incremental.AlterConfigsResource:
        change = incremental.AlterableConfig(name=setting, config_operation=0, value=value)
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])

    resources = [
        resource(2, topic, "retention.ms", "321"),
        resource(2, "missing", "retention.ms", "321"),
        resource(4, "2", "num.io.threads", "4"),
        resource(5, "x", "a", "b"),
        resource(8, "1", "no.such.logger", "INFO"),
        resource(8, "2", "root", "INFO"),
    ]
    expect_same(both, incremental.IncrementalAlterConfigsRequest(resources=resources), 1)
    twice = [resource(2, topic, "retention.ms", value) for value in "12"]
    expect_same(both, incremental.IncrementalAlterConfigsRequest(resources=twice), 1)
    replaced = [
        legacy.AlterConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((2, topic), (5, "x"), (8, "1"))
    ]
    expect_same(both, AlterConfigsRequest(resources=replaced), 2)


# -- requests within requests --


def envelope_of(request: Any, version: int, *, principal: bytes | None = PRINCIPAL, address: bytes = LOCALHOST) -> Any:
    data = frame_of(request, version, 99, "inner")
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


def test_forwarded_requests_get_the_same_answers(both: NodePair) -> None:
    topic = CreatableTopic(name="enclosed", num_partitions=1, replication_factor=1)
    for request, version in (
        (CreateTopicsRequest(topics=[topic]), 7),
        (LIST_REASSIGNMENTS, 0),
        (DescribeQuorumRequest(topics=[]), 2),
        (DeleteTopicsRequest(topic_names=["enclosed", "missing"], timeout_ms=5000), 4),
        (DeleteTopicsRequest(topic_names=["enclosed"], timeout_ms=5000), 1),
    ):
        key = schema_of(type(request)).key
        inner = []
        for answer in both.ask(envelope_of(request, version), 0, listener=CONTROLLER):
            assert answer.error_code == 0
            correlation_id, response = decode_response(key, version, answer.response_data)
            assert correlation_id == 99
            inner.append(response)
        differences = both.differences(type(both.ask(ApiVersionsRequest(), 0))(*inner), version, ignoring=["*topic_id"])
        assert not differences, f"{BY_KEY[key].name}: {differences}"


def test_the_controller_decides_forwarded_delegation_token_requests(both: NodePair) -> None:
    for answer in both.ask(envelope_of(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3), 0, listener=CONTROLLER):
        _, response = decode_response(ApiKey.CREATE_DELEGATION_TOKEN, 3, answer.response_data)
        assert response.error_code == 61


@pytest.mark.parametrize(
    "envelope",
    [
        envelope_of(DescribeConfigsRequest(), 4),
        envelope_of(LIST_REASSIGNMENTS, 0, principal=b"\x00\x09xx"),
        envelope_of(LIST_REASSIGNMENTS, 0, principal=None),
        envelope_of(LIST_REASSIGNMENTS, 0, principal=b""),
        envelope_of(LIST_REASSIGNMENTS, 0, address=b"\x7f\x00"),
        envelope_of(LIST_REASSIGNMENTS, 0, address=b""),
        *(
            EnvelopeRequest(request_data=data, request_principal=PRINCIPAL, client_host_address=LOCALHOST)
            for data in (
                struct.pack(">hhih", 46, 9, 99, -1) + b"\0",
                struct.pack(">hhih", 999, 0, 99, -1) + b"\0",
                struct.pack(">hhih", 19, 7, 99, -1) + b"\0\xff\xff",
                b"\0",
                b"",
            )
        ),
    ],
    ids=str,
)
def test_invalid_envelopes_are_refused(both: NodePair, envelope: EnvelopeRequest) -> None:
    answer = expect_same(both, envelope, 0)
    assert answer.error_code
    assert answer.response_data is None
