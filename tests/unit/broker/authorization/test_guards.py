"""Guards remove denied items from a request, and add their errors to the response.

The differential tests compare Kafka's answers. These tests need groups and transactions in certain states.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.authorization.actions import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.authorization.standard import StandardAuthorizer
from ottla.broker.handlers.registry import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS
from ottla.broker.requests.call import Call, Client
from ottla.broker.requests.dispatch import Route
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.protocol.messages.apis import BY_KEY, ApiKey, Listeners
from ottla.protocol.messages.rpc import add_partitions_to_txn as adding
from ottla.protocol.messages.rpc import consumer_group_describe as describing
from ottla.protocol.messages.rpc import describe_transactions as transactions
from ottla.protocol.messages.rpc import list_groups, list_transactions
from ottla.protocol.messages.rpc import offset_fetch as fetching
from ottla.protocol.messages.rpc import txn_offset_commit as committing
from ottla.protocol.messages.rpc.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.wire.declare import schema_of
from tests.support.broker import Exchange

ME = "User:me"
TOPIC, GROUP, TRANSACTION, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)


def allowing(*allowed: tuple[ResourceType, str, Operation]) -> StandardAuthorizer:
    """Return an authorizer that allows these actions and no others."""
    authorizer = StandardAuthorizer()
    for number, (kind, name, operation) in enumerate(allowed):
        authorizer.add(number.to_bytes(16), Acl(kind, name, 3, ME, "*", operation, 3))
    return authorizer


class Unanswered:
    """The answering side of a call, which guards never use."""

    def finish(self, call: Call[Any], response: Any, error: Exception | None = None, /) -> None:
        raise AssertionError(f"a guard answered with {response}")

    def finish_failed(self, call: Call[Any], error: Exception, /) -> None:
        raise AssertionError("a guard answered") from error


def guarded(request: Any, version: int, authorizer: StandardAuthorizer, response: Any = None) -> Any:
    """Guard a request, which changes in place; return the amended response."""
    endpoint = BROKER_ENDPOINTS[ApiKey(schema_of(type(request)).key)]
    client = Client("10.0.0.1", "PLAINTEXT")
    client.principal = ME
    node: Any = SimpleNamespace(authorizer=authorizer, image=Image())
    exchange = Exchange(b"", request, version)
    call: Call[Any] = Call(node, Route(endpoint, version), version, 1, "c", client, exchange, Unanswered())
    assert endpoint.guard is not None
    endpoint.guard(call, request)
    return response if call.amend is None else call.amend(response)


def refused(request: Any, version: int, authorizer: StandardAuthorizer) -> type[ApiError]:
    with pytest.raises(ApiError) as raised:
        guarded(request, version, authorizer)
    return type(raised.value)


@pytest.mark.parametrize(
    "key",
    sorted(key for key in CONTROLLER_ENDPOINTS if BY_KEY[key].listeners is Listeners.CONTROLLER or key is ApiKey.FETCH),
    ids=lambda key: BY_KEY[key].name,
)
def test_requests_between_nodes_need_cluster_action(key: ApiKey) -> None:
    def ask(authorizer: StandardAuthorizer) -> None:
        client = Client("10.0.0.1", "CONTROLLER")
        client.principal = ME
        endpoint = CONTROLLER_ENDPOINTS[key]
        route = Route(endpoint, endpoint.api.latest_stable)
        node: Any = SimpleNamespace(authorizer=authorizer, image=Image())
        request = endpoint.api.request()
        exchange = Exchange(b"", request, route.version)
        call: Call[Any] = Call(node, route, route.version, 1, "c", client, exchange, Unanswered())
        assert endpoint.guard is not None
        endpoint.guard(call, request)

    with pytest.raises(ClusterAuthorizationFailed):
        ask(allowing((CLUSTER, CLUSTER_NAME, Operation.ALTER)))
    ask(allowing((CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)))


class TestTransactions:
    def test_partitions_are_added_all_or_none(self) -> None:
        def request() -> adding.AddPartitionsToTxnRequest:
            return adding.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_topics=[
                    adding.AddPartitionsToTxnTopic(name="good", partitions=[0]),
                    adding.AddPartitionsToTxnTopic(name="bad", partitions=[1]),
                ],
            )

        assert refused(request(), 3, allowing()) is TransactionalIdAuthorizationFailed
        write = (TRANSACTION, "t", Operation.WRITE)
        answer = guarded(request(), 3, allowing(write, (TOPIC, "good", Operation.WRITE)))
        codes = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        assert codes == {"good": OperationNotAttempted.code, "bad": TopicAuthorizationFailed.code}
        both = allowing(write, (TOPIC, "good", Operation.WRITE), (TOPIC, "bad", Operation.WRITE))
        assert guarded(request(), 3, both, "as it was") == "as it was"

    def test_brokers_add_partitions_with_cluster_action(self) -> None:
        assert refused(adding.AddPartitionsToTxnRequest(), 4, allowing()) is ClusterAuthorizationFailed
        guarded(adding.AddPartitionsToTxnRequest(), 4, allowing((CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)))

    def test_adding_offsets_needs_read_on_the_group(self) -> None:
        request = AddOffsetsToTxnRequest(transactional_id="t", group_id="g")
        write = (TRANSACTION, "t", Operation.WRITE)
        assert refused(request, 4, allowing()) is TransactionalIdAuthorizationFailed
        assert refused(request, 4, allowing(write)) is GroupAuthorizationFailed
        guarded(request, 4, allowing(write, (GROUP, "g", Operation.READ)))

    def test_ending_a_transaction_needs_write_on_its_id(self) -> None:
        assert refused(EndTxnRequest(transactional_id="t"), 5, allowing()) is TransactionalIdAuthorizationFailed
        guarded(EndTxnRequest(transactional_id="t"), 5, allowing((TRANSACTION, "t", Operation.WRITE)))

    def test_two_phase_commit_needs_its_own_operation(self) -> None:
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000, enable2_pc=True)
        write = (TRANSACTION, "t", Operation.WRITE)
        assert refused(request, 6, allowing()) is TransactionalIdAuthorizationFailed
        assert refused(request, 6, allowing(write)) is TransactionalIdAuthorizationFailed
        guarded(request, 6, allowing(write, (TRANSACTION, "t", Operation.TWO_PHASE_COMMIT)))
        request.enable2_pc = False
        guarded(request, 6, allowing(write))

    @pytest.mark.parametrize("operation", [Operation.ALTER, Operation.CLUSTER_ACTION])
    def test_writing_markers_needs_alter_or_cluster_action(self, operation: Operation) -> None:
        assert refused(WriteTxnMarkersRequest(), 1, allowing()) is ClusterAuthorizationFailed
        guarded(WriteTxnMarkersRequest(), 1, allowing((CLUSTER, CLUSTER_NAME, operation)))

    def test_committing_offsets_needs_read_on_each_topic(self) -> None:
        request = committing.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            topics=[
                committing.TxnOffsetCommitRequestTopic(
                    name=name, partitions=[committing.TxnOffsetCommitRequestPartition(partition_index=4)]
                )
                for name in ("good", "bad")
            ],
        )
        rights = [(TRANSACTION, "t", Operation.WRITE), (GROUP, "g", Operation.READ)]
        assert refused(request, 3, allowing(rights[1])) is TransactionalIdAuthorizationFailed
        assert refused(request, 3, allowing(rights[0])) is GroupAuthorizationFailed
        answer = guarded(
            request, 3, allowing(*rights, (TOPIC, "good", Operation.READ)), committing.TxnOffsetCommitResponse()
        )
        assert [topic.name for topic in request.topics] == ["good"]
        (bad,) = answer.topics
        assert (bad.name, bad.partitions[0].partition_index, bad.partitions[0].error_code) == ("bad", 4, 29)

    def test_only_describable_transactions_and_topics_are_described(self) -> None:
        request = transactions.DescribeTransactionsRequest(transactional_ids=["mine", "theirs"])
        state = transactions.TransactionState(
            transactional_id="mine", topics=[transactions.TopicData(topic=name) for name in ("good", "bad")]
        )
        answer = guarded(
            request,
            0,
            allowing((TRANSACTION, "mine", Operation.DESCRIBE), (TOPIC, "good", Operation.READ)),
            transactions.DescribeTransactionsResponse(transaction_states=[state]),
        )
        assert request.transactional_ids == ["mine"]
        assert [topic.topic for topic in state.topics] == ["good"]
        assert [(state.transactional_id, state.error_code) for state in answer.transaction_states] == [
            ("mine", 0),
            ("theirs", 53),
        ]

    def test_only_describable_transactions_are_listed(self) -> None:
        listed = [list_transactions.TransactionState(transactional_id=name) for name in ("mine", "theirs")]
        answer = guarded(
            list_transactions.ListTransactionsRequest(),
            1,
            allowing((TRANSACTION, "mine", Operation.DESCRIBE)),
            list_transactions.ListTransactionsResponse(transaction_states=listed),
        )
        assert [state.transactional_id for state in answer.transaction_states] == ["mine"]


class TestGroups:
    def test_a_member_needs_describe_on_its_subscribed_topics(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["good", "bad"])
        read = (GROUP, "g", Operation.READ)
        assert refused(request, 1, allowing()) is GroupAuthorizationFailed
        assert refused(request, 1, allowing(read, (TOPIC, "good", Operation.DESCRIBE))) is TopicAuthorizationFailed
        guarded(request, 1, allowing(read, (TOPIC, "good", Operation.DESCRIBE), (TOPIC, "bad", Operation.READ)))
        guarded(ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=None), 1, allowing(read))

    def test_a_group_with_hidden_topics_is_not_described(self) -> None:
        def group(name: str, topic: str) -> describing.DescribedGroup:
            parts = describing.Assignment(topic_partitions=[describing.TopicPartitions(topic_name=topic)])
            return describing.DescribedGroup(group_id=name, members=[describing.Member(assignment=parts)])

        request = describing.ConsumerGroupDescribeRequest(group_ids=["open", "half", "closed"])
        answer = guarded(
            request,
            1,
            allowing(
                (GROUP, "open", Operation.DESCRIBE),
                (GROUP, "half", Operation.DESCRIBE),
                (TOPIC, "good", Operation.DESCRIBE),
            ),
            describing.ConsumerGroupDescribeResponse(groups=[group("open", "good"), group("half", "bad")]),
        )
        assert request.group_ids == ["open", "half"]
        described = [(group.group_id, group.error_code, len(group.members)) for group in answer.groups]
        assert described == [("open", 0, 1), ("half", 29, 0), ("closed", 30, 0)]

    def test_describe_on_the_cluster_shows_all_groups(self) -> None:
        def ask(authorizer: StandardAuthorizer) -> list[str]:
            listed = [list_groups.ListedGroup(group_id=name) for name in ("mine", "theirs")]
            answer = guarded(
                list_groups.ListGroupsRequest(), 5, authorizer, list_groups.ListGroupsResponse(groups=listed)
            )
            return [group.group_id for group in answer.groups]

        assert ask(allowing((CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))) == ["mine", "theirs"]
        assert ask(allowing((GROUP, "mine", Operation.READ))) == ["mine"]

    @pytest.mark.parametrize("version", [2, 7])
    def test_a_fetch_of_all_offsets_of_a_group_shows_describable_topics(self, version: int) -> None:
        topics = [fetching.OffsetFetchResponseTopic(name=name) for name in ("good", "bad")]
        answer = guarded(
            fetching.OffsetFetchRequest(group_id="g", topics=None),
            version,
            allowing((GROUP, "g", Operation.DESCRIBE), (TOPIC, "good", Operation.DESCRIBE)),
            fetching.OffsetFetchResponse(topics=topics),
        )
        assert [topic.name for topic in answer.topics] == ["good"]

    def test_a_fetch_of_all_offsets_of_many_groups_shows_describable_topics(self) -> None:
        def response_group(group: str) -> fetching.OffsetFetchResponseGroup:
            topics = [fetching.OffsetFetchResponseTopics(name=name) for name in ("good", "bad")]
            return fetching.OffsetFetchResponseGroup(group_id=group, topics=topics)

        asked = [fetching.OffsetFetchRequestTopics(name="bad", partition_indexes=[3])]
        request = fetching.OffsetFetchRequest(
            groups=[
                fetching.OffsetFetchRequestGroup(group_id="all", topics=None),
                fetching.OffsetFetchRequestGroup(group_id="some", topics=asked),
                fetching.OffsetFetchRequestGroup(group_id="none", topics=None),
            ]
        )
        some = fetching.OffsetFetchResponseGroup(group_id="some")
        answer = guarded(
            request,
            9,
            allowing(
                (GROUP, "all", Operation.DESCRIBE),
                (GROUP, "some", Operation.DESCRIBE),
                (TOPIC, "good", Operation.DESCRIBE),
            ),
            fetching.OffsetFetchResponse(groups=[response_group("all"), some]),
        )
        assert [(group.group_id, group.topics) for group in request.groups] == [("all", None), ("some", [])]
        by_group = {group.group_id: group for group in answer.groups}
        assert [topic.name for topic in by_group["all"].topics] == ["good"]
        (hidden,) = by_group["some"].topics
        assert (hidden.name, hidden.partitions[0].committed_offset, hidden.partitions[0].error_code) == ("bad", -1, 29)
        assert by_group["none"].error_code == 30


UNGUARDED = {
    ApiKey.FETCH: "its handler asks, because sessions outlast requests",
    ApiKey.SASL_HANDSHAKE: "precedes authentication",
    ApiKey.API_VERSIONS: "precedes authentication",
    ApiKey.SASL_AUTHENTICATE: "precedes authentication",
    ApiKey.CREATE_DELEGATION_TOKEN: "the handler decides about each token",
    ApiKey.RENEW_DELEGATION_TOKEN: "the handler decides about each token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "the handler decides about each token",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "the handler decides about each token",
    ApiKey.DESCRIBE_CLUSTER: "returns only what the client may know",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "about clients' own metrics",
    ApiKey.PUSH_TELEMETRY: "about clients' own metrics",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "its handler asks, because it answers in pages",
}
"""APIs of brokers without a guard, and why."""


def test_every_api_that_is_served_is_guarded() -> None:
    assert {key for key, endpoint in BROKER_ENDPOINTS.items() if endpoint.guard is None} == UNGUARDED.keys()
    assert {key for key, endpoint in CONTROLLER_ENDPOINTS.items() if endpoint.guard is None} == {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }


def test_a_broker_serves_every_api_of_its_listeners() -> None:
    assert BROKER_ENDPOINTS.keys() == {api.key for api in BY_KEY.values() if api.listeners & Listeners.BROKER}
