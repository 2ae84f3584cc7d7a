"""SaslHandshake (key 17): choose the SASL mechanism for this connection.

v1 the exchange follows in SaslAuthenticate requests (KIP-152).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16


@request(key=ApiKey.SASL_HANDSHAKE, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = since("0+", default="")


@response(key=ApiKey.SASL_HANDSHAKE, versions="0-1")
class SaslHandshakeResponse:
    error_code: Int16 = since("0+", default=0)
    mechanisms: list[str] = since("0+", factory=list)
