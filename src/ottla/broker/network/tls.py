"""Connections over TLS: the same as plain ones, on a socket that encrypts.

Bytes are received in large pieces and decrypted in memory, so that a request of a megabyte takes a few system calls
instead of two for each TLS record. Encrypted bytes are sent before more data is encrypted: if the socket has no room,
the caller repeats the call with the same data, as OpenSSL requires. Files cannot bypass the process (`sendfile`), so
they are read in pieces.
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
    """The server's end of a TLS connection, with the methods of a socket that `Connection` uses."""

    __slots__ = (
        "_encrypted_bytes",
        "_incoming",
        "_object",
        "_outgoing",
        "_scratch",
        "_socket",
        "_unsent",
        "has_decrypted",
        "is_established",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, scratch: memoryview) -> None:
        self._socket = sock
        self._scratch = scratch
        """The receive buffer for encrypted bytes, which all connections of a listener share."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: memoryview | None = None
        """Encrypted bytes that the socket has not taken."""
        self._encrypted_bytes = 0
        """How much of the caller's data `_unsent` was made of."""
        self.has_decrypted = False
        """Whether received bytes wait to be read. The event loop does not report them: the socket is empty."""
        self.is_established = False
        """Whether the handshake is complete."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def subject(self) -> Any:
        """Return the subject of the client's certificate; None if the client presented none."""
        certificate = self._object.getpeercert() if self.is_established else None
        return certificate.get("subject") if certificate else None

    def recv_into(self, buffer: memoryview) -> int:
        """Receive and decrypt; return 0 at the end of the stream. Raise BlockingIOError if no bytes are available."""
        size, got = len(buffer), 0
        self.has_decrypted = False
        incoming = self._incoming
        while True:
            # If OpenSSL has no bytes, it raises an exception, which costs more than this check.
            if not incoming.pending and not self._object.pending():
                if got:
                    return got
                if not self._receive():
                    return 0
            try:
                if not self.is_established:
                    self._object.do_handshake()
                    self.is_established = True
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
                self._push_last()  # an alert that gives the client the reason
                raise
            got += count
            if not count or got == size:
                self.has_decrypted = got == size
                return got

    def _receive(self) -> bool:
        """Receive encrypted bytes; return False at the end of the stream."""
        received = self._socket.recv_into(self._scratch)
        if received:
            self._incoming.write(self._scratch[:received])
        return received > 0

    def send(self, data: Buffer) -> int:
        """Encrypt and send some data; return its size. After BlockingIOError, call again with the same data."""
        if self._unsent is None:
            piece = memoryview(data)[:_PIECE_BYTES]
            self._encrypted_bytes = 0
            while self._encrypted_bytes < len(piece):
                self._encrypted_bytes += self._object.write(piece[self._encrypted_bytes :])
            self._unsent = memoryview(self._outgoing.read())
        unsent = self._unsent
        while unsent:
            unsent = self._unsent = unsent[self._socket.send(unsent) :]
        self._unsent = None
        return self._encrypted_bytes

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: object = (), flags: int = 0) -> int:
        """Join and send several buffers, as `send` does."""
        return self.send(b"" if self.is_blocked else b"".join(buffers))

    @property
    def is_blocked(self) -> bool:
        """Whether encrypted bytes wait for room in the socket. `send` then ignores its data."""
        return self._unsent is not None

    def close(self) -> None:
        """Close the socket, after a closing alert if the socket takes it at once."""
        if self.is_established and self._unsent is None:
            with suppress(ssl.SSLError):  # the client's own closing alert is not awaited
                self._object.unwrap()
            self._push_last()
        self._socket.close()

    def _push(self) -> None:
        """Send messages of TLS itself: handshakes, new keys, alerts."""
        if self._unsent is None and self._outgoing.pending:
            messages = self._outgoing.read()
            if self._socket.send(messages) < len(messages):
                raise OSError("the socket has no room for a TLS handshake message or alert")

    def _push_last(self) -> None:
        with suppress(OSError):  # the connection ends anyway
            self._push()


class TlsConnection(Connection):
    """A client's connection over TLS."""

    __slots__ = ("_is_read_scheduled", "_tls")

    def __init__(self, listener: Listener, sock: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        self._is_read_scheduled = False
        """Whether a read is scheduled that the event loop does not trigger."""
        self._tls = TlsSocket(sock, context, listener.encrypted)
        super().__init__(listener, self._tls, peer)  # type: ignore[arg-type] # has the methods that are used

    @property
    def subject(self) -> Any:
        """The subject of the client's certificate; None if the client presented none."""
        return self._tls.subject()

    def _readable(self, *, has_room: bool = False) -> None:
        super()._readable(has_room=has_room)
        self._schedule_read()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._schedule_read()

    def _schedule_read(self) -> None:
        if self._tls.has_decrypted and self._has_reader and not (self._is_read_scheduled or self.is_closed):
            self._is_read_scheduled = True
            self.listener.loop.call_soon(self._read_decrypted)

    def _read_decrypted(self) -> None:
        self._is_read_scheduled = False
        if self._has_reader and not self.is_closed:
            self._readable()

    def _send_file(self, chunk: FileRange, out: deque[Chunk]) -> None:
        piece: Buffer = b""
        if not self._tls.is_blocked:
            size = min(chunk.size, _PIECE_BYTES)
            piece = chunk.held[:size] if chunk.held is not None else os.pread(chunk.file.number, size, chunk.position)
            if not piece and chunk.size:
                raise OSError(f"{chunk} ends early: the log was truncated meanwhile")
        sent = self._tls.send(piece)
        if sent == chunk.size:
            out.popleft()
        else:
            out[0] = FileRange(chunk.file, chunk.position + sent, chunk.size - sent)
