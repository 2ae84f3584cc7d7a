"""Automatic creation of topics: those that clients name, those of coordinators, and those of streams groups.

The topics in which coordinators keep their state have settings of their own, also when a client names them first.
One request for a topic is under way at a time; the client asks again until the topic is there.

A request that a client causes is sent in the client's name, as Kafka's brokers do it: the controller asks the
authorizer about the client, and charges the client's quota of changes to topics. Coordinators ask as this broker.
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

_CONTROLLERS_CHOICE: Final = -1
_FAILURES: Final = 1000
"""How many topics are remembered that could not be made."""


class _Failure(NamedTuple):
    """Why a topic could not be made, and until when that is told."""

    reason: str
    until_ms: int


class ControllerRequests(Protocol):
    """Requests to the active controller, wherever it is."""

    async def ask(self, request: Any) -> Any:
        """Send a request of this node's own."""

    async def forward(self, call: Call[Any], request: Any) -> Any:
        """Send a client's request in its name."""

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """API → versions that the active controller serves, if it is another node's and known."""


class TopicCreation:
    """Asks the controller for topics."""

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
        """Ask for a topic as this broker, unless that is being done."""
        topics = self._begin([name])
        if topics:
            self._spawn(self._create(topics, self._controller.ask))

    def create_for_client(self, call: Call[Any], names: Iterable[str]) -> None:
        """Ask for topics that a client named (auto.create.topics.enable), in its name and all at once."""
        topics = self._begin(names)
        if topics:
            self._spawn(self._create(topics, lambda request: self._controller.forward(self._call_for(call), request)))

    def _begin(self, names: Iterable[str]) -> list[CreatableTopic]:
        """The topics among these that are not under way yet; they are from now on."""
        new = [name for name in names if name not in self._under_way]
        self._under_way.update(new)
        return [topic_like(name, self._settings) for name in new]

    def _call_for(self, call: Call[Any]) -> Call[Any]:
        """A call by which the client of another asks for topics, in the newest version that the controller reads."""
        newest = BY_KEY[ApiKey.CREATE_TOPICS].latest_stable
        served = (self._controller.controller_versions() or {}).get(ApiKey.CREATE_TOPICS)
        return call_on_behalf(call, ApiKey.CREATE_TOPICS, newest if served is None else min(newest, served[1]))

    def create_for_streams(
        self, call: Call[Any], topics: Sequence[CreatableTopic], pause_ms: int, now_ms: int
    ) -> Mapping[str, str]:
        """Ask for the internal topics of a streams group in its member's name.

        Returns why some could not be created shortly before, by their names. They are not asked for again until some
        time has passed.
        """
        failed = {topic.name: known for topic in topics if (known := self._failures.get(topic.name)) is not None}
        failed = {name: known for name, known in failed.items() if known.until_ms > now_ms}
        new = [topic for topic in topics if topic.name not in failed and topic.name not in self._under_way]
        if new:
            self._under_way.update(topic.name for topic in new)
            self._spawn(self._create_for_streams(self._call_for(call), new, now_ms + pause_ms))
        return {name: known.reason for name, known in failed.items()}

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
            logger.warning("the internal topic %s of a streams group could not be made: %s", name, reason)
            self._failures.pop(name, None)  # the oldest go first
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
