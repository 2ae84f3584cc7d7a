"""Envelope (key 58): a broker forwards a client's request to the controller, with the client's principal."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import Int16


@request(key=ApiKey.ENVELOPE, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = since("0+", default=b"")
    request_principal: bytes | None = since("0+", default=b"")
    client_host_address: bytes = since("0+", default=b"")


@response(key=ApiKey.ENVELOPE, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = since("0+", default=None)
    error_code: Int16 = since("0+", default=0)
