"""AlterClientQuotas (key 49): set or remove the quotas of users, client ids and addresses.

v1 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Float64, Int16, Int32


@struct
class EntityData:
    entity_type: str = since("0+", default="")
    entity_name: str | None = since("0+", default="")


@struct
class OpData:
    key: str = since("0+", default="")
    value: Float64 = since("0+", default=0.0)
    remove: bool = since("0+", default=False)


@struct
class EntryData:
    entity: list[EntityData] = since("0+", factory=list)
    ops: list[OpData] = since("0+", factory=list)


@request(key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = since("0+", factory=list)
    validate_only: bool = since("0+", default=False)


@struct
class ResponseEntryData:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    entity: list[EntityData] = since("0+", factory=list)


@response(key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    entries: list[ResponseEntryData] = since("0+", factory=list)
