"""Envelopes for client requests that are forwarded to the active controller, and for their answers (KIP-590).

The envelope holds the client's request with its header, principal and address, so that the controller decides as if the
client had connected to it. Errors of the envelope itself are for the broker: the node is not the active controller, or
it does not support the version of the enclosed request. In the second case the client's connection is closed, as in
Kafka, and the client asks for the supported versions again.
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
    """Return an envelope with a client's request."""
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
    """Return the enclosed answer. For envelope errors, raise NotController, CloseConnection or UnknownServerError."""
    name = call.route.api.name
    if envelope.error_code == NotController.code:
        raise NotController("the node is not the active controller")
    if envelope.error_code == UnsupportedVersion.code:
        raise CloseConnection(f"the active controller does not serve {name} v{call.version}")
    if envelope.error_code:
        logger.warning("the controller refused a forwarded %s: %s", name, by_code(envelope.error_code).name)
        raise UnknownServerError
    try:
        return _answer(call, envelope.response_data or b"")
    except ProtocolError as error:
        logger.error("cannot read the controller's answer to a forwarded %s v%d: %s", name, call.version, error)
        raise UnknownServerError from error


def _answer(call: Call[Any], data: bytes) -> Any:
    view = memoryview(data)
    header, pos = decode_from(ResponseHeader, 1 if call.route.has_flexible_response else 0, view)
    if header.correlation_id != call.correlation_id:
        raise ProtocolError(f"its correlation id is {header.correlation_id}, expected {call.correlation_id}")
    return decode(call.route.api.response, call.version, view[pos:])


def _principal(client: Client) -> bytes:
    kind, _, name = client.principal.partition(":")
    principal = DefaultPrincipal(type=kind, name=name, token_authenticated=client.has_token)
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + encode(principal, _PRINCIPAL_VERSION)
