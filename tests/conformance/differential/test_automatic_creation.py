"""As in Kafka, automatically created topics are charged to the client that names them, or to the broker."""

import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.harness import NodePair, running_node_pair
from tests.conformance.differential.test_quotas import (
    Entity,
    ask_on_new_connections,
    check_equal_throttling,
    set_quotas,
    throttle_times,
)

SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": "8", "offsets.topic.num.partitions": "20"}


@pytest.fixture(scope="module")
def creating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodePair]:
    with running_node_pair(tmp_path_factory.mktemp("creation"), SETTINGS) as (both, node):
        yield both
        assert not node.logged_errors()


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def find_existing(both: NodePair, names: list[str]) -> list[set[str]]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    return [{topic.name for topic in answer.topics if not topic.error_code} for answer in both.ask(request, 9)]


def check_quota_exhausted(both: NodePair, client: str) -> None:
    answers = ask_on_new_connections(both, creation(f"refused-{client}"), 6, client)
    check_equal_throttling(answers)
    assert [answer.topics[0].error_code for answer in answers] == [89, 89]


def test_automatically_created_topics_are_charged_to_the_client(creating: NodePair) -> None:
    quota: Entity = {"client-id": "curious"}
    names = [f"curious-{number}" for number in range(30)]
    metadata_request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    set_quotas(creating, (quota, "controller_mutation_rate", 1.0))
    try:
        answers = ask_on_new_connections(creating, metadata_request, 9, "curious")
        assert throttle_times(answers) == [0, 0]
        assert [{topic.error_code for topic in answer.topics} for answer in answers] == [{3}, {3}]
        time.sleep(1)
        counts = [len(existing) for existing in find_existing(creating, names)]
        assert counts[0] == counts[1], counts
        assert 0 < counts[0] < 5
        check_quota_exhausted(creating, "curious")
        answers = ask_on_new_connections(creating, creation("granted"), 6, "somebody else")
        assert [answer.topics[0].error_code for answer in answers] == [0, 0]
    finally:
        set_quotas(creating, (quota, "controller_mutation_rate", None))


def test_a_coordinators_topic_is_charged_to_the_broker(creating: NodePair) -> None:
    """All clients have the same user as the broker, but other client ids."""
    user: Entity = {"user": "ANONYMOUS"}
    set_quotas(creating, (user, "controller_mutation_rate", 1.0))
    try:
        with creating.other_connections() as other:
            deadline = time.monotonic() + 20
            request = FindCoordinatorRequest(key="group", key_type=0)
            while any(answer.error_code for answer in other.ask(request, 1)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        check_quota_exhausted(creating, "searching")
    finally:
        set_quotas(creating, (user, "controller_mutation_rate", None))
