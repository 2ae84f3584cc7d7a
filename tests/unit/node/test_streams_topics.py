"""Internal topics of streams groups are asked for once, and not again right after they failed."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

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
    """Answers when it is told to."""

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


def test_a_failure_is_told_for_a_while_and_then_tried_again() -> None:
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


def test_a_controller_that_is_not_there_is_told_of_all_topics() -> None:
    async def run() -> None:
        controller = Controller()
        controller.is_there = False
        creation = creation_by(controller)
        creation.create_for_streams(CALL, TOPICS, 100, 1000)
        await asyncio.gather(*controller.tasks)
        told = creation.create_for_streams(CALL, TOPICS, 100, 1001)
        assert told == {"good": "nobody is there", "bad": "nobody is there"}

    asyncio.run(run())
