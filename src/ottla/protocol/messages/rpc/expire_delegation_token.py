"""ExpireDelegationToken (key 40): change the expiry of a delegation token, or expire it now.

v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = since("1+", default=b"")
    expiry_time_period_ms: Int64 = since("1+", default=0)


@response(key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = since("1+", default=0)
    expiry_timestamp_ms: Int64 = since("1+", default=0)
    throttle_time_ms: Int32 = since("1+", default=0)
