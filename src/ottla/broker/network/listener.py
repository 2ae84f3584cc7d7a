"""A listening socket and its connections: limits of their number, their rate and their idle time."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns

from ottla.broker.network.connection import Connection
from ottla.broker.network.request import Request
from ottla.broker.network.request_channel import RequestChannel
from ottla.broker.network.tls import TlsConnection
from ottla.config.listeners import ConnectionLimits

logger = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_BACKLOG = 1024
_ACCEPTS_PER_TURN = 64


class ConnectionCounts:
    """The number of connections over all listeners of a node."""

    def __init__(self) -> None:
        self.count = 0
        self.by_ip: Counter[str] = Counter()
        self.full: set[Listener] = set()
        """Listeners that accept no more connections until one closes."""
        self.throttle_ms: Callable[[str], int] | None = None
        """Counts a new connection of an address; returns the delay before it is closed, or 0 if it may stay."""


class Listener:
    """A listening address and its connections, which send their requests to the request channel of their role."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        request_channel: RequestChannel,
        *,
        limits: ConnectionLimits,
        counts: ConnectionCounts,
        on_sent: Callable[[Request], None],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.loop = loop
        self.name = name
        self.request_channel = request_channel
        self.limits = limits
        self.on_sent = on_sent
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.encrypted = memoryview(bytearray(0 if tls is None else _SCRATCH_BYTES))
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.refused = 0
        """Connections that were closed at once because their address had too many."""
        self.closed = 0
        self.on_closed: Callable[[Connection], None] | None = None
        """Called with each connection that has closed."""
        self._counts = counts
        self._tls = tls
        """Returns the TLS context for a new connection; certificates may change while the node runs."""
        self._delayed: set[socket.socket] = set()
        """Connections beyond the rate of their address, which are closed after a delay."""
        self._socket: socket.socket | None = None
        self._address = ""
        self._is_accepting = False
        self._is_listening = False
        self._accepted_in_second = 0
        self._second_began_ns = 0

    def bind(self, host: str, port: int) -> int:
        """Reserve the address and return the port, which the system chooses if `port` is 0.

        Connections are refused until `listen`, so that clients try another node instead of waiting for this one.
        """
        self._address = f"{host}:{port}"
        try:
            sock = self._socket = _bound_socket(host, port)
        except OSError as error:
            raise self._address_error(error) from error
        return int(sock.getsockname()[1])

    def listen(self) -> None:
        """Let connections wait in the backlog until they are accepted."""
        assert self._socket is not None, "call bind first"
        if not self._is_listening:
            try:
                self._socket.listen(_BACKLOG)
            except OSError as error:  # another process bound the same address meanwhile
                raise self._address_error(error) from error
            self._is_listening = True

    def _address_error(self, error: OSError) -> OSError:
        message = f"listener {self.name} cannot bind {self._address}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            message += "; stop the process that uses the address, or configure another port"
        return OSError(message)

    def start(self) -> None:
        """Accept connections."""
        self.listen()
        assert self._socket is not None
        self._counts.full.discard(self)
        if not self._is_accepting:
            self._is_accepting = True
            self.loop.add_reader(self._socket.fileno(), self._accept)

    def stop(self) -> None:
        """Stop accepting connections."""
        self._counts.full.discard(self)
        if self._is_accepting and self._socket is not None:
            self._is_accepting = False
            self.loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Release the address and close all connections."""
        self.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for connection in list(self.connections):
            connection.close("the node is stopping")
        for sock in list(self._delayed):
            self._close_delayed(sock)

    def close_idle(self) -> None:
        """Close connections that sent nothing for too long, except those that wait for an answer or for the queue."""
        if self.request_channel.is_full:
            return
        oldest = perf_counter_ns() - self.limits.max_idle_ms * 1_000_000
        for connection in [connection for connection in self.connections if connection.last_ns < oldest]:
            if connection.in_flight is None:
                connection.close(f"no request for {self.limits.max_idle_ms} ms")

    def forget(self, connection: Connection, why: str) -> None:
        """Remove a connection that has closed, and accept others in its place."""
        self.connections.discard(connection)
        self.closed += 1
        self._counts.count -= 1
        self._counts.by_ip[connection.peer] -= 1
        if not self._counts.by_ip[connection.peer]:
            del self._counts.by_ip[connection.peer]
        if why:
            logger.info("%s was closed: %s", connection, why)
        if self.on_closed is not None:
            self.on_closed(connection)
        for listener in [listener for listener in self._counts.full if listener._has_room]:
            listener.start()

    def reject(self, connection: Connection, why: str) -> None:
        """Close a connection after a malformed request."""
        logger.warning("%s sent %s", connection, why)
        connection.close()

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._may_accept():
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Most likely the process is out of file descriptors. Connections wait in the backlog meanwhile.
                logger.error("listener %s cannot accept connections: %s; retrying in a second", self.name, error)
                self._pause(1.0)
                return
            self._accepted_in_second += 1
            self._admit(sock, str(address[0]))

    @property
    def _has_room(self) -> bool:
        limits = self.limits
        return self._counts.count < limits.max_connections and len(self.connections) < limits.max_listener_connections

    def _may_accept(self) -> bool:
        if not self._has_room:
            self.stop()
            self._counts.full.add(self)  # accepts again when a connection closes, of any listener
            return False
        now_ns = perf_counter_ns()
        if now_ns - self._second_began_ns >= 1_000_000_000:
            self._second_began_ns, self._accepted_in_second = now_ns, 0
        if self._accepted_in_second >= min(self.limits.max_creation_rate, self.limits.max_listener_creation_rate):
            self._pause(1.0 - (now_ns - self._second_began_ns) / 1e9)
            return False
        return True

    def _admit(self, sock: socket.socket, ip: str) -> None:
        limits = self.limits
        allowed = limits.max_connections_per_ip_overrides.get(ip, limits.max_connections_per_ip)
        if self._counts.by_ip[ip] >= allowed:
            logger.info("listener %s refused a connection of %s, which has %d already", self.name, ip, allowed)
            self.refused += 1
            sock.close()
            return
        throttle = self._counts.throttle_ms
        if throttle is not None and (wait_ms := throttle(ip)) > 0:
            # A client that is refused at once would only reconnect more often.
            self.refused += 1
            self._delayed.add(sock)
            self.loop.call_later(wait_ms / 1000, self._close_delayed, sock)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if limits.send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        self.accepted += 1
        self._counts.count += 1
        self._counts.by_ip[ip] += 1
        self.connections.add(
            Connection(self, sock, ip) if self._tls is None else TlsConnection(self, sock, ip, self._tls())
        )

    def _close_delayed(self, sock: socket.socket) -> None:
        self._delayed.discard(sock)
        sock.close()

    def _pause(self, seconds: float) -> None:
        self.stop()
        self.loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._socket is not None:
            self.start()


def _bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the first address of the host, or to all addresses if the host is empty."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
