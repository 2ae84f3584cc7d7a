"""Fetch: authorization, and the size of an answer."""

import pytest

from ottla.broker.authorization.actions import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.authorization.standard import StandardAuthorizer
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import NONE, TopicAuthorizationFailed
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.security.principal_mapping import ANONYMOUS
from tests.support.broker import Broker
from tests.support.logs_in_memory import batch

LITERAL, ALLOW = 3, 3
RECORD = batch(b"v" * 1000)


def fetch(broker: Broker, *topics: str, replica: int = -1, max_bytes: int = 1 << 20) -> dict[str, PartitionData]:
    part = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    asked = [FetchTopic(topic=name, partitions=[part]) for name in topics]
    response = broker.ask(FetchRequest(replica_id=replica, max_bytes=max_bytes, session_epoch=-1, topics=asked), 12)
    return {topic.topic: topic.partitions[0] for topic in response.responses}


@pytest.mark.parametrize(
    ("kind", "name", "operation", "consumer", "follower"),
    [
        (ResourceType.TOPIC, "t", Operation.READ, NONE, TopicAuthorizationFailed.code),
        (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION, TopicAuthorizationFailed.code, NONE),
    ],
)
def test_consumers_need_read_and_followers_must_be_brokers(
    broker: Broker, kind: ResourceType, name: str, operation: Operation, consumer: int, follower: int
) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2))
    broker.node.authorizer = StandardAuthorizer()
    broker.node.authorizer.add(bytes(16), Acl(kind, name, LITERAL, ANONYMOUS, "*", operation, ALLOW))
    assert fetch(broker, "t")["t"].error_code == consumer
    assert fetch(broker, "t", replica=2)["t"].error_code == follower


def test_a_forbidden_topic_does_not_block_other_topics(broker: Broker) -> None:
    broker.create_topic("open")
    broker.create_topic("closed")
    broker.append("open", 0, RECORD)
    broker.node.authorizer = StandardAuthorizer()
    broker.node.authorizer.add(
        bytes(16), Acl(ResourceType.TOPIC, "open", LITERAL, ANONYMOUS, "*", Operation.READ, ALLOW)
    )
    answers = fetch(broker, "open", "closed")
    assert {name: each.error_code for name, each in answers.items()} == {
        "open": NONE,
        "closed": TopicAuthorizationFailed.code,
    }
    assert len(answers["open"].records or b"") == len(RECORD)


@pytest.mark.parametrize(("asked", "allowed"), [(1 << 20, 3000), (3000, 1 << 20)])
def test_a_fetch_is_limited_by_client_and_broker(broker: Broker, asked: int, allowed: int) -> None:
    broker.create_topic("t")
    broker.append("t", 0, *[RECORD] * 10)
    broker.node.fetch_max_bytes = allowed
    found = fetch(broker, "t", max_bytes=asked)["t"].records
    assert 2000 < len(found or b"") <= 3000
