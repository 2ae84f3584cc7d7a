"""A client's request on its way to the active controller, and the answer on its way back (KIP-590).

The request travels as the client sent it, header included, with the client's principal and address beside it, so that
the controller decides as if the client had asked it. What a controller says about the envelope itself is for the
broker: that another controller is active, or that it does not know the version inside. The latter ends the client's
connection, as in Kafka: the client then asks anew which versions there are.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Any, Final

from ottla.broker.requests.call import Call, Client, CloseConnection
from ottla.protocol.errors import NotController, UnknownServerError, UnsupportedVersion, by_code
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.wire.codec import decode, decode_from, encode, is_flexible
from ottla.protocol.wire.errors import ProtocolError

logger = logging.getLogger(__name__)

_PRINCIPAL_VERSION: Final = 0


def enclose(call: Call[Any], request: Any) -> EnvelopeRequest:
    """A client's request, or what is left of it, in an envelope."""
    header = RequestHeader(
        request_api_key=call.api_key,
        request_api_version=call.version,
        correlation_id=call.correlation_id,
        client_id=call.client_id,
    )
    head = encode(header, 2 if is_flexible(type(request), call.version) else 1)
    return EnvelopeRequest(
        request_data=head + encode(request, call.version),
        request_principal=_principal(call.client),
        client_host_address=ipaddress.ip_address(call.client.address).packed,
    )


def open_answer(call: Call[Any], envelope: EnvelopeResponse) -> Any:
    """The answer for the client; raises NotController if another controller must be asked, or what ends the request."""
    name = call.route.api.name
    if envelope.error_code == NotController.code:
        raise NotController("the node that was asked is not the active controller")
    if envelope.error_code == UnsupportedVersion.code:
        raise CloseConnection(f"the active controller does not serve {name} v{call.version}")
    if envelope.error_code:
        logger.warning("the controller refused %s: %s", name, by_code(envelope.error_code).name)
        raise UnknownServerError
    try:
        return _answer(call, envelope.response_data or b"")
    except ProtocolError as error:
        logger.error("the controller's answer to %s v%d cannot be read: %s", name, call.version, error)
        raise UnknownServerError from error


def _answer(call: Call[Any], data: bytes) -> Any:
    view = memoryview(data)
    header, pos = decode_from(ResponseHeader, 1 if call.route.has_flexible_response else 0, view)
    if header.correlation_id != call.correlation_id:
        raise ProtocolError(f"it answers request {header.correlation_id} instead of {call.correlation_id}")
    return decode(call.route.api.response, call.version, view[pos:])


def _principal(client: Client) -> bytes:
    kind, _, name = client.principal.partition(":")
    found = DefaultPrincipal(type=kind, name=name, token_authenticated=client.has_token)
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + encode(found, _PRINCIPAL_VERSION)
