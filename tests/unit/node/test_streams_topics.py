"""Internal topics of streams groups are created once, and not retried right after a failure."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import ottla.broker.handlers.registry  # noqa: F401 (registers the endpoints)
from ottla.node.settings_loader import load_settings
from ottla.node.topic_creation import TopicCreation
from ottla.protocol.errors import NotController
from ottla.protocol.messages.rpc.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CALL: Any = SimpleNamespace(
    node=None, client=SimpleNamespace(principal="User:ann"), client_id="ann's", correlation_id=7, exchange=None
)
TOPICS = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("good", "bad")]


class Controller:
    """Answers on demand."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_there = True
        self.tasks: list[asyncio.Task[None]] = []
        self.clients: list[Any] = []

    async def ask(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise AssertionError("the broker asked as itself instead of as the group's member")

    def controller_versions(self) -> None:
        return None

    async def forward(self, call: Any, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.asked.append([topic.name for topic in request.topics])
        self.clients.append(call.client)
        await asyncio.sleep(0)
        if not self.is_there:
            raise NotController("nobody is there")
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=38 if topic.name == "bad" else 0, error_message="no")
                for topic in request.topics
            ]
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def creation_by(controller: Controller) -> TopicCreation:
    return TopicCreation(load_settings(None), controller, controller.spawn)


def test_a_failure_is_reported_for_a_while_and_then_retried() -> None:
    async def run() -> None:
        controller = Controller()
        creation = creation_by(controller)
        assert creation.create_for_streams(CALL, TOPICS, 100, 1000) == {}
        assert creation.create_for_streams(CALL, TOPICS, 100, 1000) == {}  # they are under way
        await asyncio.gather(*controller.tasks)
        assert controller.asked == [["good", "bad"]]
        assert creation.create_for_streams(CALL, TOPICS, 100, 1099) == {"bad": "no"}
        assert creation.create_for_streams(CALL, TOPICS, 100, 1100) == {}
        await asyncio.gather(*controller.tasks)
        assert controller.asked == [["good", "bad"], ["good"], ["bad"]]
        assert controller.clients == [CALL.client] * 3

    asyncio.run(run())


def test_an_unavailable_controller_is_reported_for_all_topics() -> None:
    async def run() -> None:
        controller = Controller()
        controller.is_there = False
        creation = creation_by(controller)
        creation.create_for_streams(CALL, TOPICS, 100, 1000)
        await asyncio.gather(*controller.tasks)
        reported = creation.create_for_streams(CALL, TOPICS, 100, 1001)
        assert reported == {"good": "nobody is there", "bad": "nobody is there"}

    asyncio.run(run())
