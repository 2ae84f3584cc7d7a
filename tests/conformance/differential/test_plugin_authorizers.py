"""An authorizer that is a class of Java: given to both nodes, it is asked the same questions and decides alike.

The class prints each action that it is asked about. They are the same on both nodes for each request, with their
reference counts and flags; Ottla asks about more of them at once. What Kafka's broker hands on is asked about by its
controller, on the controller's listener.
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
from tests.conformance.differential.groups import coordinators_ready
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, NodePair, RequestSource, Side, both_running
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import Part, batch, fetch
from tests.conformance.differential.share_groups import ShareGroupMembers
from tests.conformance.differential.test_authorization import (
    VARYING,
    Rule,
    about_cluster,
    about_group,
    about_topic,
    creation,
    everything,
    removal,
)
from tests.support.ottla_node import OttlaNode

SETTINGS = {
    "authorizer.class.name": "AccessRules",
    "rules.greeting": "the rules say",
    "auto.create.topics.enable": "true",
}
FORWARDED = frozenset(api.name for api in BY_KEY.values() if api.forwardable)
_asked = re.compile(r"^asked by (type|.*?): (\w+) (.*)$").match


@pytest.fixture(scope="module")
def ruled_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSPATH", class_path())
        with both_running(tmp_path_factory.mktemp("rules"), SETTINGS) as nodes:
            yield nodes


@pytest.fixture
def ruled(ruled_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, _ = ruled_nodes
    yield both
    both.reconnect()


IN_TIME = ("error_code", "producer_id", "producer_epoch")
"""What the first request for producer ids is answered depends on how fast the node is."""


def calls_of(side: Side, since: int, api: str) -> Counter[str]:
    """The actions that the authorizer was asked about for an API since then, with the context."""
    assert side.log_path is not None
    with side.log_path.open("rb") as log:
        log.seek(since)
        lines = log.read().decode(errors="replace").splitlines()
    calls: Counter[str] = Counter()
    for line in lines:
        found = _asked(line)
        if found is None or found[2] != api:
            continue
        context = found[1].replace(" CONTROLLER ", " PLAINTEXT ") if api in FORWARDED else found[1]
        version, _, actions = found[3].partition(" ")
        calls.update(f"{context}: {version} {action}" for action in actions.strip("[]").split("; ") if action)
    return calls


def differences(both: NodePair, request: RequestSource, version: int, **how: Any) -> list[str]:
    """What differs in the calls of the authorizer for a request, and in the answers to it."""
    made = request(both.ottla) if callable(request) else request
    api = schema_of(type(made)).name.removesuffix("Request")
    before = [side.log_path.stat().st_size for side in both.sides if side.log_path is not None]
    answers = both.ask(request, version)
    found = both.differences(answers, version, **how)
    deadline = time.monotonic() + 1
    while True:
        kafka, ottla = (calls_of(side, since, api) for side, since in zip(both.sides, before, strict=True))
        if kafka == ottla or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    name = f"{api} v{version}"
    return [
        *(f"{name}: {line}" for line in found),
        *(f"{name} only Kafka, {count} times: {line}" for line, count in (kafka - ottla).items()),
        *(f"{name} only Ottla, {count} times: {line}" for line, count in (ottla - kafka).items()),
    ]


def same_calls(both: NodePair, *requests: tuple[RequestSource, int], **how: Any) -> None:
    found = [line for request, version in requests for line in differences(both, request, version, **how)]
    assert not found, "\n  ".join(["the authorizers are asked differently:", *found])


@pytest.mark.parametrize("name", ["open", "closed"])
def test_requests_about_topics(ruled: NodePair, name: str) -> None:
    topic, open_topic = f"{name}-topic", ruled.new_topic()
    create_closed(ruled, topic)
    same_calls(ruled, *about_topic(topic, open_topic))


def test_requests_about_groups(ruled: NodePair) -> None:
    coordinators_ready(ruled)
    topic = ruled.new_topic()
    for name in ("free", "closed-group"):
        same_calls(ruled, *about_group(name, topic), (ListGroupsRequest(), 4), ignoring=["member_id"])


def test_requests_about_the_cluster(ruled: NodePair) -> None:
    same_calls(ruled, *about_cluster(), ignoring=VARYING)


def test_producers_are_asked_about_by_type(ruled: NodePair) -> None:
    given = InitProducerIdRequest(transactional_id="closed-id", transaction_timeout_ms=1000)
    same_calls(ruled, (given, 4), (given, 0), (InitProducerIdRequest(transactional_id=None), 4), ignoring=IN_TIME)


def test_what_it_raises_fails_the_request(ruled: NodePair) -> None:
    for name, code in (("broken", UnknownServerError.code), ("policy", PolicyViolation.code)):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        same_calls(ruled, (request, 9), (fetch(12, Part(name)), 12))
        answers = ruled.ask(request, 9)
        assert [answer.topics[0].error_code for answer in answers] == [code, code]


def test_acls_are_what_it_keeps(ruled: NodePair) -> None:
    given = [Rule(2, "mine", 3), Rule(2, "kept", 4), Rule(3, "refused", 3), Rule(2, "mine-too", 3, pattern=4)]
    ruled.expect_same(CreateAclsRequest(creations=[creation(rule) for rule in given]), 3, messages=Messages.EXACTLY)
    ruled.expect_same(everything(), 3)
    ruled.expect_same(everything(resource_name_filter="mine-too", pattern_type_filter=2), 3)
    removed = DeleteAclsRequest(filters=[removal(rule) for rule in (*given, Rule(2, "nowhere", 3))])
    ruled.expect_same(removed, 3, messages=Messages.EXACTLY)
    ruled.expect_same(everything(), 3)


def test_it_is_started_with_the_listeners_and_told_which_are_early(ruled_nodes: tuple[NodePair, OttlaNode]) -> None:
    both, _ = ruled_nodes
    started = []
    for side in both.sides:
        assert side.log_path is not None
        words = side.log_path.read_text(errors="replace")
        started.append(sorted(set(re.findall(r"AccessRules started: .*", words))))
    assert started[0] == started[1]
    assert len(started[0]) == 2


def test_a_group_that_subscribes_by_expression_gets_the_topics_that_its_member_may_see(ruled: NodePair) -> None:
    coordinators_ready(ruled)
    ruled.create_topic("regex-open")
    create_closed(ruled, "closed-regex-open")
    configure(ruled, "by-regex", consumer_assignment_interval_ms="0")
    for side in ruled.sides:
        assigned = assigned_by_expression(side, "by-regex", ".*regex-open")
        assert assigned == {side.id_of("regex-open"): [0]}, side


def assigned_by_expression(side: Side, group: str, regex: str) -> dict[bytes, list[int]]:
    """What the only member of a group gets of the topics that an expression matches."""
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


def test_a_share_group_reads_and_acknowledges_what_it_may(ruled: NodePair) -> None:
    coordinators_ready(ruled)
    topic = new_topic(ruled)
    create_closed(ruled, "closed-shared")
    configure(ruled, "sharing", share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    members = ShareGroupMembers(ruled, "sharing")
    members.join("a", topic)
    ruled.produce(topic, batch(3))
    acquired = members.fetch("a", topic, epoch=0)
    assert not acquired.ottla.error_code
    found = members.fetch("a", topic, "closed-shared", acks=((0, 0, [1]),))
    codes = {part.error_code for answer in found for each in answer.responses for part in each.partitions}
    assert TopicAuthorizationFailed.code in codes
    members.acknowledge("a", "closed-shared", (0, 0, [1]))
    members.acknowledge("a", topic, (1, 2, [1]))


def create_closed(both: NodePair, name: str) -> None:
    """A topic that nobody may read: it is made by those who may create on the cluster."""
    made = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for side, answer in zip(both.sides, both.ask(CreateTopicsRequest(topics=[made]), 7), strict=True):
        side.learn(name, answer.topics[0].topic_id)
