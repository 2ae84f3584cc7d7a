"""RenewDelegationToken (key 39): extend the expiry of a delegation token.

v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = since("1+", default=b"")
    renew_period_ms: Int64 = since("1+", default=0)


@response(key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = since("1+", default=0)
    expiry_timestamp_ms: Int64 = since("1+", default=0)
    throttle_time_ms: Int32 = since("1+", default=0)
