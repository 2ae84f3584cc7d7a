"""AlterConfigs (key 33): replace all settings of a resource; superseded by IncrementalAlterConfigs.

v1 responds before it throttles (KIP-219) · v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class AlterableConfig:
    name: str = since("0+", default="")
    value: str | None = since("0+", default="")


@struct
class AlterConfigsResource:
    resource_type: Int8 = since("0+", default=0)
    resource_name: str = since("0+", default="")
    configs: list[AlterableConfig] = since("0+", factory=list)


@request(key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = since("0+", factory=list)
    validate_only: bool = since("0+", default=False)


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    resource_type: Int8 = since("0+", default=0)
    resource_name: str = since("0+", default="")


@response(key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = since("0+", factory=list)
