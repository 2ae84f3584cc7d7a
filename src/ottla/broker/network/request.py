"""One request on its way: bytes in, exactly one outcome out, and the times in between.

The outcome is an answer, nothing (a produce that wants none), or the end of the connection. Throttling comes on top: it
keeps the connection from being read for a while after its answer, and consumes no outcome.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.protocol.wire.types import Chunk

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection


class SecondOutcome(AssertionError):
    """A request was to have another outcome after its first, which stays the only one."""


class Request:
    """A frame, and what became of it. Times are nanoseconds of one clock; 0 where it was not reached."""

    __slots__ = (
        "arrived_ns",
        "connection",
        "frame",
        "handled_ns",
        "is_answered",
        "mute_ms",
        "note",
        "received_bytes",
        "replied_ns",
        "sending_ns",
        "sent_bytes",
        "sent_ns",
        "started_ns",
    )

    def __init__(self, connection: Connection, frame: memoryview, arrived_ns: int) -> None:
        self.connection = connection
        self.frame: memoryview | None = frame
        """The bytes without their length. They are the connection's buffer: gone once the request is answered."""
        self.arrived_ns = arrived_ns
        self.started_ns = 0
        """When a worker took it up: before that it was in the queue."""
        self.handled_ns = 0
        """When the handler returned: from then on it waited for something else."""
        self.replied_ns = 0
        """When the answer was there."""
        self.sending_ns = 0
        """When the socket took its first byte; 0 if that was as soon as the answer was there."""
        self.sent_ns = 0
        """When its last byte was given to the socket."""
        self.received_bytes = len(frame)
        self.sent_bytes = 0
        self.mute_ms = 0
        self.is_answered = False
        self.note: object = None
        """For whoever handles the request: what it will want to know when it was sent."""

    def __repr__(self) -> str:
        head = b"" if self.frame is None else bytes(self.frame[:8])
        return f"Request({self.received_bytes} bytes that begin with {head.hex()})"

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        """Answer with these bytes, which include the length in front of them."""
        self._settle(mute_ms)
        self.connection.send(chunks, self)

    def skip(self, *, mute_ms: int = 0) -> None:
        """Answer nothing, and go on with the connection's next request."""
        self._settle(mute_ms)
        self.sent_ns = self.replied_ns
        self.connection.done(self)

    def refuse(self, why: str) -> None:
        """End the connection instead of an answer."""
        self._settle(0)
        self.connection.refuse(why)
        self.connection.listener.on_sent(self)

    def abort(self, why: str) -> None:
        """End the connection after a defect, unless the request has had its outcome in spite of it."""
        if not self.is_answered:
            self.connection.listener.intake.aborted += 1
            self.refuse(why)
        elif self.connection.is_stuck_with(self):
            self.connection.listener.intake.aborted += 1
            self.connection.close(why)
            self.connection.listener.on_sent(self)

    def hang_up(self, after_ms: int, why: str) -> None:
        """End the connection in a while, and take no more requests from it; the client has had its answer."""
        connection = self.connection
        connection.mute()
        connection.listener.loop.call_later(after_ms / 1000, connection.close, why)

    def keep(self) -> None:
        """Hold on to the bytes: whoever answers later and still needs them must say so before it returns."""
        if self.frame is not None:
            self.frame = memoryview(bytearray(self.frame))

    def _settle(self, mute_ms: int) -> None:
        if self.is_answered:
            raise SecondOutcome(f"a request has one outcome, and {self!r} has had its own")
        self.is_answered = True
        self.frame = None
        self.mute_ms = mute_ms
        self.replied_ns = perf_counter_ns()
