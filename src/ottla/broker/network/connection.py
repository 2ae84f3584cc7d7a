"""One connection: frames in, answers out, one request at a time.

Frames are parsed where they were received: small ones in a buffer that all connections share, large ones in a buffer
of the connection's own, which grows with the bytes that have come and not with those that were announced. While a
request is under way nothing more is read. An answer goes out as far as the socket takes it; the rest follows when there
is room. Small answers to requests that came together go out together, since sending is much of what they cost. File
ranges are sent from the file (`sendfile`) without passing through the process, unless they are so small that one call
for everything costs less.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING

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
_FRAMES_A_TURN = 64
"""After so many requests in one go, other connections get their turn."""
_IOV_MAX = 64
_JOINED_BYTES = 4096
"""Pieces that are this small on average go out as one: copying some bytes is cheaper than telling the kernel of each
piece. Half a megabyte about 500 topics is a hundred thousand of them; in front of fetched records there are a dozen."""
_HELD_ANSWERS = 16
"""So many answers go out together at most, so that none waits long for the requests behind its own."""
_MORE = getattr(socket, "MSG_MORE", 0)
_SMALL_BYTES = 32 * 1024
"""Up to here a copy is cheaper than the two system calls more that `sendfile` takes."""


class Connection:
    """A client's connection, owned by its listener."""

    __slots__ = (
        "_buffer",
        "_filled",
        "_has_more",
        "_is_parsing",
        "_is_reading",
        "_is_writing",
        "_muted",
        "_out",
        "_sending",
        "_socket",
        "_start",
        "closed",
        "in_flight",
        "last_ns",
        "listener",
        "peer",
        "session",
    )

    def __init__(self, listener: Listener, sock: socket.socket, peer: str) -> None:
        self.listener = listener
        self.peer = peer
        """The client's address, without its port."""
        self.session: object = None
        """What whoever handles requests keeps for the connection: who the client is, what software."""
        self.in_flight: Request | None = None
        self.closed = False
        self.last_ns = perf_counter_ns()
        self._socket = sock
        self._buffer: bytearray | None = None
        self._start = self._filled = 0
        self._out: deque[Chunk] = deque()
        self._sending: list[Request] = []
        """The requests whose answers are in `_out`; all but the last are over as far as the next one is concerned."""
        self._has_more = False
        """Whether the request that is being handed over was followed by another."""
        self._is_parsing = False
        self._is_writing = False
        self._muted = False
        self._is_reading = True
        listener.loop.add_reader(sock.fileno(), self._readable)

    @property
    def peer_port(self) -> int | None:
        """The client's port, if the client is still there."""
        try:
            return int(self._socket.getpeername()[1])
        except OSError:
            return None

    def name(self, number: int) -> str:
        """Both ends and a number, as Kafka names connections; there is one processor, whose number is 0."""
        try:
            host, port = self._socket.getsockname()[:2]
        except OSError:  # it is gone already
            host, port = "", 0
        return f"{host}:{port}-{self.peer}:{self.peer_port or 0}-0-{number}"

    def __repr__(self) -> str:
        return f"Connection({self.peer} on {self.listener.name})"

    def send(self, chunks: list[Chunk], request: Request) -> None:
        """Send an answer; the next request is taken up when it is out, or is to be answered together with it."""
        if self.closed:
            self.listener.on_sent(request)
            return
        has_more = self._is_parsing and self._has_more
        if len(chunks) > 1:
            request.sent_bytes, pieces = sum(map(len, chunks)), _pieces(chunks)
        else:
            request.sent_bytes, pieces = len(chunks[0]), chunks
            if not has_more and not self._out:  # nearly every answer without records
                try:
                    sent = self._socket.send(chunks[0])  # type: ignore[arg-type] # a file range is never alone
                except OSError:
                    sent = 0  # what is wrong shows again when the rest is sent
                if sent == request.sent_bytes:
                    request.sent_ns = perf_counter_ns()
                    self.done(request)
                    return
                pieces = [memoryview(chunks[0])[sent:]]  # type: ignore[arg-type] # as above
        self._sending.append(request)
        self._out.extend(pieces)
        if has_more and self._can_hold(pieces, request):
            self.in_flight = None
            return
        self._flush()

    def _can_hold(self, pieces: list[Chunk], request: Request) -> bool:
        """Whether an answer may wait for those to the requests that came with its own."""
        return (
            len(pieces) == 1
            and len(self._sending) < _HELD_ANSWERS
            and not request.mute_ms
            and not self._is_writing
            and type(pieces[0]) is not FileRange
        )

    def done(self, request: Request) -> None:
        """A request's outcome is complete: go on with the next."""
        self.in_flight = None
        self.listener.on_sent(request)
        if request.mute_ms > 0:
            self._muted = True
            self.listener.loop.call_later(request.mute_ms / 1000, self._unmute)
        elif not self._is_parsing and not self.closed:
            self._proceed()

    def mute(self) -> None:
        """Take up no more requests."""
        self._muted = True

    def refuse(self, why: str) -> None:
        """End the connection, but not before answers leave that were held for those to the requests behind theirs."""
        if self._out and not self._is_writing and not self.closed:
            self._flush()
        self.close(why)

    def is_stuck_with(self, request: Request) -> bool:
        """Whether a request was answered, and a defect kept the answer from being sent."""
        return request is self.in_flight and request not in self._sending and not self.closed

    @property
    def waiting_answers(self) -> int:
        """How many answers wait to be sent: the socket has taken nothing of them yet."""
        left, count = sum(map(len, self._out)), 0
        for request in reversed(self._sending):
            if left < request.sent_bytes:
                break
            left -= request.sent_bytes
            count += 1
        return count

    def close(self, why: str = "") -> None:
        """End the connection; an answer that was not sent is dropped."""
        if self.closed:
            return
        self.closed = True
        self.listener.intake.blocked.pop(self._take_room, None)
        loop, number = self.listener.loop, self._socket.fileno()
        if self._is_reading:
            loop.remove_reader(number)
        if self._is_writing:
            loop.remove_writer(number)
        self._socket.close()
        self._out.clear()
        self._buffer = None
        unsent, self._sending = self._sending, []
        self.listener.forget(self, why)
        for request in unsent:
            self.listener.on_sent(request)

    def _readable(self, *, has_room: bool = False) -> None:
        if self.in_flight is not None or self._muted or self._out:
            self._stop_reading()
            return
        if self.listener.intake.is_full and not has_room:
            self._stop_reading()
            self.listener.intake.blocked[self._take_room] = None
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
        """Receive into the buffer that all connections share, and keep only what is left of a frame."""
        scratch = self.listener.scratch
        got = self._socket.recv_into(scratch)
        if not got:
            self.close()
            return
        end = self._parse(scratch, 0, got)
        if end < got and not self.closed:
            rest = scratch[end:got]
            self._buffer = bytearray(max(len(rest), min(self._frame_bytes(rest), _FIRST_BUFFER_BYTES)))
            self._buffer[: len(rest)] = rest
            self._start, self._filled = 0, len(rest)
            self._make_room()

    def _receive_own(self, buffer: bytearray) -> None:
        if self._filled == len(buffer):
            # Whole requests that wait for their turn: without room nothing can be received, which looks like an end.
            self._parse_own(buffer)
            return
        with memoryview(buffer) as view, view[self._filled :] as room:
            got = self._socket.recv_into(room)
        if not got:
            self.close("the client closed it inside a request")
            return
        self._filled += got
        self._parse_own(buffer)

    def _parse_own(self, buffer: bytearray) -> None:
        """Take the requests out of the connection's own buffer."""
        self._start = self._parse(memoryview(buffer), self._start, self._filled)
        if not self.closed:
            self._make_room()

    def _make_room(self) -> None:
        """See to it that the rest of the next frame can be received; let go of a buffer that is not needed."""
        buffer, left = self._buffer, self._filled - self._start
        assert buffer is not None
        if not left:
            self._start = self._filled = 0
            # Large requests come again; for small ones the shared buffer does.
            if not _FIRST_BUFFER_BYTES < len(buffer) <= _KEPT_BUFFER_BYTES:
                self._buffer = None
            return
        with memoryview(buffer) as view, view[self._start : self._filled] as rest:
            wanted = self._frame_bytes(rest)
            has_room = self._start == 0 and left < len(buffer)
            if left >= wanted or self._start + wanted <= len(buffer) or has_room:
                return
            # The buffer doubles as bytes come: a length alone, however large, reserves nothing.
            size = min(wanted, max(2 * left, _FIRST_BUFFER_BYTES))
            moved = buffer if size <= len(buffer) else bytearray(size)
            moved[:left] = rest
        self._buffer, self._start, self._filled = moved, 0, left

    def _frame_bytes(self, rest: memoryview) -> int:
        """The size of the frame that begins here, as far as it is known."""
        return int(_length(rest)[0]) + _LENGTH_BYTES if len(rest) >= _LENGTH_BYTES else _LENGTH_BYTES

    def _parse(self, view: memoryview, start: int, end: int) -> int:
        """Hand over whole frames, one at a time; returns where the first begins that was not."""
        self._is_parsing = True
        turns = _FRAMES_A_TURN
        intake = self.listener.intake
        limit = self.listener.max_request_bytes
        while end - start >= _LENGTH_BYTES and self.in_flight is None and not self._muted and not self.closed:
            if intake.is_full:
                intake.blocked[self._take_room] = None
                break
            size = _length(view, start)[0]
            if not 0 < size <= limit:
                self.listener.reject(self, f"a request of {size} bytes, where 1 to {limit} are allowed")
                break
            stop = start + _LENGTH_BYTES + size
            if stop > end or not turns:
                break
            turns -= 1
            self._has_more = end - stop >= _LENGTH_BYTES
            request = Request(self, view[start + _LENGTH_BYTES : stop], perf_counter_ns())
            self.in_flight = request
            self.last_ns = request.arrived_ns
            start = stop
            intake.submit(request)
        if self._out and not self._is_writing:
            self._flush()
        self._is_parsing = False
        if not turns and not self.closed:
            self.listener.loop.call_soon(self._proceed)
        return start

    def _proceed(self) -> None:
        """Go on with what has been received already, then with the socket."""
        if self.closed or self.in_flight is not None or self._muted or self._out:
            return
        if self._buffer is not None and self._filled > self._start:
            self._parse_own(self._buffer)
        self._resume_reading()

    def _take_room(self) -> None:
        """There is room in the queue of requests, and it is this connection's turn to fill it."""
        try:
            self._proceed()
            if self._is_reading and not self.closed:
                self._readable(has_room=not self.listener.intake.is_full)
        except Exception:
            logger.exception("%r could not be read and is closed", self)
            self.close("it could not be read; the node's log has the details")

    def _resume_reading(self) -> None:
        if self.in_flight is None and not (self.closed or self._muted or self._is_reading or self._out):
            self._is_reading = True
            self.listener.loop.add_reader(self._socket.fileno(), self._readable)

    def _unmute(self) -> None:
        self._muted = False
        self._proceed()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.listener.loop.remove_reader(self._socket.fileno())

    def _flush(self) -> None:
        """Send as much as the socket takes."""
        out = self._out
        start_ns = perf_counter_ns() if self._is_writing or len(self._sending) > 1 else 0
        try:
            while out:
                if type(out[0]) is FileRange:
                    self._send_file(out[0], out)
                else:
                    self._send_buffers(out)
        except BlockingIOError:
            self._note_begun(start_ns)
            if not self._is_writing:
                self._is_writing = True
                self.listener.loop.add_writer(self._socket.fileno(), self._flush)
            return
        except OSError as error:
            self.close(f"writing failed: {error}")
            return
        except Exception:
            logger.exception("an answer on %r could not be sent; the connection is closed", self)
            self.close("an answer could not be sent; the node's log has the details")
            return
        if self._is_writing:
            self._note_begun(start_ns)
            self._is_writing = False
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
        elif not self._is_parsing:
            self._proceed()

    def _note_begun(self, start_ns: int) -> None:
        """Note for each answer when the socket first took some of it; an attempt to send began at `start_ns`."""
        for request in self._sending[: len(self._sending) - self.waiting_answers]:
            request.sending_ns = request.sending_ns or start_ns or request.replied_ns

    def _send_buffers(self, out: deque[Chunk]) -> None:
        """Send the buffers in front of the next file range in one call."""
        if len(out) == 1:  # nearly every answer without records
            only: Buffer = out[0]  # type: ignore[assignment] # it is no file range
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
            buffers.append(chunk)  # type: ignore[arg-type] # it is no file range
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
            raise OSError(f"{chunk} ends early: the log was cut meanwhile")
        if sent == chunk.size:
            out.popleft()
        else:
            out[0] = FileRange(chunk.file, chunk.position + sent, chunk.size - sent)


def _pieces(chunks: list[Chunk]) -> list[Chunk]:
    """An answer in as few pieces as are worth it: neighbours that are small become one, small ranges of files too."""
    kinds = list(map(type, chunks))
    if FileRange not in kinds:
        return _joined(chunks)
    pieces: list[Chunk] = []
    start, at = 0, -1
    for _ in range(kinds.count(FileRange)):
        at = kinds.index(FileRange, at + 1)
        chunk = chunks[at]
        if len(chunk) <= _SMALL_BYTES:
            chunk = chunks[at] = _content(chunk)  # type: ignore[arg-type] # it is a file range
            if type(chunk) is not FileRange:
                continue
        pieces += _joined(chunks[start:at])
        pieces.append(chunk)
        start = at + 1
    return pieces + _joined(chunks[start:])


def _joined(chunks: list[Chunk]) -> list[Chunk]:
    """Buffers as one if they are small on average."""
    if len(chunks) < 2 or sum(map(len, chunks)) > len(chunks) * _JOINED_BYTES:
        return chunks
    return [b"".join(chunks)]  # type: ignore[arg-type] # none is a file range


def _content(chunk: FileRange) -> Chunk:
    """The bytes of a range; the range itself if the log was cut meanwhile, as sending will find out."""
    if chunk.held is not None:
        return chunk.held
    data = os.pread(chunk.file.number, chunk.size, chunk.position)
    return data if len(data) == chunk.size else chunk
