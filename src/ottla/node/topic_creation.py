"""Creates topics automatically: for clients, for coordinators and for streams groups.

Coordinators' internal topics have settings of their own, even if a client names them first. Only one request for a
topic is in flight at a time; clients retry until the topic exists.

As in Kafka, a request for a client is sent on the client's behalf: the controller authorizes the client and charges its
quota. Requests for coordinators are sent as this broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ottla.broker.requests.call import Call, CloseConnection
from ottla.broker.requests.on_behalf import call_on_behalf
from ottla.config.node_settings import NodeSettings
from ottla.protocol.errors import ApiError, TopicAlreadyExists, by_code
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.replication.runtime import Spawn

logger = logging.getLogger(__name__)

_CONTROLLER_DEFAULT: Final = -1
_FAILURES: Final = 1000
"""The number of topics whose failed creation is remembered."""


class _Failure(NamedTuple):
    """Why a topic could not be created, and until when members are informed."""

    reason: str
    until_ms: int


class ControllerRequests(Protocol):
    """Sends requests to the active controller."""

    async def ask(self, request: Any) -> Any:
        """Send a request of this node."""

    async def forward(self, call: Call[Any], request: Any) -> Any:
        """Send a request on behalf of a client."""

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the API versions of the active controller; None if it is on this node or unknown."""


class TopicCreation:
    """Asks the controller to create topics."""

    def __init__(
        self,
        settings: NodeSettings,
        controller: ControllerRequests,
        spawn: Spawn,
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._spawn = spawn
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, name: str) -> None:
        """Create a topic as this broker, unless a request for it is in flight."""
        topics = self._begin([name])
        if topics:
            self._spawn(self._create(topics, self._controller.ask))

    def create_for_client(self, call: Call[Any], names: Iterable[str]) -> None:
        """Create the topics that a client named, in one request on its behalf (auto.create.topics.enable)."""
        topics = self._begin(names)
        if topics:
            self._spawn(self._create(topics, lambda request: self._controller.forward(self._call_for(call), request)))

    def _begin(self, names: Iterable[str]) -> list[CreatableTopic]:
        """Mark topics as in flight; return those that were not yet."""
        new = [name for name in names if name not in self._under_way]
        self._under_way.update(new)
        return [topic_like(name, self._settings) for name in new]

    def _call_for(self, call: Call[Any]) -> Call[Any]:
        """Return a CreateTopics call of the same client, in the newest version that the controller supports."""
        newest = BY_KEY[ApiKey.CREATE_TOPICS].latest_stable
        served = (self._controller.controller_versions() or {}).get(ApiKey.CREATE_TOPICS)
        return call_on_behalf(call, ApiKey.CREATE_TOPICS, newest if served is None else min(newest, served[1]))

    def create_for_streams(
        self, call: Call[Any], topics: Sequence[CreatableTopic], pause_ms: int, now_ms: int
    ) -> Mapping[str, str]:
        """Create the internal topics of a streams group on behalf of its member.

        Return the topics whose creation failed within the last `pause_ms`, with the reasons. They are not retried yet.
        """
        failures = {topic.name: failure for topic in topics if (failure := self._failures.get(topic.name)) is not None}
        failed = {name: failure for name, failure in failures.items() if failure.until_ms > now_ms}
        new = [topic for topic in topics if topic.name not in failed and topic.name not in self._under_way]
        if new:
            self._under_way.update(topic.name for topic in new)
            self._spawn(self._create_for_streams(self._call_for(call), new, now_ms + pause_ms))
        return {name: failure.reason for name, failure in failed.items()}

    async def _create_for_streams(self, call: Call[Any], topics: Sequence[CreatableTopic], until_ms: int) -> None:
        reasons: dict[str, str] = {}
        try:
            response = await self._controller.forward(call, self._request(topics))
            for result in response.topics:
                if result.error_code:
                    reasons[result.name] = result.error_message or by_code(result.error_code)().message
        except (ApiError, CloseConnection) as error:
            reasons = dict.fromkeys((topic.name for topic in topics), str(error))
        finally:
            self._under_way.difference_update(topic.name for topic in topics)
        for name, reason in reasons.items():
            logger.warning("creating the internal topic %s of a streams group failed: %s", name, reason)
            self._failures.pop(name, None)  # the oldest are dropped first
            self._failures[name] = _Failure(reason, until_ms)
        while len(self._failures) > _FAILURES:
            del self._failures[next(iter(self._failures))]

    async def _create(self, topics: Sequence[CreatableTopic], send: Callable[[Any], Awaitable[Any]]) -> None:
        try:
            response = await send(self._request(topics))
            for result in response.topics:
                if result.error_code not in (0, TopicAlreadyExists.code):
                    error = by_code(result.error_code)(result.error_message)
                    logger.warning("automatic creation of topic %s failed: %s", result.name, error)
        except (ApiError, CloseConnection) as error:
            names = ", ".join(topic.name for topic in topics)
            logger.warning("automatic creation of %s failed: %s", names, error)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)

    def _request(self, topics: Sequence[CreatableTopic]) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=list(topics), timeout_ms=self._settings.number("request.timeout.ms"))


def topic_like(name: str, settings: NodeSettings) -> CreatableTopic:
    """Return the topic of this name with its partition count, replication factor and configs."""
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
    # The controller applies its own defaults for settings that this broker's file does not have.
    partitions = number("num.partitions") if "num.partitions" in settings.given else _CONTROLLER_DEFAULT
    factor = (
        number("default.replication.factor") if "default.replication.factor" in settings.given else _CONTROLLER_DEFAULT
    )
    return _topic(name, partitions, factor, {})


def _topic(name: str, partitions: int, factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=config, value=value) for config, value in configs.items()],
    )
