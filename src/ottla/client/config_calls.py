"""Admin calls about settings: what is in force, where it comes from, and changes to single settings (KIP-339)."""

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
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    """The default for all brokers, set while they run."""
    FILE = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """What is done to a setting; the last two are for those that are lists."""

    SET = 0
    UNSET = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """Something that has settings, such as `Resource(Kind.TOPIC, "orders")`. A broker without a name is all of them."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "the cluster's default"
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name!r}"


CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")


class ConfigEntry(NamedTuple):
    """A setting as it is in force."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str
    synonyms: tuple[tuple[ConfigSource, str, str | None], ...]
    """Where else it could come from, in order: source, name and value; the first one is in force."""


class ConfigCalls:
    """The part of `Admin` that is about settings."""

    cluster: Cluster

    async def settings(
        self, resource: ConfigResource, *, names: Sequence[str] | None = None, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The settings of a resource, by name."""
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
            (found,) = answer.results
            raise_for_code(found.error_code, found.error_message, str(resource))
            return sorted(map(_setting, found.configs))

        return await self.cluster.retry(attempt)

    async def change_settings(
        self,
        resource: ConfigResource,
        changes: Iterable[tuple[str, ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings, all of them or none; the others stay as they are."""
        configs = [AlterableConfig(name=name, config_operation=what, value=value) for name, what, value in changes]
        wanted = AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=configs)

        async def attempt() -> None:
            request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
            answer: IncrementalAlterConfigsResponse = await self.cluster.send(request, node=_node(resource))
            (changed,) = answer.responses
            raise_for_code(changed.error_code, changed.error_message, str(resource))

        await self.cluster.retry(attempt)


def _node(resource: ConfigResource) -> int | None:
    """A broker's own settings are known only to itself."""
    if resource.kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not resource.name:
        return None
    if not resource.name.isdecimal():
        raise InvalidRequest(f"a broker is named by its number, and {resource.name!r} is none")
    return int(resource.name)


def _setting(found: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple((_source(each.source), each.name, each.value) for each in found.synonyms)
    return ConfigEntry(
        found.name,
        found.value,
        _source(found.config_source),
        found.read_only,
        found.is_sensitive,
        found.documentation or "",
        synonyms,
    )


def _source(code: int) -> ConfigSource:
    return ConfigSource(code) if code in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
