"""Automatically created topics are charged as Kafka charges them: to the client that names them, or to the broker."""

import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.harness import NodePair, both_running
from tests.conformance.differential.test_quotas import Entity, asked, check_alike, set_quotas, throttled

SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": "8", "offsets.topic.num.partitions": "20"}


@pytest.fixture(scope="module")
def creating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodePair]:
    with both_running(tmp_path_factory.mktemp("creation"), SETTINGS) as (both, node):
        yield both
        assert not node.logged_errors()


def creatable(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def existing(both: NodePair, names: list[str]) -> list[set[str]]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    return [{topic.name for topic in each.topics if not topic.error_code} for each in both.ask(request, 9)]


def check_the_quota_is_used_up(both: NodePair, client: str) -> None:
    answers = asked(both, creatable(f"refused-{client}"), 6, client)
    check_alike(answers)
    assert [each.topics[0].error_code for each in answers] == [89, 89]


def test_topics_that_a_client_creates_by_naming_them_are_charged_to_it(creating: NodePair) -> None:
    quota: Entity = {"client-id": "curious"}
    names = [f"curious-{number}" for number in range(30)]
    asked_for = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    set_quotas(creating, (quota, "controller_mutation_rate", 1.0))
    try:
        answers = asked(creating, asked_for, 9, "curious")
        assert throttled(answers) == [0, 0]
        assert [{topic.error_code for topic in each.topics} for each in answers] == [{3}, {3}]
        time.sleep(1)
        made = [len(found) for found in existing(creating, names)]
        assert made[0] == made[1], made
        assert 0 < made[0] < 5
        check_the_quota_is_used_up(creating, "curious")
        answers = asked(creating, creatable("granted"), 6, "somebody else")
        assert [each.topics[0].error_code for each in answers] == [0, 0]
    finally:
        set_quotas(creating, (quota, "controller_mutation_rate", None))


def test_the_topic_of_a_coordinator_is_charged_to_the_broker(creating: NodePair) -> None:
    """All clients here are the same user as the broker, but have other client ids."""
    user: Entity = {"user": "ANONYMOUS"}
    set_quotas(creating, (user, "controller_mutation_rate", 1.0))
    try:
        with creating.other_connections() as other:
            deadline = time.monotonic() + 20
            request = FindCoordinatorRequest(key="group", key_type=0)
            while any(each.error_code for each in other.ask(request, 1)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        check_the_quota_is_used_up(creating, "searching")
    finally:
        set_quotas(creating, (user, "controller_mutation_rate", None))
