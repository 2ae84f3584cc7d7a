"""The states of a connection, and the changes between them.

              bytes              a frame                     answered
    READING ─────────> PARSING ───────────> DISPATCHING ───────────────> PARSING ... READING
                          │                      │
                          │ held answers         │ the handler returned, the outcome follows
                          v                      v
                       WRITING               HANDLING ───────────────> READING, or the next frame
                          │
                          └─ the socket took all answers ─> READING

A throttled answer leads to THROTTLED, and the end of the throttle time to READING. Every state but CLOSED may change to
CLOSING and CLOSED.

The state says what happens to the next request. What the event loop watches is not a part of it: a connection stays
registered for reading while a request is handled, because changing that costs a system call each time.
"""

from enum import Enum
from typing import Final


class ConnectionState(Enum):
    """What a connection does about its next request."""

    READING = "waits for the next request: for its bytes, or for room in the queue of requests"
    PARSING = "takes whole requests from a buffer"
    DISPATCHING = "hands over a request, the last that has been received"
    PIPELINED = "hands over a request that is followed by another; its answer may wait for the next one"
    HANDLING = "a request is in flight: its outcome follows, or the socket has not taken all of its answer"
    WRITING = "no request is in flight, and the socket has not taken all answers"
    THROTTLED = "takes no request until the throttle time is over"
    CLOSING = "takes no more requests, and closes after a delay"
    CLOSED = "the socket is closed"


# A state is compared several times for each request: a global costs one opcode, a member of the class two.
READING: Final[ConnectionState] = ConnectionState.READING
PARSING: Final[ConnectionState] = ConnectionState.PARSING
DISPATCHING: Final[ConnectionState] = ConnectionState.DISPATCHING
PIPELINED: Final[ConnectionState] = ConnectionState.PIPELINED
HANDLING: Final[ConnectionState] = ConnectionState.HANDLING
WRITING: Final[ConnectionState] = ConnectionState.WRITING
THROTTLED: Final[ConnectionState] = ConnectionState.THROTTLED
CLOSING: Final[ConnectionState] = ConnectionState.CLOSING
CLOSED: Final[ConnectionState] = ConnectionState.CLOSED

_OUTCOMES: Final = {THROTTLED, CLOSING, CLOSED}

LEGAL_TRANSITIONS: Final[dict[ConnectionState, set[ConnectionState]]] = {
    READING: {PARSING, CLOSING, CLOSED},
    PARSING: {DISPATCHING, PIPELINED, READING, WRITING, CLOSING, CLOSED},
    DISPATCHING: {PARSING, HANDLING, *_OUTCOMES},
    PIPELINED: {PARSING, HANDLING, *_OUTCOMES},
    HANDLING: {READING, WRITING, *_OUTCOMES},
    WRITING: {READING, CLOSING, CLOSED},
    THROTTLED: {READING, WRITING, CLOSING, CLOSED},
    CLOSING: {CLOSED},
    CLOSED: set(),
}
"""The states that may follow each state. Unit tests check every change against this table; the hot path does not."""
