"""ListConfigResources (key 74): the names of resources that can have settings.

v0 lists subscriptions of client metrics only · v1 lists by resource type (KIP-1142); without types, it lists all.
"""

from collections.abc import Iterable
from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KINDS: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


@endpoint(ApiKey.LIST_CONFIG_RESOURCES, guard=of_cluster(Operation.DESCRIBE_CONFIGS))
def list_config_resources(call: Call[BrokerNode], request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the existing topics and brokers, and the other resources that have settings."""
    requested: Iterable[int] = request.resource_types or _KINDS
    if call.version == 0:
        requested = (ResourceType.CLIENT_METRICS,)
    elif not set(_KINDS).issuperset(requested):
        raise UnsupportedVersion(f"not all of the resource types {list(requested)} are known")
    image = call.node.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _KINDS
            if kind in requested
            for name in _names(image, kind)
        ]
    )


def _names(image: Image, kind: ResourceType) -> list[str]:
    if kind is ResourceType.TOPIC:
        return sorted(image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker.id) for broker in image.alive_brokers]
    return sorted(resource.name for resource in image.configs if resource.type == kind)
