"""Automatic creation of topics for clients and for coordinators."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import ottla.broker.handlers.registry  # noqa: F401 (registers the endpoints)
from ottla.broker.requests.call import CloseConnection
from ottla.node.settings_loader import load_settings
from ottla.node.topic_creation import TopicCreation, topic_like
from ottla.protocol.errors import NotController
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

CALL: Any = SimpleNamespace(
    node=None, client=SimpleNamespace(principal="User:ann"), client_id="ann's", correlation_id=7, exchange=None
)


class Asked:
    """A controller that answers on demand."""

    def __init__(self, error_code: int = 0) -> None:
        self.requests: list[CreateTopicsRequest] = []
        self.calls: list[Any] = []
        self.versions: Mapping[int, tuple[int, int]] | None = None
        self.go = asyncio.Event()
        self.error_code = error_code
        self.error: Exception | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        return self.versions

    async def forward(self, call: Any, request: Any) -> Any:
        self.calls.append(call)
        return await self.ask(request)

    async def ask(self, request: Any) -> Any:
        self.requests.append(request)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=self.error_code) for topic in request.topics]
        )

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def finish(self) -> None:
        self.go.set()
        await asyncio.gather(*self.tasks)
        self.go.clear()


def test_one_request_for_a_topic_is_in_flight_at_a_time() -> None:
    async def scenario() -> None:
        asked = Asked()
        creation = TopicCreation(load_settings(None), asked, asked.spawn)
        for name in ("a", "a", "b", "a"):
            creation.create(name)
        await asyncio.sleep(0)
        assert [request.topics[0].name for request in asked.requests] == ["a", "b"]
        await asked.finish()
        creation.create("a")
        await asyncio.sleep(0)
        assert len(asked.requests) == 3
        await asked.finish()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("versions", "version"),
    [(None, 7), ({}, 7), ({ApiKey.CREATE_TOPICS: (2, 5)}, 5), ({ApiKey.CREATE_TOPICS: (2, 9)}, 7)],
    ids=["unknown", "none", "old", "new"],
)
def test_a_clients_topics_are_created_in_one_request_on_its_behalf(
    versions: Mapping[int, tuple[int, int]] | None, version: int
) -> None:
    async def scenario() -> None:
        asked = Asked()
        asked.versions = versions
        creation = TopicCreation(load_settings(None), asked, asked.spawn)
        creation.create("b")
        creation.create_for_client(CALL, ["a", "b", "c"])
        await asyncio.sleep(0)
        assert [[topic.name for topic in request.topics] for request in asked.requests] == [["b"], ["a", "c"]]
        (call,) = asked.calls
        assert (call.client, call.client_id, call.correlation_id) == (CALL.client, "ann's", 7)
        assert (call.api_key, call.version, call.route.api.name) == (ApiKey.CREATE_TOPICS, version, "CreateTopics")
        await asked.finish()

    asyncio.run(scenario())


def test_a_failed_creation_can_be_retried_after_an_unsupported_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        asked = Asked()
        asked.error = CloseConnection("the active controller does not serve CreateTopics v7")
        creation = TopicCreation(load_settings(None), asked, asked.spawn)
        for _ in range(2):
            creation.create_for_client(CALL, ["a"])
            await asyncio.sleep(0)
            await asked.finish()
        assert len(asked.requests) == 2

    asyncio.run(scenario())
    assert caplog.text.count("automatic creation of a failed: the active controller does not serve") == 2


@pytest.mark.parametrize(("code", "is_logged"), [(0, False), (36, False), (38, True)])
def test_a_failed_creation_can_be_retried(code: int, is_logged: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        asked = Asked(code)
        creation = TopicCreation(load_settings(None), asked, asked.spawn)
        for _ in range(2):
            creation.create("a")
            await asyncio.sleep(0)
            await asked.finish()
        assert len(asked.requests) == 2

    asyncio.run(scenario())
    assert ("automatic creation of topic a failed" in caplog.text) is is_logged


def test_creation_is_retried_after_the_controller_was_unavailable() -> None:
    async def scenario() -> None:
        asked = Asked()
        asked.error = NotController("elsewhere")
        creation = TopicCreation(load_settings(None), asked, asked.spawn)
        creation.create("a")
        await asyncio.sleep(0)
        await asked.finish()
        creation.create("a")
        await asyncio.sleep(0)
        assert len(asked.requests) == 2
        await asked.finish()

    asyncio.run(scenario())


def test_an_ordinary_topic_has_the_brokers_defaults() -> None:
    topic = topic_like("t", load_settings(None, {"num.partitions": "3", "default.replication.factor": "1"}))
    assert (topic.num_partitions, topic.replication_factor, topic.configs) == (3, 1, [])


@pytest.mark.parametrize(
    ("name", "given", "numbers", "configs"),
    [
        (
            "__consumer_offsets",
            {"offsets.topic.num.partitions": "7", "offsets.topic.segment.bytes": "1000000"},
            (7, 1),
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1000000"},
        ),
        (
            "__transaction_state",
            {"transaction.state.log.num.partitions": "8"},
            (8, 1),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            "__share_group_state",
            {"share.coordinator.state.topic.num.partitions": "9"},
            (9, 1),
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
                "segment.bytes": "104857600",
            },
        ),
    ],
)
def test_internal_topics_have_settings_of_their_own(
    name: str, given: dict[str, str], numbers: tuple[int, int], configs: dict[str, str]
) -> None:
    topic = topic_like(name, load_settings(None, given))
    assert (topic.num_partitions, topic.replication_factor) == numbers
    assert {each.name: each.value for each in topic.configs} == configs


@pytest.mark.parametrize(
    ("given", "partitions", "factor"),
    [({}, -1, -1), ({"num.partitions": "4"}, 4, -1), ({"default.replication.factor": "2"}, -1, 2)],
)
def test_the_controller_applies_defaults_that_the_broker_lacks(
    given: dict[str, str], partitions: int, factor: int
) -> None:
    topic = topic_like("orders", load_settings(None, given))
    assert (topic.num_partitions, topic.replication_factor) == (partitions, factor)
