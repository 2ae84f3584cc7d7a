"""A fetch asks the authorizer once, about each topic with the number of its partitions."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.broker.authorization.actions import Action, Operation, ResourceType
from ottla.broker.authorization.standard import StandardAuthorizer
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import TopicAuthorizationFailed
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.broker import Broker

CLOSED = "closed"
DENY, ALLOW = 2, 3


class Asked(StandardAuthorizer):
    """Everybody may read all topics but one; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(allow_without_rules=True)
        self.add(b"1" * 16, Acl(ResourceType.TOPIC, CLOSED, 3, "User:*", "*", Operation.READ, DENY))
        self.batches: list[dict[str, int]] = []

    def authorize(self, asking: Any, actions: Sequence[Action]) -> list[bool]:
        self.batches.append({action.name: action.references for action in actions})
        return super().authorize(asking, actions)


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    for name in ("a", "b", CLOSED):
        made.create_topic(name, partitions=3)
    made.node.authorizer = Asked()
    yield made
    made.close()


def asked_by(broker: Broker) -> list[dict[str, int]]:
    """What the authorizer has been asked since the last look."""
    authorizer = broker.node.authorizer
    assert isinstance(authorizer, Asked)
    batches, authorizer.batches = authorizer.batches, []
    return batches


def request(*topics: tuple[str, int], by_id: Broker | None = None, **fields: Any) -> FetchRequest:
    """A fetch of so many partitions of each topic."""
    return FetchRequest(
        max_bytes=1000,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=bytes(16) if by_id is None else by_id.image.topics[name].id,
                partitions=[FetchPartition(partition=number, partition_max_bytes=100) for number in range(count)],
            )
            for name, count in topics
        ],
        **fields,
    )


def codes(answer: FetchResponse) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partitions]


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_asks_about_all_topics_at_once(broker: Broker, version: int) -> None:
    by_id = broker if version >= 13 else None
    answer = broker.ask(request(("a", 3), (CLOSED, 2), ("b", 1), by_id=by_id), version)
    assert asked_by(broker) == [{"a": 3, CLOSED: 2, "b": 1}]
    assert codes(answer) == [0, 0, 0, TopicAuthorizationFailed.code, TopicAuthorizationFailed.code, 0]


def test_a_session_asks_about_changed_and_denied_topics_only(broker: Broker) -> None:
    first = broker.ask(request(("a", 3), (CLOSED, 2), session_epoch=0), 12)
    assert asked_by(broker) == [{"a": 3, CLOSED: 2}]
    session = {"session_id": first.session_id}
    broker.ask(request(**session, session_epoch=1), 12)
    asked_by(broker)
    answer = broker.ask(request(**session, session_epoch=2), 12)
    assert asked_by(broker) == [{CLOSED: 2}]
    assert codes(answer) == [TopicAuthorizationFailed.code] * 2
    authorizer = broker.node.authorizer
    assert isinstance(authorizer, Asked)
    acl = Acl(ResourceType.TOPIC, CLOSED, 3, "User:*", "*", Operation.READ, DENY)
    authorizer.remove(b"1" * 16, acl)
    answer = broker.ask(request(**session, session_epoch=3), 12)
    assert codes(answer) == [0, 0]


def test_a_follower_needs_cluster_action_and_is_checked_once(broker: Broker) -> None:
    authorizer = broker.node.authorizer
    assert isinstance(authorizer, Asked)
    authorizer.add(b"2" * 16, Acl(ResourceType.CLUSTER, "kafka-cluster", 3, "User:broker", "*", Operation.ALL, ALLOW))
    answer = broker.ask(request(("a", 2), ("b", 1), replica_id=2), 12)
    assert asked_by(broker) == [{"kafka-cluster": 1}]
    assert codes(answer) == [TopicAuthorizationFailed.code] * 3
