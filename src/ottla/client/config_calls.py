"""Admin calls about settings: their effective values and sources, and incremental changes (KIP-339)."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.retries import raise_for_code
from ottla.protocol.errors import InvalidRequest
from ottla.protocol.messages.rpc.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    """The types of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a setting's value."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    """The dynamic default for all brokers."""
    FILE = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """An operation on a setting. APPEND and SUBTRACT are for lists."""

    SET = 0
    UNSET = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A resource with settings, such as `ConfigResource(ResourceType.TOPIC, "orders")`. An unnamed broker means all."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "the cluster's default"
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name!r}"


CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")


class ConfigEntry(NamedTuple):
    """A setting and its effective value."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str
    synonyms: tuple[tuple[ConfigSource, str, str | None], ...]
    """The candidate values in order of precedence: source, name and value. The first one is effective."""


class ConfigCalls:
    """The calls of `Admin` about settings."""

    cluster: Cluster

    async def settings(
        self, resource: ConfigResource, *, names: Sequence[str] | None = None, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Return the settings of a resource, sorted by name."""
        wanted = DescribeConfigsResource(
            resource_type=resource.kind,
            resource_name=resource.name,
            configuration_keys=None if names is None else list(names),
        )

        async def attempt() -> list[ConfigEntry]:
            request = DescribeConfigsRequest(
                resources=[wanted], include_synonyms=True, include_documentation=documentation
            )
            answer: DescribeConfigsResponse = await self.cluster.send(request, node=_node(resource))
            (result,) = answer.results
            raise_for_code(result.error_code, result.error_message, str(resource))
            return sorted(map(_setting, result.configs))

        return await self.cluster.retry(attempt)

    async def change_settings(
        self,
        resource: ConfigResource,
        changes: Iterable[tuple[str, ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change these settings, all or none of them. Other settings keep their values."""
        configs = [AlterableConfig(name=name, config_operation=what, value=value) for name, what, value in changes]
        wanted = AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=configs)

        async def attempt() -> None:
            request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
            answer: IncrementalAlterConfigsResponse = await self.cluster.send(request, node=_node(resource))
            (changed,) = answer.responses
            raise_for_code(changed.error_code, changed.error_message, str(resource))

        await self.cluster.retry(attempt)


def _node(resource: ConfigResource) -> int | None:
    """Return the node to ask: only a broker itself knows its own settings."""
    if resource.kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not resource.name:
        return None
    if not resource.name.isdecimal():
        raise InvalidRequest(f"{resource.name!r} is not a broker id: name a broker by its number")
    return int(resource.name)


def _setting(result: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple((_source(synonym.source), synonym.name, synonym.value) for synonym in result.synonyms)
    return ConfigEntry(
        result.name,
        result.value,
        _source(result.config_source),
        result.read_only,
        result.is_sensitive,
        result.documentation or "",
        synonyms,
    )


def _source(code: int) -> ConfigSource:
    return ConfigSource(code) if code in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
