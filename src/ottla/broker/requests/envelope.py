"""The request inside an envelope, which a broker forwarded for a client (KIP-590).

It takes the way of all requests, and its response travels back inside the envelope's response. An error of the envelope
itself is for the broker: another controller is active, or the request inside cannot be read.

As in Kafka, the two are counted and logged as one: as the request inside, with the envelope's times, from its arrival
to the last byte of its response. An envelope that cannot be opened is counted as an Envelope.
"""

from __future__ import annotations

from typing import Any, Final, cast

from ottla.broker.requests.call import Call
from ottla.broker.requests.controller_node import ControllerNode
from ottla.protocol.errors import ApiError, UnknownServerError, UnsupportedVersion
from ottla.protocol.messages.rpc.envelope import EnvelopeResponse
from ottla.protocol.wire.types import Chunk

_LENGTH_BYTES: Final = 4


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
