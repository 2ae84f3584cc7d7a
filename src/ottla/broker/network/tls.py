"""Connections over TLS: the same as any other, on a socket that encrypts.

Bytes are received in large pieces and decrypted in memory, so that a request of a megabyte is a few system calls and
not two for each of its records. What is encrypted is sent before more is taken: a socket without room makes whoever
sends come again with the same bytes, as OpenSSL itself has it. Files cannot be sent past the process; they are read in
pieces.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.broker.network.connection import Connection
from ottla.protocol.wire.types import Chunk
from ottla.protocol.wire.varint import Buffer
from ottla.storage.disk import FileRange

if TYPE_CHECKING:
    from ottla.broker.network.listener import Listener

_PIECE_BYTES = 256 * 1024


class TlsSocket:
    """A server's end of a TLS connection, with those methods of a socket that `Connection` uses."""

    __slots__ = ("_accepted", "_incoming", "_object", "_outgoing", "_room", "_socket", "_unsent", "has_more", "is_open")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, room: memoryview) -> None:
        self._socket = sock
        self._room = room
        """Where encrypted bytes are received; all connections of a listener share it."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: memoryview | None = None
        self._accepted = 0
        self.has_more = False
        """Whether there are bytes to read that the socket will not tell of: they were received already."""
        self.is_open = False
        """Whether both sides have agreed on keys."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def subject(self) -> Any:
        """The subject of the client's certificate; None if it has shown none."""
        certificate = self._object.getpeercert() if self.is_open else None
        return certificate.get("subject") if certificate else None

    def recv_into(self, buffer: memoryview) -> int:
        """Receive and decrypt; 0 at the end. Raises BlockingIOError if nothing is there."""
        size, got = len(buffer), 0
        self.has_more = False
        incoming = self._incoming
        while True:
            # Asking OpenSSL for what it cannot have is an exception, which costs more than looking first.
            if not incoming.pending and not self._object.pending():
                if got:
                    return got
                if not self._receive():
                    return 0
            try:
                if not self.is_open:
                    self._object.do_handshake()
                    self.is_open = True
                    self._push()
                    continue
                count = self._object.read(size - got, buffer[got:])
                assert isinstance(count, int), "into a buffer"
            except ssl.SSLWantReadError:
                self._push()
                if got:
                    return got
                if not self._receive():
                    return 0
                continue
            except ssl.SSLZeroReturnError:
                return got
            except ssl.SSLError:
                self._push_last()  # the alert that tells the client why
                raise
            got += count
            if not count or got == size:
                self.has_more = got == size
                return got

    def _receive(self) -> bool:
        """Take in encrypted bytes; False at the end."""
        received = self._socket.recv_into(self._room)
        if received:
            self._incoming.write(self._room[:received])
        return received > 0

    def send(self, data: Buffer) -> int:
        """Encrypt and send; how much of the data that was. After BlockingIOError the same data must come again."""
        if self._unsent is None:
            piece = memoryview(data)[:_PIECE_BYTES]
            self._accepted = 0
            while self._accepted < len(piece):
                self._accepted += self._object.write(piece[self._accepted :])
            self._unsent = memoryview(self._outgoing.read())
        unsent = self._unsent
        while unsent:
            unsent = self._unsent = unsent[self._socket.send(unsent) :]
        self._unsent = None
        return self._accepted

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: object = (), flags: int = 0) -> int:
        """As `send`, for several pieces."""
        return self.send(b"" if self.is_blocked else b"".join(buffers))

    @property
    def is_blocked(self) -> bool:
        """Whether what was last encrypted is not sent yet: `send` then needs no data."""
        return self._unsent is not None

    def close(self) -> None:
        """Tell the client that nothing follows, if that can be done at once."""
        if self.is_open and self._unsent is None:
            with suppress(ssl.SSLError):  # the client has not said farewell yet, and is not waited for
                self._object.unwrap()
            self._push_last()
        self._socket.close()

    def _push(self) -> None:
        """Send what the protocol itself has to say: a handshake, new keys."""
        if self._unsent is None and self._outgoing.pending:
            said = self._outgoing.read()
            if self._socket.send(said) < len(said):
                raise OSError("the client takes in nothing, not even what TLS itself has to say")

    def _push_last(self) -> None:
        with suppress(OSError):  # the connection ends anyway
            self._push()


class TlsConnection(Connection):
    """A client's connection over TLS."""

    __slots__ = ("_goes_on", "_tls")

    def __init__(self, listener: Listener, sock: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        self._goes_on = False
        """Whether it will read on soon, without having been told by the socket."""
        self._tls = TlsSocket(sock, context, listener.encrypted)
        super().__init__(listener, self._tls, peer)  # type: ignore[arg-type] # all of a socket that is used

    @property
    def subject(self) -> Any:
        """The subject of the client's certificate; None if it has shown none."""
        return self._tls.subject()

    def _readable(self, *, has_room: bool = False) -> None:
        super()._readable(has_room=has_room)
        self._read_on()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._read_on()

    def _read_on(self) -> None:
        if self._tls.has_more and self._is_reading and not (self.closed or self._goes_on):
            self._goes_on = True
            self.listener.loop.call_soon(self._read_rest)

    def _read_rest(self) -> None:
        self._goes_on = False
        if self._is_reading and not self.closed:
            self._readable()

    def _send_file(self, chunk: FileRange, out: deque[Chunk]) -> None:
        piece: Buffer = b""
        if not self._tls.is_blocked:
            size = min(chunk.size, _PIECE_BYTES)
            piece = chunk.held[:size] if chunk.held is not None else os.pread(chunk.file.number, size, chunk.position)
            if not piece and chunk.size:
                raise OSError(f"{chunk} ends early: the log was cut meanwhile")
        sent = self._tls.send(piece)
        if sent == chunk.size:
            out.popleft()
        else:
            out[0] = FileRange(chunk.file, chunk.position + sent, chunk.size - sent)
