"""Topics that are made because somebody asked for them: a client by name, or a coordinator of this broker.

The topics that coordinators keep their state in have settings of their own, also when a client is the first to ask.
One request for a topic is under way at a time; the client asks again until it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.api.call import Call
from ottla.errors import ApiError, TopicAlreadyExists, by_code
from ottla.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.server.node_settings import NodeSettings

logger = logging.getLogger(__name__)

_CONTROLLERS_CHOICE: Final = -1
_FAILURES: Final = 1000
"""How many topics are remembered that could not be made."""


class _Failure(NamedTuple):
    """Why a topic could not be made, and until when that is told."""

    reason: str
    until_ms: int


class TopicCreation:
    """Asks the controller for topics."""

    def __init__(
        self,
        settings: NodeSettings,
        ask: Callable[[Any], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._settings = settings
        self._ask = ask
        self._spawn = spawn
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, name: str) -> None:
        """Ask for a topic, unless that is being done."""
        if name not in self._under_way:
            self._under_way.add(name)
            self._spawn(self._create(name))

    def create_for_client(self, call: Call[Any], name: str) -> None:
        """Ask for a topic that a client named (auto.create.topics.enable)."""
        self.create(name)

    def create_for_streams(self, topics: Sequence[CreatableTopic], pause_ms: int, now_ms: int) -> Mapping[str, str]:
        """Ask for the internal topics of a streams group; why some could not be made shortly before, by their names.

        What failed is not asked for again until some time has passed.
        """
        failed = {topic.name: known for topic in topics if (known := self._failures.get(topic.name)) is not None}
        failed = {name: known for name, known in failed.items() if known.until_ms > now_ms}
        new = [topic for topic in topics if topic.name not in failed and topic.name not in self._under_way]
        if new:
            self._under_way.update(topic.name for topic in new)
            self._spawn(self._create_for_streams(new, now_ms + pause_ms))
        return {name: known.reason for name, known in failed.items()}

    async def _create_for_streams(self, topics: Sequence[CreatableTopic], until_ms: int) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=self._settings.number("request.timeout.ms"))
        reasons: dict[str, str] = {}
        try:
            response = await self._ask(request)
            for result in response.topics:
                if result.error_code:
                    reasons[result.name] = result.error_message or by_code(result.error_code)().message
        except ApiError as error:
            reasons = dict.fromkeys((topic.name for topic in topics), error.message)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)
        for name, reason in reasons.items():
            logger.warning("the internal topic %s of a streams group could not be made: %s", name, reason)
            self._failures.pop(name, None)  # the oldest go first
            self._failures[name] = _Failure(reason, until_ms)
        while len(self._failures) > _FAILURES:
            del self._failures[next(iter(self._failures))]

    async def _create(self, name: str) -> None:
        request = CreateTopicsRequest(
            topics=[topic_like(name, self._settings)], timeout_ms=self._settings.number("request.timeout.ms")
        )
        try:
            response = await self._ask(request)
            for result in response.topics:
                if result.error_code not in (0, TopicAlreadyExists.code):
                    raise by_code(result.error_code)(result.error_message)
        except ApiError as error:
            logger.warning("the topic %s, which was asked for, could not be made: %s", name, error)
        finally:
            self._under_way.discard(name)


def topic_like(name: str, settings: NodeSettings) -> CreatableTopic:
    """A topic of this name as it should be."""
    number = settings.number
    match name:
        case "__consumer_offsets":
            return _topic(
                name,
                number("offsets.topic.num.partitions"),
                number("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(number("offsets.topic.segment.bytes")),
                },
            )
        case "__transaction_state":
            return _topic(
                name,
                number("transaction.state.log.num.partitions"),
                number("transaction.state.log.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(number("transaction.state.log.min.isr")),
                    "segment.bytes": str(number("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                },
            )
        case "__share_group_state":
            return _topic(
                name,
                number("share.coordinator.state.topic.num.partitions"),
                number("share.coordinator.state.topic.replication.factor"),
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "min.insync.replicas": str(number("share.coordinator.state.topic.min.isr")),
                    "retention.ms": "-1",
                    "segment.bytes": str(number("share.coordinator.state.topic.segment.bytes")),
                },
            )
    # What this broker was not told is for the controller to say.
    partitions = number("num.partitions") if "num.partitions" in settings.given else _CONTROLLERS_CHOICE
    factor = (
        number("default.replication.factor") if "default.replication.factor" in settings.given else _CONTROLLERS_CHOICE
    )
    return _topic(name, partitions, factor, {})


def _topic(name: str, partitions: int, factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=each, value=value) for each, value in configs.items()],
    )
