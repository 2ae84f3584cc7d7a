"""ListConfigResources (key 74): the names of resources that have settings.

v1 all kinds of resource, not only client metrics (KIP-1142).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@request(key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[Int8] = since("1+", factory=list)


@struct
class ConfigResource:
    resource_name: str = since("0+", default="")
    resource_type: Int8 = since("1+", default=16)


@response(key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    config_resources: list[ConfigResource] = since("0+", factory=list)
