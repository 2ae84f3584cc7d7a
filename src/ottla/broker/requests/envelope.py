"""Envelope (key 58): a broker hands on a client's request, with who the client is (KIP-590).

The request inside goes the way of all requests, and its answer travels back inside the answer. An error of the envelope
itself is for the broker: that it should look for the active controller, or that the request inside cannot be read.

As in Kafka the two are counted and logged as one: as the request inside, with the envelope's times, from its arrival
to the last byte of its answer. An envelope that cannot be opened is counted as an Envelope.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Any, Final, cast

from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    PrincipalDeserializationFailure,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.types import Chunk

_LENGTH_BYTES: Final = 4
_ADDRESS_BYTES: Final = (4, 16)
_version = struct.Struct(">h")


class _Answer(EnvelopeResponse):
    """The answer to an envelope, with a throttle time that the message itself has no field for."""

    throttle_time_ms = 0


class Forwarded:
    """The note of an envelope that was opened: its outcome is recorded for the request inside."""

    __slots__ = ("_inside",)

    def __init__(self, inside: Any) -> None:
        self._inside = inside

    def record(self, request: object) -> None:
        """The envelope has had its outcome, and the request inside with it."""
        self._inside.record(request)

    def failed(self, codes: set[int]) -> None:
        """The envelope's answer holds an error instead of the answer of the request inside."""
        self._inside.failed(codes)


class Enclosed:
    """The request within an envelope, as the network would hand it over; its outcome is the envelope's answer."""

    def __init__(self, call: Call[ControllerNode], data: bytes) -> None:
        self._call = call
        self.frame: memoryview | None = memoryview(data)
        self.note: object = None
        self.mute_ms = 0
        """For how long the connection that brought the envelope is muted: only by a client without rights."""

    @property
    def started_ns(self) -> int:
        """When a worker took up the envelope; 0 if that is not known."""
        return int(getattr(self._call.exchange, "started_ns", 0))

    @property
    def handled_ns(self) -> int:
        """When its handler returned; 0 while it runs."""
        return int(getattr(self._call.exchange, "handled_ns", 0))

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        """Send the answer back, without the length that a frame would have. The client's broker mutes the client."""
        self._pass_on_note()
        data = b"".join(cast("list[bytes]", chunks))  # nothing that is handed on answers with records from a file
        answer = _Answer(response_data=data[_LENGTH_BYTES:])
        answer.throttle_time_ms = self.mute_ms
        self._call.answer(answer)

    def skip(self, *, mute_ms: int = 0) -> None:
        """No request that is handed on goes without an answer."""
        self.fail(UnknownServerError())

    def refuse(self, why: str) -> None:
        """It cannot be read, or not here."""
        self.fail(UnsupportedVersion(why))

    def abort(self, why: str) -> None:
        """Its answer cannot be sent."""
        self.fail(UnknownServerError(why))

    def keep(self) -> None:
        """Its bytes are its own."""

    def fail(self, error: ApiError) -> None:
        """Tell the broker instead of its client."""
        self._pass_on_note()
        self._call.answer(EnvelopeResponse(error_code=error.code))

    def _pass_on_note(self) -> None:
        """Let the envelope's outcome be that of the request inside, if it was understood."""
        if self.note is not None:
            self._call.exchange.note = Forwarded(self.note)


@endpoint(ApiKey.ENVELOPE)
def envelope(call: Call[ControllerNode], request: EnvelopeRequest) -> Later:
    """Open it, and let what is inside be handled for the client that sent it."""
    client = call.client.forwarded()
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
    """Who the client is, and whether it proved that with a delegation token."""
    try:
        if data is None:
            raise ProtocolError("there is none")
        (version,) = _version.unpack_from(data)
        found = decode(DefaultPrincipal, version, bytes(data)[_version.size :])
    except (ProtocolError, struct.error) as error:
        raise PrincipalDeserializationFailure(
            f"Failed to deserialize client principal from envelope: {error}"
        ) from None
    return f"{found.type}:{found.name}", found.token_authenticated


def _address(data: bytes) -> str:
    if len(data) not in _ADDRESS_BYTES:
        raise InvalidRequest("Failed to parse client address from envelope")
    return str(ipaddress.ip_address(bytes(data)))
