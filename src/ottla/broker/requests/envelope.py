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
    """The response to an envelope, with a throttle time, for which the message has no field."""

    throttle_time_ms = 0


class Forwarded:
    """The meter of an envelope that was opened: records the envelope's outcome for the request inside."""

    __slots__ = ("_inside",)

    def __init__(self, inside: Any) -> None:
        self._inside = inside

    def record(self, request: object) -> None:
        """Record the outcome of the envelope as the outcome of the request inside."""
        self._inside.record(request)

    def failed(self, codes: set[int]) -> None:
        """Count an error of the envelope as an error of the request inside."""
        self._inside.failed(codes)


class Enclosed:
    """The request inside an envelope. Its outcome becomes the envelope's answer."""

    def __init__(self, call: Call[ControllerNode], data: bytes) -> None:
        self._call = call
        self.frame: memoryview | None = memoryview(data)
        self.note: object = None
        self.mute_ms = 0
        """How long the broker's connection is muted: only if the client lacks the right to act for the cluster."""

    @property
    def started_ns(self) -> int:
        """When a worker began to handle the envelope; 0 if unknown."""
        return int(getattr(self._call.exchange, "started_ns", 0))

    @property
    def handled_ns(self) -> int:
        """When the handler of the envelope returned; 0 while it runs."""
        return int(getattr(self._call.exchange, "handled_ns", 0))

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        """Send the answer back, without the length prefix of a frame. The broker mutes its client."""
        self._pass_on_note()
        data = b"".join(cast("list[bytes]", chunks))  # no forwarded request is answered with records from a file
        answer = _Answer(response_data=data[_LENGTH_BYTES:])
        answer.throttle_time_ms = self.mute_ms
        self._call.answer(answer)

    def skip(self, *, mute_ms: int = 0) -> None:
        """Answer with an error: every forwarded request expects an answer."""
        self.fail(UnknownServerError())

    def refuse(self, why: str) -> None:
        """Answer that this node cannot decode the request."""
        self.fail(UnsupportedVersion(why))

    def abort(self, why: str) -> None:
        """Answer with an error, because the answer cannot be sent."""
        self.fail(UnknownServerError(why))

    def keep(self) -> None:
        """Do nothing: the bytes belong to this request already."""

    def fail(self, error: ApiError) -> None:
        """Answer the broker that forwarded the request, instead of its client."""
        self._pass_on_note()
        self._call.answer(EnvelopeResponse(error_code=error.code))

    def _pass_on_note(self) -> None:
        """Count the envelope as the request inside, if that could be decoded."""
        if self.note is not None:
            self._call.exchange.note = Forwarded(self.note)
