"""Envelope (key 58): a client's request that a broker forwards, with the client's principal and address (KIP-590)."""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.envelope import Enclosed
from ottla.protocol.errors import InvalidRequest, PrincipalDeserializationFailure, UnsupportedVersion
from ottla.protocol.messages.apis import BY_KEY, CONTROLLER, ApiKey
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.errors import ProtocolError

_ADDRESS_BYTES: Final = (4, 16)
_version = struct.Struct(">h")


@endpoint(ApiKey.ENVELOPE, on=CONTROLLER, guard=of_cluster(Operation.CLUSTER_ACTION))
def envelope(call: Call[ControllerNode], request: EnvelopeRequest) -> Later:
    """Handle the request inside for the client that sent it to the broker."""
    client = call.client.make_forwarded_client()
    client.principal, client.has_token = _principal(request.request_principal)
    client.address = _address(request.client_host_address)
    data = bytes(request.request_data)
    if len(data) < _version.size:
        raise UnsupportedVersion("there is no request in the envelope")
    api = BY_KEY.get(_version.unpack_from(data)[0])
    if api is None:
        raise UnsupportedVersion("the API of the request in the envelope is not known here")
    if not api.forwardable:
        raise InvalidRequest(f"API {api.name} is not enabled or is not eligible for forwarding")
    assert call.node.handle is not None, "a node that has listeners handles requests"
    call.node.handle(Enclosed(call, data), client)
    return LATER


def _principal(data: bytes | None) -> tuple[str, bool]:
    """Return the client's principal, and whether it authenticated with a delegation token."""
    try:
        if data is None:
            raise ProtocolError("the envelope has no principal")
        (version,) = _version.unpack_from(data)
        principal = decode(DefaultPrincipal, version, bytes(data)[_version.size :])
    except (ProtocolError, struct.error) as error:
        raise PrincipalDeserializationFailure(
            f"Failed to deserialize client principal from envelope: {error}"
        ) from None
    return f"{principal.type}:{principal.name}", principal.token_authenticated


def _address(data: bytes) -> str:
    if len(data) not in _ADDRESS_BYTES:
        raise InvalidRequest("Failed to parse client address from envelope")
    return str(ipaddress.ip_address(bytes(data)))
