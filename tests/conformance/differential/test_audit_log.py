"""The audit log: for the same request, both nodes log the same decisions with the same text and levels.

Kafka's handlers call the authorizer in the order of a hash table, so the lines of a request are compared as a set.
Kafka's controller audits a request that a broker forwards; an Ottla node that is both audits it once.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.authorization.actions import CLUSTER_NAME, Operation
from ottla.broker.authorization.actions import ResourceType as AclResourceType
from ottla.metadata.image.values import ResourceType
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair, RequestSource, Side, ask_alone, running_node_pair
from tests.conformance.differential.requests import Part, fetch
from tests.conformance.differential.test_authorization import (
    DENY,
    PREFIXED,
    SETTINGS,
    SOMEBODY,
    Rule,
    apply_rules,
    cluster_requests,
    group_requests,
    keep_control,
    topic_requests,
)
from tests.support.ottla_node import OttlaNode

AUDIT = "kafka.authorizer.logger"
TRACE = f"-Dottla.log.level.{AUDIT}=TRACE"
_line = re.compile(rf"(\w+) {re.escape(AUDIT)}: (.* for request = (\w+) with .*)").search


def set_level(node: OttlaNode, level: str) -> None:
    """Set the level of an Ottla node's audit log, as an operator does."""
    change = incremental.AlterableConfig(name=AUDIT, value=level)
    resource = incremental.AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configs=[change]
    )
    (answer,) = ask_alone(node, incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert not answer.error_code, answer


@pytest.fixture(scope="module")
def audited_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with running_node_pair(tmp_path_factory.mktemp("audit"), SETTINGS, jvm_options=[TRACE]) as (both, node):
        set_level(node, "TRACE")
        yield both, node


@pytest.fixture
def audited(audited_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    both, node = audited_nodes
    log_start = node.log_path.stat().st_size
    yield both
    both.reconnect()
    errors = node.logged_errors(log_start)
    assert not errors, errors


def read_audit(side: Side, since: int, api: str) -> Counter[tuple[str, str]]:
    """Return the lines about an API, with their levels, that a node has logged since a position."""
    assert side.log_path is not None
    with side.log_path.open("rb") as log:
        log.seek(since)
        lines = log.read().decode(errors="replace").splitlines()
    parsed = (_line(line) for line in lines)
    return Counter((line[1], line[2]) for line in parsed if line is not None and line[3] == api)


def differences(both: NodePair, request: RequestSource, version: int) -> list[str]:
    """Return the lines about a request that only one of the nodes logs."""
    side_request = request(both.ottla) if callable(request) else request
    api = schema_of(type(side_request)).name.removesuffix("Request")
    starts = [side.log_path.stat().st_size for side in both.sides if side.log_path is not None]
    both.ask(request, version)
    deadline = time.monotonic() + 1
    while True:
        kafka, ottla = (read_audit(side, since, api) for side, since in zip(both.sides, starts, strict=True))
        if kafka == ottla or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    name = f"{api} v{version}"
    return [
        *(f"{name} only Kafka, {count} times: {' '.join(line)}" for line, count in (kafka - ottla).items()),
        *(f"{name} only Ottla, {count} times: {' '.join(line)}" for line, count in (ottla - kafka).items()),
    ]


def expect_same_audit(both: NodePair, *requests: tuple[RequestSource, int]) -> None:
    """Fail with all lines that differ between the audit logs."""
    differing = [line for request, version in requests for line in differences(both, request, version)]
    assert not differing, "\n  ".join(["the audit logs differ:", *differing])


TOPIC_CASES: dict[str, Callable[[str], list[Rule]]] = {
    "no rules": lambda topic: [],
    "only read": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.READ)],
    "somebody else": lambda topic: [Rule(AclResourceType.TOPIC, topic, Operation.ALL, principal=SOMEBODY)],
    "several that allow": lambda topic: [
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
        Rule(AclResourceType.TOPIC, topic, Operation.READ, host="127.0.0.1"),
        Rule(AclResourceType.TOPIC, topic, Operation.READ, principal="User:*"),
        Rule(AclResourceType.TOPIC, topic[:-2], Operation.READ, pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, "*", Operation.DESCRIBE),
    ],
    "several that deny": lambda topic: [
        Rule(AclResourceType.TOPIC, topic, Operation.ALL),
        Rule(AclResourceType.TOPIC, topic, Operation.WRITE, DENY),
        Rule(AclResourceType.TOPIC, topic[:-2], Operation.WRITE, DENY, pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, topic[:-1], Operation.ALL, DENY, principal="User:*", pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, "*", Operation.READ, DENY),
    ],
}


@pytest.mark.parametrize("name", TOPIC_CASES)
def test_requests_about_topics_are_audited_the_same_way(audited: NodePair, name: str) -> None:
    topic, open_topic = audited.new_topic(), audited.new_topic()
    with apply_rules(audited, *TOPIC_CASES[name](topic)):
        expect_same_audit(audited, *topic_requests(topic, open_topic))


def test_each_fetch_of_a_session_audits_all_its_partitions(audited: NodePair) -> None:
    topic, closed = audited.new_topic(partitions=3), audited.new_topic(partitions=2)

    def request(side: Any) -> Any:
        epoch = side.memory["epoch"]
        parts = [Part(topic, 0), Part(topic, 1), Part(closed, 0), Part(topic, 2), Part(closed, 1)]
        requested = parts if not epoch else []
        return fetch(12, *requested, session=side.memory["session"], session_epoch=epoch)(side)

    with apply_rules(audited, Rule(AclResourceType.TOPIC, closed, Operation.READ, DENY)):
        for side in audited.sides:
            side.memory |= {"epoch": 0, "session": 0}
        for epoch in range(3):
            for side in audited.sides:
                side.memory["epoch"] = epoch
            starts = [side.log_path.stat().st_size for side in audited.sides if side.log_path is not None]
            for side, answer in zip(audited.sides, audited.ask(request, 12), strict=True):
                side.memory["session"] = answer.session_id
            kafka, ottla = (read_audit(side, since, "Fetch") for side, since in zip(audited.sides, starts, strict=True))
            assert kafka == ottla
            assert sum("resourceRefCount = 3 " in text for _, text in ottla) == 1


def test_requests_about_groups_are_audited_the_same_way(audited: NodePair) -> None:
    wait_for_group_coordinators(audited)
    topic = audited.new_topic()
    for acls in ([], [Rule(AclResourceType.GROUP, "closed", Operation.ALL, principal=SOMEBODY)]):
        with apply_rules(audited, *acls):
            expect_same_audit(audited, *group_requests("closed", topic), (ListGroupsRequest(), 4))


@pytest.mark.parametrize("more", [(), (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)], ids=str)
def test_requests_about_the_cluster_are_audited_the_same_way(audited: NodePair, more: tuple[Operation, ...]) -> None:
    with apply_rules(
        audited, *keep_control(), *(Rule(AclResourceType.CLUSTER, CLUSTER_NAME, operation) for operation in more)
    ):
        expect_same_audit(audited, *cluster_requests())


def test_creations_of_topics_and_producers_are_audited_the_same_way(audited: NodePair) -> None:
    acls = [
        Rule(AclResourceType.TOPIC, "mine-", Operation.CREATE, pattern=PREFIXED),
        Rule(AclResourceType.TOPIC, "mine-2", Operation.DESCRIBE_CONFIGS),
        Rule(AclResourceType.TOPIC, "theirs-", Operation.ALL, principal=SOMEBODY, pattern=PREFIXED),
        *keep_control(),
    ]
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("mine-1", "mine-2", "theirs-1", "theirs-2", "theirs-2")
    ]
    metadata_request = MetadataRequest(topics=[MetadataRequestTopic(name="theirs-9")], allow_auto_topic_creation=True)
    with apply_rules(audited, *acls):
        expect_same_audit(
            audited,
            (CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=True), 7),
            (metadata_request, 9),
            (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4),
            (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4),
        )


def test_only_denials_are_logged_at_info(audited_nodes: tuple[NodePair, OttlaNode]) -> None:
    """INFO is Kafka's default level; it can be changed while the node runs."""
    both, node = audited_nodes
    topic, open_topic = both.new_topic(), both.new_topic()
    with apply_rules(both, Rule(AclResourceType.TOPIC, topic, Operation.WRITE)):
        set_level(node, "INFO")
        try:
            since = node.log_path.stat().st_size
            both.ottla.ask(fetch(12, Part(topic), Part(topic, 9), Part(open_topic))(both.ottla), 12)
            (line,) = read_audit(both.ottla, since, "Fetch").elements()
            level, text = line
            assert level == "INFO"
            assert text == (
                "Principal = User:ANONYMOUS is Denied operation = READ from host = 127.0.0.1 on resource ="
                f" Topic:LITERAL:{topic} for request = Fetch with resourceRefCount = 2 based on rule DefaultDeny"
            )
            set_level(node, "WARN")
            since = node.log_path.stat().st_size
            both.ottla.ask(fetch(12, Part(topic))(both.ottla), 12)
            assert not read_audit(both.ottla, since, "Fetch")
        finally:
            set_level(node, "TRACE")
