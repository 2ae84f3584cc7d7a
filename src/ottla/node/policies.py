"""Asks the policies of the active controller before it decides, because decisions are synchronous.

A request is first rehearsed: decided without effect, to find out what the policies must judge. They judge it, and the
request is rehearsed again with their verdicts until no question is open. Then it is decided for real. A question
without a verdict counts as a refusal, so that no change can bypass a policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from ottla.metadata.controller.view import ControllerOptions, NewTopic
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.metadata.runtime.decisions import Requester
from ottla.plugins import AlteredConfigs
from ottla.plugins.policies import Policy, Verdict
from ottla.protocol.errors import PolicyViolation
from ottla.protocol.messages.rpc.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.rpc.create_topics import CreateTopicsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import IncrementalAlterConfigsRequest

_JUDGED: Final = (CreateTopicsRequest, AlterConfigsRequest, IncrementalAlterConfigsRequest)


class Deciding(Protocol):
    """The part of the active controller that policies use."""

    def rehearse(self, request: Any, requester: Requester, verdicts: Verdicts) -> None: ...

    def submit(self, request: Any, requester: Requester, verdicts: Verdicts) -> Awaitable[Any]: ...


class Verdicts:
    """The verdicts on the questions of one request, and the questions that are still open."""

    def __init__(self, *, of_topics: bool, of_configs: bool) -> None:
        self._of_topics = of_topics
        self._of_configs = of_configs
        self._topics: dict[str, tuple[NewTopic, Verdict]] = {}
        self._configs: dict[tuple[str, str], tuple[AlteredConfigs, Verdict]] = {}
        self.open_topics: list[NewTopic] = []
        self.open_configs: list[AlteredConfigs] = []

    def put_into(self, options: ControllerOptions) -> ControllerOptions:
        """Return the controller's options with these verdicts as policies."""
        return replace(
            options,
            create_topic_policy=self._on_topic if self._of_topics else None,
            alter_config_policy=self._on_configs if self._of_configs else None,
        )

    def close(self, topics: Sequence[Verdict], configs: Sequence[Verdict]) -> None:
        """Record the verdicts on the open questions."""
        for topic, verdict in zip(self.open_topics, topics, strict=True):
            self._topics[topic.name] = topic, verdict
        for altered, verdict in zip(self.open_configs, configs, strict=True):
            self._configs[altered.resource_type, altered.resource_name] = altered, verdict
        self.open_topics, self.open_configs = [], []

    def _on_topic(self, topic: NewTopic) -> None:
        asked, verdict = self._topics.get(topic.name, (None, None))
        if asked != topic:
            self.open_topics.append(topic)
            raise _unasked()
        if verdict is not None:
            raise verdict

    def _on_configs(self, resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
        altered = AlteredConfigs(ResourceType(resource.type).name, resource.name, dict(configs))
        asked, verdict = self._configs.get((altered.resource_type, altered.resource_name), (None, None))
        if asked != altered:
            self.open_configs.append(altered)
            raise _unasked()
        if verdict is not None:
            raise verdict


def _unasked() -> PolicyViolation:
    return PolicyViolation("The cluster changed while its policy was being consulted; retry the request.")


class Policies:
    """The policies of this node's controller."""

    def __init__(self, of_topics: Policy | None, of_configs: Policy | None) -> None:
        self._of_topics = of_topics
        self._of_configs = of_configs

    def applies_to(self, request: Any) -> bool:
        """Return whether a request may need a policy."""
        return isinstance(request, _JUDGED)

    async def decide(self, controller: Deciding, request: Any, requester: Requester) -> Any:
        """Consult the policies, then submit the request; return the controller's answer."""
        verdicts = Verdicts(of_topics=self._of_topics is not None, of_configs=self._of_configs is not None)
        while True:
            controller.rehearse(request, requester, verdicts)
            topics, configs = verdicts.open_topics, verdicts.open_configs
            if not topics and not configs:
                return await controller.submit(request, requester, verdicts)
            verdicts.close(await _judge(self._of_topics, topics), await _judge(self._of_configs, configs))


async def _judge(policy: Policy | None, questions: Sequence[Any]) -> list[Verdict]:
    if policy is None or not questions:
        return []
    return await policy.judge(questions)
