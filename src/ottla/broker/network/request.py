"""One request: its bytes, exactly one outcome, and the times in between.

The outcome is an answer, nothing (a produce with `acks=0`), or the end of the connection. Throttling is not an outcome:
it delays the next request of the connection after this one's answer.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.protocol.wire.types import Chunk

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection


class SecondOutcome(AssertionError):
    """A request got a second outcome; the first one stands."""


class Request:
    """A frame and its outcome. Times are nanoseconds of one clock, and 0 for steps that the request has not reached."""

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
        """The bytes without their length. They are a view of the connection's buffer, valid until the outcome."""
        self.arrived_ns = arrived_ns
        self.started_ns = 0
        """When a worker took the request from the queue."""
        self.handled_ns = 0
        """When the handler returned. From then on, the request waits for something else."""
        self.replied_ns = 0
        """When the answer was complete."""
        self.sending_ns = 0
        """When the socket took the first byte of the answer; 0 if that was at once."""
        self.sent_ns = 0
        """When the socket took the last byte of the answer."""
        self.received_bytes = len(frame)
        self.sent_bytes = 0
        self.mute_ms = 0
        self.is_answered = False
        self.note: object = None
        """Data of the request handlers, for use when the answer has been sent."""

    def __repr__(self) -> str:
        head = b"" if self.frame is None else bytes(self.frame[:8])
        return f"Request({self.received_bytes} bytes, beginning with {head.hex()})"

    def reply(self, chunks: list[Chunk], *, mute_ms: int = 0) -> None:
        """Send an answer: these bytes, which begin with their length."""
        self._settle(mute_ms)
        self.connection.send(chunks, self)

    def skip(self, *, mute_ms: int = 0) -> None:
        """Send no answer, and take the connection's next request."""
        self._settle(mute_ms)
        self.sent_ns = self.replied_ns
        self.connection.done(self)

    def refuse(self, why: str) -> None:
        """Close the connection instead of sending an answer."""
        self._settle(0)
        self.connection.refuse(why)
        self.connection.listener.on_sent(self)

    def abort(self, why: str) -> None:
        """Close the connection after a defect, unless the request had its outcome before it."""
        if not self.is_answered:
            self.connection.listener.request_channel.aborted += 1
            self.refuse(why)
        elif self.connection.is_stuck_with(self):
            self.connection.listener.request_channel.aborted += 1
            self.connection.close(why)
            self.connection.listener.on_sent(self)

    def hang_up(self, after_ms: int, why: str) -> None:
        """Take no more requests from the connection, and close it after a delay; the client has its answer."""
        self.connection.close_later(after_ms, why)

    def keep(self) -> None:
        """Copy the bytes out of the connection's buffer, for a handler that needs them after it returns."""
        if self.frame is not None:
            self.frame = memoryview(bytearray(self.frame))

    def _settle(self, mute_ms: int) -> None:
        if self.is_answered:
            raise SecondOutcome(f"a request has one outcome, and {self!r} already had it")
        self.is_answered = True
        self.frame = None
        self.mute_ms = mute_ms
        self.replied_ns = perf_counter_ns()
