"""An authorizer written in Java gets the same questions from both nodes, and its decisions have the same effect.

The class prints each action that it is asked about. For each request both nodes ask about the same actions, with the
same reference counts and flags, but Ottla asks about more of them in a call. Kafka's controller asks about the requests
that its broker forwards, on the controller's listener.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path

from ottla.protocol.errors import PolicyViolation, TopicAuthorizationFailed, UnknownServerError
from ottla.protocol.messages.apis import BY_KEY
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.consumer_groups import configure, new_topic
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, NodePair, RequestSource, Side, running_node_pair
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, batch, fetch
from tests.conformance.differential.share_groups import ShareGroupMembers
from tests.conformance.differential.test_authorization import (
    VARYING_FIELDS,
    Rule,
    acl_creation,
    acl_filter,
    cluster_requests,
    describe_acls_request,
    group_requests,
    topic_requests,
)
from tests.support.ottla_node import OttlaNode

SETTINGS = {
    "authorizer.class.name": "AccessRules",
    "rules.greeting": "the rules say",
    "auto.create.topics.enable": "true",
}
FORWARDED = frozenset(api.name for api in BY_KEY.values() if api.forwardable)
_parse_call = re.compile(r"^asked by (type|.*?): (\w+) (.*)$").match


@pytest.fixture(scope="module")
def authorized_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSPATH", class_path())
        with running_node_pair(tmp_path_factory.mktemp("rules"), SETTINGS) as nodes:
            yield nodes


@pytest.fixture
def authorized(authorized_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, _ = authorized_nodes
    yield both
    both.reconnect()


PRODUCER_FIELDS = ("error_code", "producer_id", "producer_epoch")
"""The answer to the first request for producer ids depends on the node's speed."""


def read_calls(side: Side, since: int, api: str) -> Counter[str]:
    """Return the actions that the authorizer was asked about for an API since a position, with their context."""
    assert side.log_path is not None
    with side.log_path.open("rb") as log:
        log.seek(since)
        lines = log.read().decode(errors="replace").splitlines()
    calls: Counter[str] = Counter()
    for line in lines:
        matched = _parse_call(line)
        if matched is None or matched[2] != api:
            continue
        context = matched[1].replace(" CONTROLLER ", " PLAINTEXT ") if api in FORWARDED else matched[1]
        version, _, actions = matched[3].partition(" ")
        calls.update(f"{context}: {version} {action}" for action in actions.strip("[]").split("; ") if action)
    return calls


def differences(both: NodePair, request: RequestSource, version: int, **options: Any) -> list[str]:
    """Return the differences in the authorizer's calls for a request, and in the answers to it."""
    side_request = request(both.ottla) if callable(request) else request
    api = schema_of(type(side_request)).name.removesuffix("Request")
    starts = [side.log_path.stat().st_size for side in both.sides if side.log_path is not None]
    answers = both.ask(request, version)
    differing = both.differences(answers, version, **options)
    deadline = time.monotonic() + 1
    while True:
        kafka, ottla = (read_calls(side, since, api) for side, since in zip(both.sides, starts, strict=True))
        if kafka == ottla or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    name = f"{api} v{version}"
    return [
        *(f"{name}: {line}" for line in differing),
        *(f"{name} only Kafka, {count} times: {line}" for line, count in (kafka - ottla).items()),
        *(f"{name} only Ottla, {count} times: {line}" for line, count in (ottla - kafka).items()),
    ]


def expect_same_calls(both: NodePair, *requests: tuple[RequestSource, int], **options: Any) -> None:
    differing = [line for request, version in requests for line in differences(both, request, version, **options)]
    assert not differing, "\n  ".join(["the authorizers are called differently:", *differing])


@pytest.mark.parametrize("name", ["open", "closed"])
def test_requests_about_topics_call_the_authorizer_the_same_way(authorized: NodePair, name: str) -> None:
    topic, open_topic = f"{name}-topic", authorized.new_topic()
    create_closed(authorized, topic)
    expect_same_calls(authorized, *topic_requests(topic, open_topic))


def test_requests_about_groups_call_the_authorizer_the_same_way(authorized: NodePair) -> None:
    wait_for_group_coordinators(authorized)
    topic = authorized.new_topic()
    for name in ("free", "closed-group"):
        expect_same_calls(authorized, *group_requests(name, topic), (ListGroupsRequest(), 4), ignoring=["member_id"])


def test_requests_about_the_cluster_call_the_authorizer_the_same_way(authorized: NodePair) -> None:
    expect_same_calls(authorized, *cluster_requests(), ignoring=VARYING_FIELDS)


def test_producer_ids_call_the_authorizer_by_resource_type(authorized: NodePair) -> None:
    request = InitProducerIdRequest(transactional_id="closed-id", transaction_timeout_ms=1000)
    expect_same_calls(
        authorized,
        (request, 4),
        (request, 0),
        (InitProducerIdRequest(transactional_id=None), 4),
        ignoring=PRODUCER_FIELDS,
    )


def test_an_exception_of_the_authorizer_fails_the_request(authorized: NodePair) -> None:
    for name, code in (("broken", UnknownServerError.code), ("policy", PolicyViolation.code)):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        expect_same_calls(authorized, (request, 9), (fetch(12, Part(name)), 12))
        answers = authorized.ask(request, 9)
        assert [answer.topics[0].error_code for answer in answers] == [code, code]


def test_acl_requests_reach_the_authorizer(authorized: NodePair) -> None:
    rules = [Rule(2, "mine", 3), Rule(2, "kept", 4), Rule(3, "refused", 3), Rule(2, "mine-too", 3, pattern=4)]
    authorized.expect_same(
        CreateAclsRequest(creations=[acl_creation(rule) for rule in rules]), 3, messages=Messages.EXACTLY
    )
    authorized.expect_same(describe_acls_request(), 3)
    authorized.expect_same(describe_acls_request(resource_name_filter="mine-too", pattern_type_filter=2), 3)
    removed = DeleteAclsRequest(filters=[acl_filter(rule) for rule in (*rules, Rule(2, "nowhere", 3))])
    authorized.expect_same(removed, 3, messages=Messages.EXACTLY)
    authorized.expect_same(describe_acls_request(), 3)


def test_the_authorizer_starts_with_the_listeners(
    authorized_nodes: tuple[NodePair, OttlaNode],
) -> None:
    both, _ = authorized_nodes
    started = []
    for side in both.sides:
        assert side.log_path is not None
        log = side.log_path.read_text(errors="replace")
        started.append(sorted(set(re.findall(r"AccessRules started: .*", log))))
    assert started[0] == started[1]
    assert len(started[0]) == 2


def test_a_regular_expression_matches_only_topics_that_the_member_may_describe(authorized: NodePair) -> None:
    wait_for_group_coordinators(authorized)
    authorized.create_topic("regex-open")
    create_closed(authorized, "closed-regex-open")
    configure(authorized, "by-regex", consumer_assignment_interval_ms="0")
    for side in authorized.sides:
        assigned = assigned_by_expression(side, "by-regex", ".*regex-open")
        assert assigned == {side.id_of("regex-open"): [0]}, side


def assigned_by_expression(side: Side, group: str, regex: str) -> dict[bytes, list[int]]:
    """Return the assignment of the only member of a group, from the topics that an expression matches."""
    subscribed: dict[str, Any] = {"subscribed_topic_regex": regex, "rebalance_timeout_ms": 60_000}
    epoch, deadline = 0, time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id="a", member_epoch=epoch, topic_partitions=[], **subscribed
        )
        answer = side.ask(request, 1)
        assert not answer.error_code, answer
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}
        assert time.monotonic() < deadline, side
        epoch, subscribed = answer.member_epoch, {}
        time.sleep(0.02)


def test_a_share_group_reads_and_acknowledges_only_readable_topics(authorized: NodePair) -> None:
    wait_for_group_coordinators(authorized)
    topic = new_topic(authorized)
    create_closed(authorized, "closed-shared")
    configure(authorized, "sharing", share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    members = ShareGroupMembers(authorized, "sharing")
    members.join("a", topic)
    authorized.produce(topic, batch(3))
    acquired = members.fetch("a", topic, epoch=0)
    assert not acquired.ottla.error_code
    fetched = members.fetch("a", topic, "closed-shared", acks=((0, 0, [1]),))
    codes = {part.error_code for answer in fetched for response in answer.responses for part in response.partitions}
    assert TopicAuthorizationFailed.code in codes
    members.acknowledge("a", "closed-shared", (0, 0, [1]))
    members.acknowledge("a", topic, (1, 2, [1]))


def create_closed(both: NodePair, name: str) -> None:
    """Create a topic that no client may read; creating it needs only the right on the cluster."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for side, answer in zip(both.sides, both.ask(CreateTopicsRequest(topics=[topic]), 7), strict=True):
        side.learn(name, answer.topics[0].topic_id)
