"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses.

v1 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Float64, Int8, Int16, Int32


@struct
class ComponentData:
    entity_type: str = since("0+", default="")
    match_type: Int8 = since("0+", default=0)
    match: str | None = since("0+", default="")


@request(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = since("0+", factory=list)
    strict: bool = since("0+", default=False)


@struct
class EntityData:
    entity_type: str = since("0+", default="")
    entity_name: str | None = since("0+", default="")


@struct
class ValueData:
    key: str = since("0+", default="")
    value: Float64 = since("0+", default=0.0)


@struct
class EntryData:
    entity: list[EntityData] = since("0+", factory=list)
    values: list[ValueData] = since("0+", factory=list)


@response(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    entries: list[EntryData] | None = since("0+", factory=list)
