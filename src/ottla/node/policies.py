"""The policies of the active controller are asked before it decides, as decisions wait for nobody.

A request is first decided without consequences, which shows what the policies have to be asked: that, and when, is for
the decision to say. They are asked, and the request is decided again with what they said, until no question is left;
only then it counts. A question that has no answer is a refusal, so that nothing can get past a policy.
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
    """The active controller, as far as policies are concerned."""

    def rehearse(self, request: Any, requester: Requester, verdicts: Verdicts) -> None: ...

    def submit(self, request: Any, requester: Requester, verdicts: Verdicts) -> Awaitable[Any]: ...


class Verdicts:
    """What policies have said of the questions of one request, and what they have still to be asked."""

    def __init__(self, *, of_topics: bool, of_configs: bool) -> None:
        self._of_topics = of_topics
        self._of_configs = of_configs
        self._topics: dict[str, tuple[NewTopic, Verdict]] = {}
        self._configs: dict[tuple[str, str], tuple[AlteredConfigs, Verdict]] = {}
        self.open_topics: list[NewTopic] = []
        self.open_configs: list[AlteredConfigs] = []

    def put_into(self, options: ControllerOptions) -> ControllerOptions:
        """A controller's options with these policies."""
        return replace(
            options,
            create_topic_policy=self._on_topic if self._of_topics else None,
            alter_config_policy=self._on_configs if self._of_configs else None,
        )

    def close(self, topics: Sequence[Verdict], configs: Sequence[Verdict]) -> None:
        """The open questions have been answered."""
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
    return PolicyViolation("The cluster changed while its policy was asked: ask again.")


class Policies:
    """The policies of this node, for when its controller is the active one."""

    def __init__(self, of_topics: Policy | None, of_configs: Policy | None) -> None:
        self._of_topics = of_topics
        self._of_configs = of_configs

    def concern(self, request: Any) -> bool:
        """Whether a request may need them."""
        return isinstance(request, _JUDGED)

    async def decide(self, controller: Deciding, request: Any, requester: Requester) -> Any:
        """The controller's answer to a request, with all that the policies say of it."""
        verdicts = Verdicts(of_topics=self._of_topics is not None, of_configs=self._of_configs is not None)
        while True:
            controller.rehearse(request, requester, verdicts)
            topics, configs = verdicts.open_topics, verdicts.open_configs
            if not topics and not configs:
                return await controller.submit(request, requester, verdicts)
            verdicts.close(await _judged(self._of_topics, topics), await _judged(self._of_configs, configs))


async def _judged(policy: Policy | None, questions: Sequence[Any]) -> list[Verdict]:
    if policy is None or not questions:
        return []
    return await policy.judge(questions)
