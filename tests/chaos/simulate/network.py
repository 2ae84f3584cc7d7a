"""Connections between simulated machines: bytes arrive in order and with a delay, except over links that are cut.

A link has one direction. Data sent over a cut link arrive some time after the link is healed, because TCP retransmits
them, unless an end is closed in the meantime. When a process dies, its machine resets its connections, if the links are
up. When a machine dies, its peers get no notice; if they send data after it is up again, they get a reset.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from itertools import count
from random import Random
from typing import Any

from tests.chaos.simulate.loop import SimulatedLoop, SimulatedProcess, current_process

CLIENTS = 0
"""The machine of the clients."""
_END, _BROKEN = object(), object()
_TICK_S = 1e-7  # events at the same moment may happen in any order
_HIGH_FILENO = 50_000_000  # higher than any real file descriptor


class Network:
    """All connections, and the state of the links between machines."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self.cut: set[tuple[int, int]] = set()
        """Links (source, target) that deliver nothing."""
        self.slow: set[int] = set()
        """Machines whose links are slow."""
        self.down: set[int] = set()
        """Machines that are turned off."""
        self.listening: dict[tuple[int, int], ListeningSocket] = {}
        self.clients = SimulatedProcess(CLIENTS)
        self._held: list[tuple[int, int, Callable[[], None]]] = []
        self._ends: dict[int, End] = {}
        self._numbers = count(_HIGH_FILENO)

    # -- links --

    def heal(self) -> None:
        self.cut.clear()
        self.slow.clear()
        held, self._held = self._held, []
        for source, target, arrive in held:
            self._loop.call_later(self._random.random() / 2, self._deliver, source, target, arrive)

    def _deliver(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        """Deliver data, or hold them while the link is cut. A machine that is off loses them."""
        if (source, target) in self.cut or target in self.down:
            if (source, target) in self.cut:
                self._held.append((source, target, arrive))
        else:
            arrive()

    def carry(self, source: int, target: int, not_before_s: float, arrive: Callable[[], None]) -> float:
        """Send data to another machine. Return the time of arrival if no link is cut, at least `not_before_s`."""
        longest_s = 0.08 if source in self.slow or target in self.slow else 0.003
        arrival_s = max(self._loop.now_s + self._random.random() * longest_s, not_before_s)
        self._loop.call_at(arrival_s, self._deliver, source, target, arrive, context=Context())
        return arrival_s

    # -- connections --

    async def connect(self, protocol: asyncio.Protocol, host: str, port: int) -> "Transport":
        source = current_process() or self.clients
        target = int(host.removeprefix("node"))
        opened: asyncio.Future[Transport] = self._loop.create_future()

        def settle(error: OSError | None, end: "End | None" = None) -> None:
            if opened.done() or not source.is_alive:
                return
            if error is not None:
                opened.set_exception(error)
            else:
                assert end is not None
                opened.set_result(source.context.run(Transport, self._loop, end, protocol))

        def arrive() -> None:
            listening = self.listening.get((target, port))
            if listening is None or not listening.process.is_alive:
                self.carry(target, source.host, 0, lambda: settle(ConnectionRefusedError(111, "refused")))
                return
            here, there = self._pair(source, listening.process)
            listening.backlog.append(there)
            self.carry(target, source.host, 0, lambda: settle(None, here))
            self.notify_reader(listening.number)

        self.carry(source.host, target, 0, arrive)
        return await opened

    def _pair(self, one: SimulatedProcess, other: SimulatedProcess) -> tuple["End", "End"]:
        here, there = End(self, one, next(self._numbers)), End(self, other, next(self._numbers))
        here.peer, there.peer = there, here
        self._ends[here.number], self._ends[there.number] = here, there
        return here, there

    def listen(self, port: int) -> "ListeningSocket":
        process = current_process()
        assert process is not None
        listening = ListeningSocket(self, process, port, next(self._numbers))
        self.listening[process.host, port] = listening
        return listening

    def end_of(self, number: int) -> "End":
        return self._ends[number]

    def notify_reader(self, number: int) -> None:
        """Call the reader of a socket as long as the socket is readable."""
        readable = self._find_readable(number)
        callback = self._loop.readers.get(number)
        if readable is None or callback is None or not readable.process.is_alive:
            return
        readable.process.context.copy().run(callback)
        if self._find_readable(number) is not None and number in self._loop.readers:
            self._loop.call_soon(self.notify_reader, number, context=Context())

    def _find_readable(self, number: int) -> "End | ListeningSocket | None":
        end = self._ends.get(number)
        if end is not None:
            return end if end.inbox else None
        return next((socket for socket in self.listening.values() if socket.number == number and socket.backlog), None)

    def reset_connections(self, process: SimulatedProcess) -> None:
        """Reset the connections of a process, as the kernel does when it ends."""
        for end in [end for end in self._ends.values() if end.process is process]:
            end.send(_BROKEN)
            self.forget(end)

    def drop_connections(self, process: SimulatedProcess) -> None:
        """Remove the connections of a process without notice to the peers."""
        for end in [end for end in self._ends.values() if end.process is process]:
            self.forget(end)

    def close(self) -> None:
        """Close all connections at the end of the simulation."""
        for end in list(self._ends.values()):
            self.forget(end)

    def forget(self, end: "End") -> None:
        self._ends.pop(end.number, None)
        end.is_closed = True
        if end.transport is not None:
            end.transport.is_closed = True


class End:
    """One end of a connection."""

    peer: "End"

    def __init__(self, network: Network, process: SimulatedProcess, number: int) -> None:
        self.network, self.process, self.number = network, process, number
        self.inbox: deque[Any] = deque()
        self.is_closed = False
        self.transport: Transport | None = None
        self.receive: Callable[[Any], None] | None = None
        """Called with arriving data, if the end has a transport instead of a socket."""
        self._last_s = 0.0

    def send(self, item: Any) -> None:
        """Send bytes, `_END` or `_BROKEN`, in order."""
        if self.is_closed:
            return
        peer = self.peer
        after_s = self._last_s + _TICK_S
        self._last_s = self.network.carry(self.process.host, peer.process.host, after_s, lambda: peer.accept(item))

    def accept(self, item: Any) -> None:
        if self.is_closed or not self.process.is_alive:
            if item is not _BROKEN and item is not _END and not self.peer.is_closed:
                peer = self.peer
                self.network.carry(self.process.host, peer.process.host, 0, lambda: peer.accept(_BROKEN))
        elif self.receive is not None:
            self.process.context.copy().run(self.receive, item)
        else:
            self.inbox.append(item)
            self.network.notify_reader(self.number)

    def close(self) -> None:
        self.send(_END)
        self.network.forget(self)


class ListeningSocket:
    """The socket of a listener."""

    def __init__(self, network: Network, process: SimulatedProcess, port: int, number: int) -> None:
        self.network, self.process, self.port, self.number = network, process, port, number
        self.backlog: deque[End] = deque()

    def listen(self, backlog: int) -> None:
        """Do nothing: the socket already listens."""

    def getsockname(self) -> tuple[str, int]:
        return f"node{self.process.host}", self.port

    def fileno(self) -> int:
        return self.number

    def accept(self) -> tuple["Socket", tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        end = self.backlog.popleft()
        return Socket(end), (f"10.0.0.{end.peer.process.host}", 0)

    def close(self) -> None:
        if self.network.listening.get((self.process.host, self.port)) is self:
            del self.network.listening[self.process.host, self.port]


class Socket:
    """The socket of a connection that a node accepted."""

    def __init__(self, end: End) -> None:
        self._end = end

    def setblocking(self, flag: bool) -> None:
        """Do nothing: the socket never blocks."""

    def setsockopt(self, *_: Any) -> None:
        """Do nothing: there are no options."""

    def fileno(self) -> int:
        return self._end.number

    def recv_into(self, buffer: memoryview) -> int:
        inbox = self._end.inbox
        if not inbox:
            raise BlockingIOError
        first = inbox.popleft()
        if first is _END:
            return 0
        if first is _BROKEN:
            raise ConnectionResetError(104, "reset")
        size = min(len(first), len(buffer))
        buffer[:size] = first[:size]
        if size < len(first):
            inbox.appendleft(first[size:])
        return size

    def send(self, buffer: Any) -> int:
        return self.sendmsg([buffer])

    def sendmsg(self, buffers: list[Any], *_: Any) -> int:
        data = b"".join(map(bytes, buffers))
        self._end.send(data)
        return len(data)

    def getsockname(self) -> tuple[str, int]:
        return f"10.0.0.{self._end.process.host}", self._end.number

    def getpeername(self) -> tuple[str, int]:
        return f"10.0.0.{self._end.peer.process.host}", self._end.peer.number

    def close(self) -> None:
        self._end.close()


class Transport(asyncio.Transport):
    """The client's end of a connection, for an asyncio protocol."""

    def __init__(self, loop: SimulatedLoop, end: End, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self._end, self._protocol = loop, end, protocol
        self.is_closed = False
        end.receive, end.transport = self._receive, self
        protocol.connection_made(self)
        for item in end.inbox:
            self._receive(item)
        end.inbox.clear()

    def _receive(self, item: Any) -> None:
        if self.is_closed:
            return
        if item is _BROKEN:
            self._disconnect(ConnectionResetError(104, "reset"))
        elif item is _END:
            self._protocol.eof_received()
            self._disconnect(None)
        else:
            self._protocol.data_received(item)

    def _disconnect(self, error: OSError | None) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._end.close()
            self._loop.call_soon(self._protocol.connection_lost, error)

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self._end.send(bytes(data))

    def close(self) -> None:
        self._disconnect(None)

    def abort(self) -> None:
        self._disconnect(None)

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0
