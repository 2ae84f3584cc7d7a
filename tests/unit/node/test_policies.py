"""Policies judge requests before the controller decides, and cannot be bypassed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.metadata.controller.view import NewTopic
from ottla.metadata.image.values import ResourceType
from ottla.metadata.runtime.active_controller import THIS_NODE
from ottla.metadata.runtime.decisions import Requester
from ottla.node.policies import Policies, Verdicts
from ottla.plugins import AlteredConfigs
from ottla.plugins.policies import Verdict
from ottla.protocol.errors import NotController, PolicyViolation, TopicAlreadyExists
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.one_controller import ME, OneController


class Judge:
    """Refuses topics by name, and runs a callback during its calls."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.asked: list[NewTopic | AlteredConfigs] = []
        self.meanwhile = meanwhile

    async def judge(self, questions: Sequence[NewTopic | AlteredConfigs]) -> list[Verdict]:
        self.asked += questions
        self.meanwhile()
        return [PolicyViolation("no") if "refused" in str(each) else None for each in questions]


class Controller:
    """A controller whose decisions are committed at once."""

    def __init__(self, one: OneController) -> None:
        self.one = one

    def rehearse(self, request: Any, requester: Requester, verdicts: Verdicts) -> None:
        self.one.active.rehearse(request, requester, verdicts)

    async def submit(self, request: Any, requester: Requester, verdicts: Verdicts) -> Any:
        future = self.one.active.submit(request, requester, verdicts)
        self.one.run(100)
        return future.result()


@pytest.fixture
def one() -> OneController:
    made = OneController()
    made.run(3000)
    made.join(ME)
    return made


def creation(*names: str, **configs: str) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=settings) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def alteration(topic: str, value: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", value=value)
    other = AlterableConfig(name="segment.ms", value="9000")
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=topic, configs=[config, other])
    return IncrementalAlterConfigsRequest(resources=[resource])


def decide(one: OneController, policies: Policies, request: Any, requester: Requester = THIS_NODE) -> Any:
    assert policies.applies_to(request)
    return asyncio.run(policies.decide(Controller(one), request, requester))


def test_each_question_is_asked_once(one: OneController) -> None:
    topics, configs = Judge(), Judge()
    charged: list[int] = []
    requester = Requester("User:ann", is_from_broker=True, charge=charged.append)
    answer = decide(one, Policies(topics, configs), creation("a", "refused", retention_ms="5"), requester)
    assert [each.error_code for each in answer.topics] == [0, PolicyViolation.code]
    assert charged == [2]
    assert topics.asked == [NewTopic("a", 2, 1, None, {"retention.ms": "5"})]
    assert configs.asked == [
        AlteredConfigs("TOPIC", "a", {"retention.ms": "5"}),
        AlteredConfigs("TOPIC", "refused", {"retention.ms": "5"}),
    ]
    assert list(one.image.topics) == ["a"]


def test_policies_do_not_judge_invalid_requests(one: OneController) -> None:
    judge = Judge()
    answer = decide(one, Policies(judge, None), creation("a/b", no_such_setting="1"))
    assert answer.topics[0].error_code != PolicyViolation.code
    assert not judge.asked


def test_changes_during_a_policy_call_are_considered(one: OneController) -> None:
    made = Judge(lambda: one.decide(creation("t")))
    answer = decide(one, Policies(made, None), creation("t"))
    assert [each.error_code for each in answer.topics] == [TopicAlreadyExists.code]

    changed: list[object] = []

    def change() -> None:
        if not changed:
            changed.append(one.decide(alteration("t", "7")))

    judge = Judge(change)
    answer = decide(one, Policies(None, judge), alteration("t", "8"))
    assert answer.responses[0].error_code == 0
    assert judge.asked == [
        AlteredConfigs("TOPIC", "t", {"retention.ms": "8", "segment.ms": "9000"}),
        AlteredConfigs("TOPIC", "t", {"retention.ms": "8"}),
    ]


def test_an_open_question_is_a_refusal(one: OneController) -> None:
    future = one.active.submit(creation("t"), THIS_NODE, Verdicts(of_topics=True, of_configs=False))
    one.run(100)
    assert [each.error_code for each in future.result().topics] == [PolicyViolation.code]


def test_only_the_active_controller_asks_policies(one: OneController) -> None:
    judge = Judge()
    policies = Policies(judge, judge)
    assert not policies.applies_to(DeleteTopicsRequest())
    one.active.stop()
    with pytest.raises(NotController):
        decide(one, policies, creation("t"))
    assert not judge.asked
