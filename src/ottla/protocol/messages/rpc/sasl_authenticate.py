"""SaslAuthenticate (key 36): one step of the SASL exchange.

v1 returns the session lifetime (KIP-368) · v2 flexible.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16, Int64


@request(key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = since("0+", default=b"")


@response(key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    auth_bytes: bytes = since("0+", default=b"")
    session_lifetime_ms: Int64 = since("1+", default=0)
