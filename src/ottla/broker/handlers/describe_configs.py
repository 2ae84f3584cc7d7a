"""DescribeConfigs (key 32): the settings of topics, brokers, loggers, groups and client metrics.

All of it is told from the image and the node's own file, so that a broker answers only for itself and for what all
brokers have in common. The texts that explain a setting are left out: they are in the documentation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from ottla.broker.authorization.admin_guards import guard_describe_configs
from ottla.broker.handlers import broker_loggers
from ottla.broker.handlers.setting_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    layers_of,
    topic_entries,
)
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.config.settings.brokers import BrokerLayers
from ottla.config.settings.setting import InvalidSetting
from ottla.config.settings.topics import ConfigSource
from ottla.metadata.controller.topic_names import check_topic_name
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


class Described(Protocol):
    """A node that has settings: a broker or a controller."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> Image: ...

    @property
    def given(self) -> Mapping[str, str]: ...


def describe_configs_failed(request: DescribeConfigsRequest, version: int, error: ApiError) -> DescribeConfigsResponse:
    """The error for each resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )


@endpoint(ApiKey.DESCRIBE_CONFIGS, on=BOTH, failed=describe_configs_failed, guard=guard_describe_configs)
def describe_configs(call: Call[Described], request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource, or say why it cannot be."""
    for asked in request.resources:
        if asked.resource_type not in _DESCRIBED:
            raise InvalidRequest(f"Unexpected resource type {asked.resource_type} for resource {asked.resource_name}")
    node = call.node
    layers = layers_of(node.image, node.node_id, node.given)
    return DescribeConfigsResponse(
        results=[_describe(node, layers, asked, synonyms=request.include_synonyms) for asked in request.resources]
    )


def _describe(
    node: Described, layers: BrokerLayers, asked: DescribeConfigsResource, *, synonyms: bool
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        found = _DESCRIBED[asked.resource_type](node, layers, asked.resource_name)
        result.configs = _wanted(found, asked.configuration_keys, synonyms=synonyms)
    except UnknownTopicOrPartition as error:
        result.error_code = error.code
    except ApiError as error:  # one bad resource spoils only its own answer
        result.error_code, result.error_message = error.code, error.message
    except InvalidSetting as error:  # stored by another release, or before a rule was stricter
        result.error_code, result.error_message = InvalidRequest.code, str(error)
    return result


def _wanted(
    entries: Iterable[Entry], keys: Sequence[str] | None, *, synonyms: bool
) -> list[DescribeConfigsResourceResult]:
    wanted = frozenset(keys) if keys else None
    return [
        DescribeConfigsResourceResult(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=each.source,
            is_sensitive=each.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in each.synonyms
            ]
            if synonyms
            else [],
            config_type=each.type,
            documentation="" if each.source is ConfigSource.DYNAMIC_BROKER_LOGGER else None,
        )
        for each in entries
        if wanted is None or each.name in wanted
    ]


def _topic(node: Described, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    check_topic_name(name)
    if name not in node.image.topics:
        raise UnknownTopicOrPartition
    return topic_entries(node.image.topic_config(name), layers)


def _broker(node: Described, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        return default_broker_entries(layers)
    if _broker_id(name) != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}")
    return broker_entries(layers)


def _logger(node: Described, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if _broker_id(name) != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} but received {name}")
    levels = broker_loggers.levels().items()
    return [Entry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, 0, False, False, []) for name, level in levels]


def _client_metrics(node: Described, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty")
    return client_metrics_entries(node.image.config(ResourceType.CLIENT_METRICS, name))


def _group(node: Described, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Group name must not be empty")
    return group_entries(node.image.config(ResourceType.GROUP, name), layers)


_DESCRIBED: Final[dict[int, Callable[[Described, BrokerLayers, str], Iterable[Entry]]]] = {
    ResourceType.TOPIC: _topic,
    ResourceType.BROKER: _broker,
    ResourceType.BROKER_LOGGER: _logger,
    ResourceType.CLIENT_METRICS: _client_metrics,
    ResourceType.GROUP: _group,
}


def _broker_id(name: str) -> int:
    try:
        return broker_loggers.parse_node_id(name)
    except InvalidRequest:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
