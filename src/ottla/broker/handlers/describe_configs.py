"""DescribeConfigs (key 32): the settings of topics, brokers, loggers, groups and client metrics.

The answer comes from the image and the node's own file. A broker therefore answers only for itself and for the defaults
of all brokers. The descriptions of settings are left out; they are in the documentation.
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


class ConfiguredNode(Protocol):
    """A node whose settings can be described: a broker or a controller."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> Image: ...

    @property
    def given(self) -> Mapping[str, str]: ...


def describe_configs_failed(request: DescribeConfigsRequest, version: int, error: ApiError) -> DescribeConfigsResponse:
    """Return the error for each resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@endpoint(ApiKey.DESCRIBE_CONFIGS, on=BOTH, failed=describe_configs_failed, guard=guard_describe_configs)
def describe_configs(call: Call[ConfiguredNode], request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource. A resource that cannot be described fails alone."""
    for resource in request.resources:
        if resource.resource_type not in _ENTRIES_OF:
            raise InvalidRequest(
                f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}"
            )
    node = call.node
    layers = layers_of(node.image, node.node_id, node.given)
    return DescribeConfigsResponse(
        results=[
            _describe(node, layers, resource, with_synonyms=request.include_synonyms) for resource in request.resources
        ]
    )


def _describe(
    node: ConfiguredNode, layers: BrokerLayers, resource: DescribeConfigsResource, *, with_synonyms: bool
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _ENTRIES_OF[resource.resource_type](node, layers, resource.resource_name)
        result.configs = _select(entries, resource.configuration_keys, with_synonyms=with_synonyms)
    except UnknownTopicOrPartition as error:
        result.error_code = error.code
    except ApiError as error:  # an invalid resource fails alone
        result.error_code, result.error_message = error.code, error.message
    except InvalidSetting as error:  # stored by another release, or before a check became stricter
        result.error_code, result.error_message = InvalidRequest.code, str(error)
    return result


def _select(
    entries: Iterable[Entry], keys: Sequence[str] | None, *, with_synonyms: bool
) -> list[DescribeConfigsResourceResult]:
    selected = frozenset(keys) if keys else None
    return [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in entry.synonyms
            ]
            if with_synonyms
            else [],
            config_type=entry.type,
            documentation="" if entry.source is ConfigSource.DYNAMIC_BROKER_LOGGER else None,
        )
        for entry in entries
        if selected is None or entry.name in selected
    ]


def _topic(node: ConfiguredNode, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    check_topic_name(name)
    if name not in node.image.topics:
        raise UnknownTopicOrPartition
    return topic_entries(node.image.topic_config(name), layers)


def _broker(node: ConfiguredNode, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        return default_broker_entries(layers)
    if _broker_id(name) != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}")
    return broker_entries(layers)


def _logger(node: ConfiguredNode, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if _broker_id(name) != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} but received {name}")
    levels = broker_loggers.levels().items()
    return [Entry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, 0, False, False, []) for name, level in levels]


def _client_metrics(node: ConfiguredNode, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty")
    return client_metrics_entries(node.image.config(ResourceType.CLIENT_METRICS, name))


def _group(node: ConfiguredNode, layers: BrokerLayers, name: str) -> Iterable[Entry]:
    if not name:
        raise InvalidRequest("Group name must not be empty")
    return group_entries(node.image.config(ResourceType.GROUP, name), layers)


_ENTRIES_OF: Final[dict[int, Callable[[ConfiguredNode, BrokerLayers, str], Iterable[Entry]]]] = {
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
