"""Request quotas throttle the same requests as Kafka's, on both kinds of listeners.

The quotas are so small that every counted request exceeds them: its connection is muted for a whole window.
"""

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.authorization.actions import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.rpc.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest
from ottla.protocol.messages.rpc.fetch import FetchRequest, ReplicaState
from ottla.protocol.messages.rpc.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.rpc.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.rpc.vote import VoteRequest
from ottla.protocol.messages.rpc.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.wire.codec import encode
from tests.conformance.differential.harness import (
    Answers,
    NodePair,
    Side,
    decode_response,
    frame_of,
    produce_request,
    running_node_pair,
)
from tests.conformance.differential.requests import Part, batch, fetch
from tests.conformance.differential.test_authorization import (
    DENY,
    ME,
    Rule,
    acl_creation,
    acl_filter,
    apply_rules,
    wait_for_rules,
)
from tests.conformance.differential.test_quotas import (
    Entity,
    ask_on_new_connections,
    check_equal_throttling,
    set_quotas,
    throttle_times,
)
from tests.support.ottla_node import OttlaNode

BROKER, CONTROLLER = "PLAINTEXT", "CONTROLLER"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SLOW: Entity = {"client-id": "differential"}
"""The client id of `Side.ask`."""
INNER: Entity = {"client-id": "inner"}
WINDOW_MS = 1000
LIST_REASSIGNMENTS = ListPartitionReassignmentsRequest(topics=None)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with running_node_pair(tmp_path_factory.mktemp("throttled"), SETTINGS) as nodes:
        yield nodes


@pytest.fixture
def strict(nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, node = nodes
    log_start = node.log_path.stat().st_size
    yield both
    both.reconnect()
    errors = node.logged_errors(log_start)
    assert not errors, errors


@pytest.fixture
def slow(strict: NodePair) -> Iterator[NodePair]:
    """Return both nodes with a quota of almost no time for the client ids of the harness and of inner requests."""
    slowed = [(SLOW, "request_percentage", 0.0001), (INNER, "request_percentage", 0.0001)]
    set_quotas(strict, *slowed)
    yield strict
    set_quotas(strict, *((entity, key, None) for entity, key, _ in slowed))


def envelope_of(
    request: Any, version: int, *, user: str = "ANONYMOUS", principal: bytes | None = None
) -> EnvelopeRequest:
    default_principal = struct.pack(">h", 0) + encode(DefaultPrincipal(type="User", name=user), 0)
    return EnvelopeRequest(
        request_data=frame_of(request, version, 99, "inner"),
        request_principal=default_principal if principal is None else principal,
        client_host_address=b"\x7f\x00\x00\x01",
    )


def is_muted_after(side: Side, request: Any, version: int, listener: str) -> bool:
    """Return whether the connection is muted after the answer to a request."""
    side.ask(request, version, listener=listener)
    start = time.monotonic()
    side.ask(ApiVersionsRequest(), 0, listener=listener)
    return time.monotonic() - start > 0.5 * WINDOW_MS / 1000


def are_muted_after(both: NodePair, request: Any, version: int, listener: str) -> list[bool]:
    with both.other_connections() as other:
        return [is_muted_after(side, request, version, listener) for side in other.sides]


ANY_CLIENT: list[tuple[str, Any, int, bool]] = [
    (BROKER, MetadataRequest(topics=[]), 9, True),
    (BROKER, FetchRequest(replica_id=-1, max_wait_ms=0), 12, True),
    (BROKER, FetchRequest(max_wait_ms=0), 17, True),
    (BROKER, FetchRequest(replica_id=1, max_wait_ms=0), 12, False),
    (BROKER, FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=1), max_wait_ms=0), 17, False),
    (BROKER, WriteTxnMarkersRequest(markers=[]), 1, False),
    (BROKER, ReadShareGroupStateRequest(group_id="g", topics=[]), 0, True),
    (BROKER, DescribeQuorumRequest(topics=[]), 2, True),
    (CONTROLLER, DescribeClusterRequest(endpoint_type=2), 2, True),
    (CONTROLLER, LIST_REASSIGNMENTS, 0, True),
    (CONTROLLER, BrokerHeartbeatRequest(broker_id=77, broker_epoch=1, current_metadata_offset=1), 1, True),
    (CONTROLLER, UpdateFeaturesRequest(feature_updates=[]), 1, True),
    (CONTROLLER, AllocateProducerIdsRequest(broker_id=77, broker_epoch=1), 0, False),
    (CONTROLLER, AlterPartitionRequest(broker_id=77, broker_epoch=1), 3, False),
    (CONTROLLER, FetchRequest(cluster_id="other", max_wait_ms=0), 17, False),
    (CONTROLLER, FetchSnapshotRequest(cluster_id="other"), 1, False),
    (CONTROLLER, VoteRequest(cluster_id="other"), 2, False),
    (CONTROLLER, BeginQuorumEpochRequest(cluster_id="other"), 1, False),
    (CONTROLLER, DescribeQuorumRequest(topics=[]), 2, False),
    (CONTROLLER, AddRaftVoterRequest(cluster_id="other"), 0, False),
    (CONTROLLER, envelope_of(LIST_REASSIGNMENTS, 0), 0, False),
    (CONTROLLER, envelope_of(LIST_REASSIGNMENTS, 0, principal=b"\0\x09xx"), 0, False),
]


@pytest.mark.parametrize(
    ("listener", "request_", "version", "is_muted"),
    ANY_CLIENT,
    ids=[f"{type(request).__name__}-v{version}-{number}" for number, (_, request, version, _) in enumerate(ANY_CLIENT)],
)
def test_requests_count_unless_exempt(
    slow: NodePair, listener: str, request_: Any, version: int, is_muted: bool
) -> None:
    assert are_muted_after(slow, request_, version, listener) == [is_muted] * 2


def slow_down(both: NodePair, client: str, **more: float) -> None:
    """Give a client a quota of almost no time."""
    entity: Entity = {"client-id": client}
    for key, value in {"request_percentage": 0.0001, **more}.items():
        set_quotas(both, (entity, key, value))


def release(both: NodePair, client: str, *keys: str) -> None:
    for key in keys:
        set_quotas(both, ({"client-id": client}, key, None))


def test_a_throttled_consumer_gets_no_records_and_is_not_charged(strict: NodePair) -> None:
    topic = strict.new_topic()
    strict.produce(topic, batch(value=bytes(12_000)))
    # Two such answers exceed the windows, and would be throttled for longer than a window.
    slow_down(strict, "eater", consumer_byte_rate=2000.0)
    try:
        for _ in range(4):
            answers = ask_on_new_connections(strict, fetch(12, Part(topic)), 12, "eater")
            assert throttle_times(answers) == [WINDOW_MS] * 2
            assert [(answer.error_code, answer.responses) for answer in answers] == [(0, [])] * 2
        release(strict, "eater", "request_percentage")
        answers = ask_on_new_connections(strict, fetch(12, Part(topic)), 12, "eater")
        assert throttle_times(answers) == [0, 0]
        assert [len(bytes(answer.responses[0].partitions[0].records)) > 12_000 for answer in answers] == [True, True]
    finally:
        release(strict, "eater", "request_percentage", "consumer_byte_rate")


def test_the_longer_throttle_time_applies(strict: NodePair) -> None:
    topic = strict.new_topic()
    strict.produce(topic, batch(value=bytes(60_000)))
    slow_down(strict, "hungry", consumer_byte_rate=2000.0)
    try:
        request = fetch(12, Part(topic), max_bytes=1)  # the first batch is always sent whole
        answers = ask_on_new_connections(strict, request, 12, "hungry")
        check_equal_throttling(answers)
        assert min(throttle_times(answers)) > 10 * WINDOW_MS
        assert [answer.responses for answer in answers] == [[], []]
    finally:
        release(strict, "hungry", "request_percentage", "consumer_byte_rate")


def test_a_fetch_does_not_wait_for_more_bytes_than_its_quota_allows(strict: NodePair) -> None:
    topic = strict.new_topic()
    for _ in range(3):
        strict.produce(topic, batch(value=bytes(90_000)))
    set_quotas(strict, ({"client-id": "greedy"}, "consumer_byte_rate", 20_000.0))
    try:
        with strict.other_connections() as other:
            for side in other.sides:
                request = fetch(12, Part(topic), min_bytes=250_000, max_wait_ms=8_000)(side)
                start = time.monotonic()
                side.send(frame_of(request, 12, 6, "greedy"), BROKER)
                side.require_answer(side.receive(BROKER, 15.0))
                assert time.monotonic() - start < 4, side
    finally:
        release(strict, "greedy", "consumer_byte_rate")


def test_a_throttled_fetch_does_not_change_its_session(strict: NodePair) -> None:
    topic = strict.new_topic()
    with strict.other_connections() as other:

        def again(*parts: Part, **fields: Any) -> Answers:
            other.reconnect()  # the earlier connections are muted
            return other.ask(fetch(12, *parts, **fields), 12, client_id="incremental")

        opened = again(Part(topic), session_epoch=0)
        for side, answer in zip(other.sides, opened, strict=True):
            assert answer.session_id, side
            side.memory["incremental"] = answer.session_id
        strict.produce(topic, batch(), batch())
        slow_down(strict, "incremental")
        try:
            answers = again(session="incremental", session_epoch=1)
            assert throttle_times(answers) == [WINDOW_MS] * 2
            assert [(answer.error_code, answer.responses) for answer in answers] == [(0, [])] * 2
            assert [answer.session_id for answer in answers] == [answer.session_id for answer in opened]
            # A throttled full fetch opens no session.
            answers = again(Part(topic), session_epoch=0)
            assert [(answer.session_id, answer.responses) for answer in answers] == [(0, [])] * 2
        finally:
            release(strict, "incremental", "request_percentage")
        answers = again(session="incremental", session_epoch=2)
        kafka, ottla = (bytes(answer.responses[0].partitions[0].records) for answer in answers)
        assert len(kafka) == len(ottla) > 0


@pytest.mark.parametrize("epoch", [-1, 1, 5])
def test_a_throttled_fetch_hides_the_error_of_its_session(slow: NodePair, epoch: int) -> None:
    answers = ask_on_new_connections(
        slow, FetchRequest(session_id=987_654, session_epoch=epoch, max_wait_ms=0), 12, "differential"
    )
    assert throttle_times(answers) == [WINDOW_MS] * 2
    assert [(answer.error_code, answer.session_id, answer.responses) for answer in answers] == [(0, 0, [])] * 2


def test_a_produce_without_acks_is_not_throttled(strict: NodePair) -> None:
    topic = strict.new_topic()
    slow_down(strict, "hasty")
    try:
        with strict.other_connections() as other:
            for side in other.sides:
                side.send(frame_of(produce_request(topic, batch(), acks=0), 9, 5, "hasty"), BROKER)
                start = time.monotonic()
                side.ask(ApiVersionsRequest(), 0)
                assert time.monotonic() - start < 0.5 * WINDOW_MS / 1000, side
    finally:
        release(strict, "hasty", "request_percentage")


def test_a_forwarded_request_is_charged_to_its_client_only(slow: NodePair) -> None:
    set_quotas(slow, (SLOW, "request_percentage", None))
    with slow.other_connections() as other:
        for answer in other.ask(envelope_of(LIST_REASSIGNMENTS, 0), 0, listener=CONTROLLER):
            _, inner = decode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, answer.response_data)
            assert inner.throttle_time_ms == WINDOW_MS
    assert are_muted_after(slow, envelope_of(LIST_REASSIGNMENTS, 0), 0, CONTROLLER) == [False, False]


def test_a_refused_cluster_action_counts_even_if_forwarded(slow: NodePair) -> None:
    """The client of the envelope has no quota: the inner request mutes its connection."""
    with apply_rules(slow, Rule(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL)):
        set_quotas(slow, (SLOW, "request_percentage", None))
        for request, version in (
            (LIST_REASSIGNMENTS, 0),
            (DescribeQuorumRequest(topics=[]), 2),
            (UpdateFeaturesRequest(feature_updates=[]), 1),
        ):
            refused = envelope_of(request, version, user="nobody")
            assert are_muted_after(slow, refused, 0, CONTROLLER) == [True, True], request


def test_a_refused_request_between_nodes_counts(slow: NodePair) -> None:
    acls = (
        Rule(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL),
        Rule(ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION, DENY, ME),
    )
    with slow.other_connections() as other:
        other.expect_same(CreateAclsRequest(creations=[acl_creation(rule) for rule in acls]), 3)
        wait_for_rules(other, 2)
    try:
        for request, version in (
            (VoteRequest(cluster_id="other"), 2),
            (AlterPartitionRequest(broker_id=77, broker_epoch=1), 3),
            (envelope_of(LIST_REASSIGNMENTS, 0), 0),
        ):
            assert are_muted_after(slow, request, version, CONTROLLER) == [True, True], request
    finally:
        # The brokers may not forward now, so the request goes to the controllers.
        with slow.other_connections() as other:
            other.ask(DeleteAclsRequest(filters=[acl_filter(rule) for rule in acls]), 3, listener=CONTROLLER)
            wait_for_rules(other, 0)
