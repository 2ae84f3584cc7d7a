"""One connection: frames in, answers out, one request at a time.

Frames are parsed where they were received. All connections share one receive buffer for small frames. A large frame
gets a buffer of its own, which grows with the bytes that arrive, not with the announced length. While a request is in
flight, nothing more is read. An answer is sent as far as the socket takes it, and the rest follows when there is room.
Small answers to pipelined requests are sent together, because sending is much of their cost. File ranges are sent from
the file (`sendfile`) without passing through the process, unless they are so small that one call for everything costs
less.

`connection_state.py` has the states and the legal changes between them.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.network.connection_state import (
    CLOSED,
    CLOSING,
    DISPATCHING,
    HANDLING,
    PARSING,
    PIPELINED,
    READING,
    THROTTLED,
    WRITING,
)
from ottla.broker.network.request import Request
from ottla.protocol.wire.types import Chunk
from ottla.protocol.wire.varint import Buffer
from ottla.storage.disk import FileRange

if TYPE_CHECKING:
    from ottla.broker.network.listener import Listener

logger = logging.getLogger(__name__)

_LENGTH_BYTES = 4
_length = struct.Struct(">i").unpack_from
_FIRST_BUFFER_BYTES = 64 * 1024
_KEPT_BUFFER_BYTES = 1024 * 1024
_FRAMES_PER_TURN = 64
"""Requests to take from a buffer before other connections get their turn."""
_IOV_MAX = 64
_JOINED_BYTES = 4096
"""Pieces that are this small on average are joined: copying them costs less than describing each to the kernel. Half a
megabyte about 500 topics is a hundred thousand pieces; in front of fetched records there are a dozen."""
_HELD_ANSWERS = 16
"""Answers to send together at most, so that none waits long for the requests behind its own."""
_MORE = getattr(socket, "MSG_MORE", 0)
_SMALL_BYTES = 32 * 1024
"""Up to this size a copy costs less than the two more system calls of `sendfile`."""


class Connection:
    """A client's connection, owned by its listener."""

    __slots__ = (
        "_buffer",
        "_filled",
        "_has_reader",
        "_has_writer",
        "_out",
        "_sending",
        "_socket",
        "_start",
        "in_flight",
        "last_ns",
        "listener",
        "peer",
        "session",
        "state",
    )

    def __init__(self, listener: Listener, sock: socket.socket, peer: str) -> None:
        self.listener = listener
        self.peer = peer
        """The client's address, without its port."""
        self.session: object = None
        """What the request handlers keep for the connection: the client's identity and software."""
        self.in_flight: Request | None = None
        self.state = READING
        self.last_ns = perf_counter_ns()
        """When the last request arrived."""
        self._socket = sock
        self._buffer: bytearray | None = None
        self._start = self._filled = 0
        """The bytes of `_buffer` that were received and not yet parsed."""
        self._out: deque[Chunk] = deque()
        self._sending: list[Request] = []
        """The requests whose answers are in `_out`. Only the last of them can still be in flight."""
        self._has_writer = False
        """Whether the event loop watches the socket for room to write."""
        self._has_reader = True
        """Whether the event loop watches the socket for bytes."""
        listener.loop.add_reader(sock.fileno(), self._readable)

    @property
    def is_closed(self) -> bool:
        return self.state is CLOSED

    @property
    def peer_port(self) -> int | None:
        """The client's port; None if the client is gone."""
        try:
            return int(self._socket.getpeername()[1])
        except OSError:
            return None

    def name(self, number: int) -> str:
        """Return Kafka's name for the connection: both ends, the processor, which is always 0, and a number."""
        try:
            host, port = self._socket.getsockname()[:2]
        except OSError:  # the client is gone
            host, port = "", 0
        return f"{host}:{port}-{self.peer}:{self.peer_port or 0}-0-{number}"

    def __repr__(self) -> str:
        return f"Connection({self.peer} on {self.listener.name})"

    def send(self, chunks: list[Chunk], request: Request) -> None:
        """Send an answer, or hold it for the answers to the requests that were received with this one."""
        state = self.state
        if state is CLOSED:
            self.listener.on_sent(request)
            return
        if len(chunks) > 1:
            request.sent_bytes, pieces = sum(map(len, chunks)), _pieces(chunks)
            is_one_buffer = len(pieces) == 1 and type(pieces[0]) is not FileRange
        else:
            request.sent_bytes, pieces = len(chunks[0]), chunks
            is_one_buffer = True  # a file range is never alone
        # Nearly every answer without records, and every small one with records, takes this short cut. It saves 106 of
        # the 531 opcodes that a request and its answer cost in this room, and 0.3 of 4.2 microseconds.
        if is_one_buffer and state is not PIPELINED and not self._out:
            try:
                sent = self._socket.send(pieces[0])  # type: ignore[arg-type] # no file range
            except OSError:
                sent = 0  # sending the rest raises the error again
            if sent == request.sent_bytes:
                request.sent_ns = perf_counter_ns()
                self.done(request)
                return
            pieces = [memoryview(pieces[0])[sent:]]  # type: ignore[arg-type] # as above
        self._sending.append(request)
        self._out.extend(pieces)
        if state is PIPELINED and self._can_hold(pieces, request):
            self.in_flight = None
            self.state = PARSING
            return
        self._flush()

    def _can_hold(self, pieces: list[Chunk], request: Request) -> bool:
        """Return whether an answer may wait for the next one, to be sent with it."""
        return (
            len(pieces) == 1
            and len(self._sending) < _HELD_ANSWERS
            and not request.mute_ms
            and type(pieces[0]) is not FileRange
        )

    def done(self, request: Request) -> None:
        """Finish the request in flight, whose outcome is complete, and take the next one."""
        self.in_flight = None
        self.listener.on_sent(request)
        if request.mute_ms:
            self._throttle(request.mute_ms)
        elif self.state is DISPATCHING or self.state is PIPELINED:
            self.state = PARSING
        elif self.state is HANDLING:
            self._proceed()

    def close_later(self, delay_ms: int, why: str) -> None:
        """Take no more requests, and close the connection after a delay."""
        if self.state is not CLOSED:
            self.state = CLOSING
            self.listener.loop.call_later(delay_ms / 1000, self.close, why)

    def refuse(self, why: str) -> None:
        """Close the connection after sending the answers that were held for later ones."""
        if self._out and not self._has_writer and self.state is not CLOSED:
            self._flush()
        self.close(why)

    def is_stuck_with(self, request: Request) -> bool:
        """Return whether a defect kept the answer to this request from being sent."""
        return request is self.in_flight and request not in self._sending and self.state is not CLOSED

    @property
    def waiting_answers(self) -> int:
        """The number of answers of which the socket has not taken a byte."""
        left, count = sum(map(len, self._out)), 0
        for request in reversed(self._sending):
            if left < request.sent_bytes:
                break
            left -= request.sent_bytes
            count += 1
        return count

    def close(self, why: str = "") -> None:
        """Close the connection, and drop the answers that were not sent."""
        if self.state is CLOSED:
            return
        self.state = CLOSED
        self.listener.request_channel.blocked.pop(self._take_room, None)
        loop, number = self.listener.loop, self._socket.fileno()
        if self._has_reader:
            loop.remove_reader(number)
        if self._has_writer:
            loop.remove_writer(number)
        self._socket.close()
        self._out.clear()
        self._buffer = None
        unsent, self._sending = self._sending, []
        self.listener.forget(self, why)
        for request in unsent:
            self.listener.on_sent(request)

    def _readable(self, *, has_room: bool = False) -> None:
        if self.state is not READING:
            self._stop_reading()
            return
        if self.listener.request_channel.is_full and not has_room:
            self._stop_reading()
            self.listener.request_channel.blocked[self._take_room] = None
            return
        try:
            if self._buffer is None:
                self._receive_shared()
            else:
                self._receive_own(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"reading failed: {error}")

    def _receive_shared(self) -> None:
        """Receive into the buffer that all connections share, and keep only the beginning of an incomplete frame."""
        scratch = self.listener.scratch
        received = self._socket.recv_into(scratch)
        if not received:
            self.close()
            return
        end = self._parse(scratch, 0, received)
        if end < received and self.state is not CLOSED:
            rest = scratch[end:received]
            self._buffer = bytearray(max(len(rest), min(self._frame_bytes(rest), _FIRST_BUFFER_BYTES)))
            self._buffer[: len(rest)] = rest
            self._start, self._filled = 0, len(rest)
            self._make_room()

    def _receive_own(self, buffer: bytearray) -> None:
        if self._filled == len(buffer):
            # The buffer is full of requests that wait for their turn. Receiving 0 bytes would look like the end.
            self._parse_own(buffer)
            return
        with memoryview(buffer) as view, view[self._filled :] as room:
            received = self._socket.recv_into(room)
        if not received:
            self.close("the client closed it in the middle of a request")
            return
        self._filled += received
        self._parse_own(buffer)

    def _parse_own(self, buffer: bytearray) -> None:
        """Take the requests out of the connection's own buffer."""
        self._start = self._parse(memoryview(buffer), self._start, self._filled)
        if self.state is not CLOSED:
            self._make_room()

    def _make_room(self) -> None:
        """Make room for the rest of the next frame, or release the buffer if it is empty."""
        buffer, left = self._buffer, self._filled - self._start
        assert buffer is not None
        if not left:
            self._start = self._filled = 0
            # A client that sent a large request will send more of them. The shared buffer is enough for small ones.
            if not _FIRST_BUFFER_BYTES < len(buffer) <= _KEPT_BUFFER_BYTES:
                self._buffer = None
            return
        with memoryview(buffer) as view, view[self._start : self._filled] as rest:
            wanted = self._frame_bytes(rest)
            has_room = self._start == 0 and left < len(buffer)
            if left >= wanted or self._start + wanted <= len(buffer) or has_room:
                return
            # The buffer doubles as bytes arrive: an announced length reserves nothing.
            size = min(wanted, max(2 * left, _FIRST_BUFFER_BYTES))
            moved = buffer if size <= len(buffer) else bytearray(size)
            moved[:left] = rest
        self._buffer, self._start, self._filled = moved, 0, left

    def _frame_bytes(self, rest: memoryview) -> int:
        """Return the size of the frame that begins here, or the size of the length if that is incomplete."""
        return int(_length(rest)[0]) + _LENGTH_BYTES if len(rest) >= _LENGTH_BYTES else _LENGTH_BYTES

    def _parse(self, view: memoryview, start: int, end: int) -> int:
        """Hand over whole frames one at a time; return where the rest begins."""
        self.state = PARSING
        turns = _FRAMES_PER_TURN
        channel = self.listener.request_channel
        limit = self.listener.limits.max_request_bytes
        while end - start >= _LENGTH_BYTES and self.state is PARSING:
            if channel.is_full:
                channel.blocked[self._take_room] = None
                break
            size = _length(view, start)[0]
            if not 0 < size <= limit:
                self.listener.reject(self, f"a request of {size} bytes, where 1 to {limit} are allowed")
                break
            stop = start + _LENGTH_BYTES + size
            if stop > end or not turns:
                break
            turns -= 1
            request = Request(self, view[start + _LENGTH_BYTES : stop], perf_counter_ns())
            self.in_flight = request
            self.last_ns = request.arrived_ns
            self.state = PIPELINED if end - stop >= _LENGTH_BYTES else DISPATCHING
            start = stop
            channel.submit(request)
        if self._out and not self._has_writer:
            self._flush()
        if self.state is PARSING:
            self.state = READING
            if not turns:
                self.listener.loop.call_soon(self._take_turn)
        elif self.state is DISPATCHING or self.state is PIPELINED:
            self.state = HANDLING
        return start

    def _proceed(self) -> None:
        """Take the next request: from the bytes that were received already, then from the socket."""
        if self._out:
            self.state = WRITING
            return
        self.state = READING
        if self._buffer is not None and self._filled > self._start:
            self._parse_own(self._buffer)
        self._resume_reading()

    def _take_turn(self) -> None:
        """Parse the rest of a buffer after other connections had their turn."""
        if self.state is READING:
            self._proceed()

    def _take_room(self) -> None:
        """Fill the room that the queue of requests has for this connection."""
        try:
            self._take_turn()
            if self._has_reader and self.state is not CLOSED:
                self._readable(has_room=not self.listener.request_channel.is_full)
        except Exception:
            logger.exception("cannot read from %r; closing the connection", self)
            self.close("reading failed; the log of the node has the details")

    def _throttle(self, delay_ms: int) -> None:
        if self.state is not CLOSING and self.state is not CLOSED:
            self.state = THROTTLED
            self.listener.loop.call_later(delay_ms / 1000, self._end_throttle)

    def _end_throttle(self) -> None:
        if self.state is THROTTLED:
            self._proceed()

    def _resume_reading(self) -> None:
        if self.state is READING and not self._has_reader:
            self._has_reader = True
            self.listener.loop.add_reader(self._socket.fileno(), self._readable)

    def _stop_reading(self) -> None:
        if self._has_reader:
            self._has_reader = False
            self.listener.loop.remove_reader(self._socket.fileno())

    def _flush(self) -> None:
        """Send as much as the socket takes; it calls again when there is room for more."""
        out = self._out
        start_ns = perf_counter_ns() if self._has_writer or len(self._sending) > 1 else 0
        try:
            while out:
                if type(out[0]) is FileRange:
                    self._send_file(out[0], out)
                else:
                    self._send_buffers(out)
        except BlockingIOError:
            self._note_first_bytes(start_ns)
            if self.state is PARSING:
                self.state = WRITING
            if not self._has_writer:
                self._has_writer = True
                self.listener.loop.add_writer(self._socket.fileno(), self._flush)
            return
        except OSError as error:
            self.close(f"writing failed: {error}")
            return
        except Exception:
            logger.exception("cannot send an answer on %r; closing the connection", self)
            self.close("an answer could not be sent; the log of the node has the details")
            return
        if self._has_writer:
            self._note_first_bytes(start_ns)
            self._has_writer = False
            self.listener.loop.remove_writer(self._socket.fileno())
        elif start_ns:
            for request in self._sending:
                request.sending_ns = start_ns
        sending, self._sending = self._sending, []
        now_ns = perf_counter_ns()
        for request in sending:
            request.sent_ns = now_ns
            if request is not self.in_flight:
                self.listener.on_sent(request)
        if self.in_flight is sending[-1]:
            self.done(sending[-1])
        elif self.state is WRITING:
            self._proceed()

    def _note_first_bytes(self, start_ns: int) -> None:
        """Note when the socket took the first byte of each answer; the current attempt began at `start_ns`."""
        for request in self._sending[: len(self._sending) - self.waiting_answers]:
            request.sending_ns = request.sending_ns or start_ns or request.replied_ns

    def _send_buffers(self, out: deque[Chunk]) -> None:
        """Send the buffers in front of the next file range in one call."""
        if len(out) == 1:
            only: Buffer = out[0]  # type: ignore[assignment] # not a file range
            sent = self._socket.send(only)
            if sent == len(only):
                out.clear()
            else:
                out[0] = memoryview(only)[sent:]
            return
        buffers: list[Buffer] = []
        more = 0
        for chunk in out:
            if type(chunk) is FileRange:
                more = _MORE
                break
            if len(buffers) == _IOV_MAX:
                break
            buffers.append(chunk)  # type: ignore[arg-type] # not a file range
        sent = self._socket.sendmsg(buffers, (), more)
        for buffer in buffers:
            size = len(buffer)
            if size > sent:
                out[0] = memoryview(buffer)[sent:]
                return
            sent -= size
            out.popleft()

    def _send_file(self, chunk: FileRange, out: deque[Chunk]) -> None:
        sent = os.sendfile(self._socket.fileno(), chunk.file.number, chunk.position, chunk.size)
        if not sent and chunk.size:
            raise OSError(f"{chunk} ends early: the log was truncated meanwhile")
        if sent == chunk.size:
            out.popleft()
        else:
            out[0] = FileRange(chunk.file, chunk.position + sent, chunk.size - sent)


def _pieces(chunks: list[Chunk]) -> list[Chunk]:
    """Join small neighbours of an answer, small file ranges among them, to save system calls."""
    kinds = list(map(type, chunks))
    if FileRange not in kinds:
        return _join_small(chunks)
    pieces: list[Chunk] = []
    start, position = 0, -1
    for _ in range(kinds.count(FileRange)):
        position = kinds.index(FileRange, position + 1)
        chunk = chunks[position]
        if len(chunk) <= _SMALL_BYTES:
            chunk = chunks[position] = _read_range(chunk)  # type: ignore[arg-type] # a file range
            if type(chunk) is not FileRange:
                continue
        pieces += _join_small(chunks[start:position])
        pieces.append(chunk)
        start = position + 1
    return pieces + _join_small(chunks[start:])


def _join_small(chunks: list[Chunk]) -> list[Chunk]:
    """Join buffers that are small on average."""
    if len(chunks) < 2 or sum(map(len, chunks)) > len(chunks) * _JOINED_BYTES:
        return chunks
    return [b"".join(chunks)]  # type: ignore[arg-type] # no file range among them


def _read_range(chunk: FileRange) -> Chunk:
    """Return the bytes of a range, or the range if the log was truncated meanwhile; sending it then fails."""
    if chunk.held is not None:
        return chunk.held
    data = os.pread(chunk.file.number, chunk.size, chunk.position)
    return data if len(data) == chunk.size else chunk
