"""DescribeConfigs (key 32): the settings of topics, brokers, groups and others, and where each comes from.

v2 responds before it throttles (KIP-219) · v3 type and documentation of a setting (KIP-569) · v4 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class DescribeConfigsResource:
    resource_type: Int8 = since("1+", default=0)
    resource_name: str = since("1+", default="")
    configuration_keys: list[str] | None = since("1+", factory=list)


@request(key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = since("1+", factory=list)
    include_synonyms: bool = since("1+", default=False)
    include_documentation: bool = since("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = since("1+", default="")
    value: str | None = since("1+", default="")
    source: Int8 = since("1+", default=0)


@struct
class DescribeConfigsResourceResult:
    name: str = since("1+", default="")
    value: str | None = since("1+", default="")
    read_only: bool = since("1+", default=False)
    config_source: Int8 = since("1+", default=-1)
    is_sensitive: bool = since("1+", default=False)
    synonyms: list[DescribeConfigsSynonym] = since("1+", factory=list)
    config_type: Int8 = since("3+", default=0)
    documentation: str | None = since("3+", default="")


@struct
class DescribeConfigsResult:
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default="")
    resource_type: Int8 = since("1+", default=0)
    resource_name: str = since("1+", default="")
    configs: list[DescribeConfigsResourceResult] = since("1+", factory=list)


@response(key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    results: list[DescribeConfigsResult] = since("1+", factory=list)
