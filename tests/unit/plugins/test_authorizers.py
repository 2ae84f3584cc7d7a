"""Nodes whose authorizer is a plug-in: processes as people run them."""

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path

from ottla.broker.authorization.actions import SUPPORTED_OPERATIONS, ResourceType
from ottla.protocol.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.rpc.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.harness import Side, ask_alone, decode_response, frame_of
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import NodeFailed, OttlaNode
from tests.unit.plugins.test_nodes import children, wait_until_gone

ROOT = Path(__file__).parents[3]
RIGHTS = {"authorizer.class.name": "tests.unit.plugins.rules:Rights"}
TOPICS = ("open", "open-2", "closed", "slow", "broken", "strange", "quota", "exits", "stops")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")


@contextmanager
def running(folder: Path, settings: Mapping[str, str] = RIGHTS) -> Iterator[OttlaNode]:
    node = OttlaNode(folder, {**SETTINGS, **settings})
    node.format()
    with node.running():
        yield node


def everything(node: OttlaNode) -> str:
    return node.log_path.read_text()


def fetched(node: OttlaNode, *topics: str) -> dict[str, list[int]]:
    parts = [FetchPartition(partition=number, partition_max_bytes=1000) for number in range(2)]
    named = [FetchTopic(topic=topic, partitions=parts) for topic in topics]
    answer = ask_alone(node, FetchRequest(max_bytes=1000, topics=named), 12)
    return {topic.topic: [part.error_code for part in topic.partitions] for topic in answer.responses}


def codes(node: OttlaNode, *names: str) -> dict[str | None, int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return {topic.name: topic.error_code for topic in ask_alone(node, request, 9).topics}


def create_topics(node: OttlaNode) -> None:
    for name in TOPICS:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        ask_alone(node, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)


@pytest.fixture(scope="module")
def module_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")
        with running(tmp_path_factory.mktemp("rights")) as node:
            create_topics(node)
            yield node


@pytest.fixture
def node(module_node: OttlaNode) -> OttlaNode:
    return module_node


def test_a_request_is_authorized_with_one_call(node: OttlaNode) -> None:
    before = len(everything(node))
    assert fetched(node, "open", "closed", "open-2") == {
        "open": [0, 0],
        "closed": [TopicAuthorizationFailed.code] * 2,
        "open-2": [0, 0],
    }
    asked = [line for line in everything(node)[before:].splitlines() if " Fetch v12" in line]
    (line,) = asked
    assert line == (
        "asked by User:ANONYMOUS differential Fetch v12: READ:TOPIC:open:2 READ:TOPIC:closed:2 READ:TOPIC:open-2:2"
    )
    assert codes(node, "open", "closed") == {"open": 0, "closed": TopicAuthorizationFailed.code}


def test_metadata_shows_operations_and_omits_unauthorized_topics(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        for name in ("open", "closed", "open-2"):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            ask_alone(node, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        wanted = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        answer = ask_alone(node, wanted, 9)
        every_topic_operation = sum(1 << operation for operation in SUPPORTED_OPERATIONS[ResourceType.TOPIC])
        assert {topic.name: topic.topic_authorized_operations for topic in answer.topics} == {
            "open": every_topic_operation,
            "open-2": every_topic_operation,
        }
        described = ask_alone(node, DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        every_cluster_operation = sum(1 << operation for operation in SUPPORTED_OPERATIONS[ResourceType.CLUSTER])
        assert described.cluster_authorized_operations == every_cluster_operation


def test_a_failing_authorizer_denies_requests_and_is_logged_once(node: OttlaNode) -> None:
    assert fetched(node, "open") == {"open": [0, 0]}  # creating the topics may have ended with a failure
    before = len(everything(node))
    for name in ("broken", "strange", "exits", "stops", "broken"):
        assert fetched(node, "open", name) == {topic: [UnknownServerError.code] * 2 for topic in ("open", name)}
        assert codes(node, "open", name) == dict.fromkeys(("open", name), UnknownServerError.code)
    words = everything(node)[before:]
    (line,) = [line for line in words.splitlines() if " ERROR " in line]
    assert (
        "the authorizer tests.unit.plugins.rules:Rights failed: ValueError('the rights are broken'); requests" in line
    )
    assert fetched(node, "open") == {"open": [0, 0]}
    assert "the authorizer tests.unit.plugins.rules:Rights answers again" in everything(node)[before:]


def test_an_api_error_of_the_authorizer_reaches_the_client(node: OttlaNode) -> None:
    assert fetched(node, "quota-1") == {"quota-1": [ThrottlingQuotaExceeded.code] * 2}


def test_a_slow_authorizer_delays_only_its_connection(node: OttlaNode) -> None:
    slow = Side("slow", node.ports, node.log_tail)
    try:
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name="slow")])
        slow.send(frame_of(metadata, 9, 0, "c"), "PLAINTEXT")
        for number in (1, 2):
            slow.send(frame_of(ApiVersionsRequest(), 0, number, "c"), "PLAINTEXT")
        began = time.monotonic()
        assert ask_alone(node, ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - began < 1, "an ApiVersions of another client does not wait"
        order = []
        for key, version in ((ApiKey.METADATA, 9), (ApiKey.API_VERSIONS, 0), (ApiKey.API_VERSIONS, 0)):
            frame = slow.receive("PLAINTEXT", 15)
            assert isinstance(frame, bytes), frame
            order.append(decode_response(key, version, frame)[0])
        assert order == [0, 1, 2]
    finally:
        slow.close_all()


def acls_of(node: OttlaNode, **fields: Any) -> list[tuple[str, str]]:
    request = DescribeAclsRequest(
        **{
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
            **fields,
        }
    )
    answer = ask_alone(node, request, 3)
    assert not answer.error_code, answer
    return [(resource.resource_name, acl.principal) for resource in answer.resources for acl in resource.acls]


def test_acls_are_stored_by_the_authorizer(node: OttlaNode) -> None:
    creations = [
        AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal=f"User:{name}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in ("mine", "refused", "yours")
    ]
    answer = ask_alone(node, CreateAclsRequest(creations=creations), 3)
    assert [(each.error_code, each.error_message) for each in answer.results] == [
        (0, ""),
        (InvalidRequest.code, "no rules for refused"),
        (0, ""),
    ]
    assert acls_of(node) == [("mine", "User:mine"), ("yours", "User:yours")]
    assert acls_of(node, resource_name_filter="yours") == [("yours", "User:yours")]
    wanted = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="mine",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    (removed,) = ask_alone(node, DeleteAclsRequest(filters=[wanted]), 3).filter_results
    assert [acl.resource_name for acl in removed.matching_acls] == ["mine"]
    assert acls_of(node) == [("yours", "User:yours")]


def test_idempotent_writes_are_authorized_by_resource_type(node: OttlaNode) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    assert ask_alone(node, request, 4).error_code in (0, 14)
    assert ClusterAuthorizationFailed.code == 31


def test_a_node_waits_until_its_authorizer_is_ready_and_closes_it(tmp_path: Path) -> None:
    with running(tmp_path, {**RIGHTS, "rights.slow.start.s": "1.5"}) as node:
        words = everything(node)
        assert "Rights started: node 1, ['CONTROLLER', 'PLAINTEXT'], early ['CONTROLLER']" in words
        assert words.index("Rights ready") < words.index("is ready at")
        node.stop()
        assert "Rights closed" in everything(node)


def test_a_missing_authorizer_fails_the_start_with_one_line(tmp_path: Path) -> None:
    for settings, reason in (
        ({"authorizer.class.name": "nowhere:Rights"}, r"No module named 'nowhere'; add its folder to PYTHONPATH"),
        ({"authorizer.class.name": "tests.unit.plugins.rules:Uniform"}, r"it is not a class with a method authorize"),
        (
            {**RIGHTS, "rights.broken.start": "1"},
            r"tests.unit.plugins.rules:Rights: it cannot decide on requests of listener PLAINTEXT: no rights today",
        ),
    ):
        folder = tmp_path / re.sub(r"\W", "", reason)
        folder.mkdir()
        node = OttlaNode(folder, {**SETTINGS, **settings})
        node.format()
        with pytest.raises(NodeFailed, match="Ottla exited with 1"):
            node.start()
        (line,) = [line for line in everything(node).splitlines() if line.startswith("ottla serve: ")]
        assert re.search(reason, line)


OF_JAVA = {"authorizer.class.name": "AccessRules", "rules.greeting": "the rules say"}


def test_requests_are_denied_while_the_authorizers_jvm_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSPATH", class_path())
    with running(tmp_path, OF_JAVA) as node:
        create_topics(node)
        assert fetched(node, "open", "closed") == {"open": [0, 0], "closed": [TopicAuthorizationFailed.code] * 2}
        (jvm,) = children(node.pid)
        os.kill(jvm, signal.SIGKILL)
        wait_until_gone(jvm)
        answers = [fetched(node, "open")]
        deadline = time.monotonic() + 30
        while answers[-1] != {"open": [0, 0]}:
            assert time.monotonic() < deadline, node.log_tail()
            time.sleep(0.1)
            answers.append(fetched(node, "open"))
        assert answers[0] == {"open": [UnknownServerError.code] * 2}
        assert fetched(node, "closed") == {"closed": [TopicAuthorizationFailed.code] * 2}
        words = everything(node)
        assert words.count("the authorizer AccessRules failed: its JVM") == 1, words
        assert "the authorizer AccessRules answers again" in words
        assert words.count("AccessRules started: node 1") == 4, "two listeners, twice"
        node.stop()
        assert "AccessRules closed" in everything(node)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TopicRules", "the class does not implement org.apache.kafka.server.authorizer.Authorizer"),
        ("com.example.Nowhere", "the class is not on the class path: the environment variable CLASSPATH must name"),
        ("MetadataRules", "it takes its ACLs from the cluster's metadata, which Ottla gives to"),
    ],
)
def test_an_unusable_java_class_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setenv("CLASSPATH", class_path())
    node = OttlaNode(tmp_path, {**SETTINGS, "authorizer.class.name": name})
    node.format()
    with pytest.raises(NodeFailed, match="Ottla exited with 1"):
        node.start()
    (line,) = everything(node).splitlines()
    assert f"authorizer.class.name={name}: {reason}" in line
