"""Connections between simulated machines: bytes arrive in order and late, and not at all while a way is cut.

A way is cut for one direction at a time. What is sent into a cut way waits, as TCP sends it again and again, and
arrives some time after the way is open; unless an end is closed meanwhile. When a process dies, its machine closes its
connections, as far as that gets through; when a machine dies, nobody is told, and who writes to it after it is up
again hears that there is no such connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from itertools import count
from random import Random
from typing import Any

from tests.chaos.simulate.loop import Life, SimulatedLoop, current_life

CLIENTS = 0
"""The machine that clients are on."""
_END, _BROKEN = object(), object()
_TICK_S = 1e-7  # what is planned for the same moment may happen in any order
_HIGH_FILENO = 50_000_000  # no real descriptor has such a number


class Network:
    """All connections, and which ways are open."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self.cut: set[tuple[int, int]] = set()
        """(from, to): nothing gets this way."""
        self.slow: set[int] = set()
        self.down: set[int] = set()
        """Machines that are off."""
        self.listening: dict[tuple[int, int], ListeningSocket] = {}
        self.clients = Life(CLIENTS)
        self._held: list[tuple[int, int, Callable[[], None]]] = []
        self._ends: dict[int, End] = {}
        self._numbers = count(_HIGH_FILENO)

    # -- ways --

    def heal(self) -> None:
        self.cut.clear()
        self.slow.clear()
        held, self._held = self._held, []
        for source, target, arrive in held:
            self._loop.call_later(self._random.random() / 2, self._pass, source, target, arrive)

    def _pass(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        """Let something get from machine to machine, as soon as it may."""
        if (source, target) in self.cut or target in self.down:
            if (source, target) in self.cut:
                self._held.append((source, target, arrive))
        else:
            arrive()

    def carry(self, source: int, target: int, not_before_s: float, arrive: Callable[[], None]) -> float:
        """Bring something to another machine, not before a moment; returns when that will be, if nothing is cut."""
        longest_s = 0.08 if source in self.slow or target in self.slow else 0.003
        at = max(self._loop.now_s + self._random.random() * longest_s, not_before_s)
        self._loop.call_at(at, self._pass, source, target, arrive, context=Context())
        return at

    # -- connections --

    async def connect(self, protocol: asyncio.Protocol, host: str, port: int) -> "Transport":
        source = current_life() or self.clients
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
            if listening is None or not listening.life.is_alive:
                self.carry(target, source.host, 0, lambda: settle(ConnectionRefusedError(111, "refused")))
                return
            here, there = self._pair(source, listening.life)
            listening.backlog.append(there)
            self.carry(target, source.host, 0, lambda: settle(None, here))
            self.ready(listening.number)

        self.carry(source.host, target, 0, arrive)
        return await opened

    def _pair(self, one: Life, other: Life) -> tuple["End", "End"]:
        here, there = End(self, one, next(self._numbers)), End(self, other, next(self._numbers))
        here.peer, there.peer = there, here
        self._ends[here.number], self._ends[there.number] = here, there
        return here, there

    def listen(self, port: int) -> "ListeningSocket":
        life = current_life()
        assert life is not None
        made = ListeningSocket(self, life, port, next(self._numbers))
        self.listening[life.host, port] = made
        return made

    def end_of(self, number: int) -> "End":
        return self._ends[number]

    def ready(self, number: int) -> None:
        """Call whoever wants to read, as long as there is something to be read."""
        waiting = self._waiting(number)
        callback = self._loop.readers.get(number)
        if waiting is None or callback is None or not waiting.life.is_alive:
            return
        waiting.life.context.copy().run(callback)
        if self._waiting(number) is not None and number in self._loop.readers:
            self._loop.call_soon(self.ready, number, context=Context())

    def _waiting(self, number: int) -> "End | ListeningSocket | None":
        end = self._ends.get(number)
        if end is not None:
            return end if end.inbox else None
        return next((each for each in self.listening.values() if each.number == number and each.backlog), None)

    def process_ended(self, life: Life) -> None:
        """The machine closes what the process had open."""
        for end in [end for end in self._ends.values() if end.life is life]:
            end.send(_BROKEN)
            self.forget(end)

    def machine_ended(self, life: Life) -> None:
        """Nobody is told."""
        for end in [end for end in self._ends.values() if end.life is life]:
            self.forget(end)

    def close(self) -> None:
        """The world ends, and all that is still open with it."""
        for end in list(self._ends.values()):
            self.forget(end)

    def forget(self, end: "End") -> None:
        self._ends.pop(end.number, None)
        end.is_closed = True
        if end.transport is not None:
            end.transport.is_over = True


class End:
    """One end of a connection."""

    peer: "End"

    def __init__(self, network: Network, life: Life, number: int) -> None:
        self.network, self.life, self.number = network, life, number
        self.inbox: deque[Any] = deque()
        self.is_closed = False
        self.transport: Transport | None = None
        self.take: Callable[[Any], None] | None = None
        """Called with what comes, where it is not asked for by reading."""
        self._last_s = 0.0

    def send(self, what: Any) -> None:
        """Bytes, the end or the news that the connection is broken; in order."""
        if self.is_closed:
            return
        peer = self.peer
        after_s = self._last_s + _TICK_S
        self._last_s = self.network.carry(self.life.host, peer.life.host, after_s, lambda: peer.arrived(what))

    def arrived(self, what: Any) -> None:
        if self.is_closed or not self.life.is_alive:
            if what is not _BROKEN and what is not _END and not self.peer.is_closed:
                peer = self.peer
                self.network.carry(self.life.host, peer.life.host, 0, lambda: peer.arrived(_BROKEN))
        elif self.take is not None:
            self.life.context.copy().run(self.take, what)
        else:
            self.inbox.append(what)
            self.network.ready(self.number)

    def close(self) -> None:
        self.send(_END)
        self.network.forget(self)


class ListeningSocket:
    """What a listener calls its socket."""

    def __init__(self, network: Network, life: Life, port: int, number: int) -> None:
        self.network, self.life, self.port, self.number = network, life, port, number
        self.backlog: deque[End] = deque()

    def listen(self, backlog: int) -> None:
        """It does already."""

    def getsockname(self) -> tuple[str, int]:
        return f"node{self.life.host}", self.port

    def fileno(self) -> int:
        return self.number

    def accept(self) -> tuple["Socket", tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        end = self.backlog.popleft()
        return Socket(end), (f"10.0.0.{end.peer.life.host}", 0)

    def close(self) -> None:
        if self.network.listening.get((self.life.host, self.port)) is self:
            del self.network.listening[self.life.host, self.port]


class Socket:
    """What a node's connection calls its socket."""

    def __init__(self, end: End) -> None:
        self._end = end

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_: Any) -> None:
        """There is nothing to be set."""

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
        return f"10.0.0.{self._end.life.host}", self._end.number

    def getpeername(self) -> tuple[str, int]:
        return f"10.0.0.{self._end.peer.life.host}", self._end.peer.number

    def close(self) -> None:
        self._end.close()


class Transport(asyncio.Transport):
    """The asking end of a connection, as a protocol sees it."""

    def __init__(self, loop: SimulatedLoop, end: End, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self._end, self._protocol = loop, end, protocol
        self.is_over = False
        end.take, end.transport = self._take, self
        protocol.connection_made(self)
        for what in end.inbox:
            self._take(what)
        end.inbox.clear()

    def _take(self, what: Any) -> None:
        if self.is_over:
            return
        if what is _BROKEN:
            self._lose(ConnectionResetError(104, "reset"))
        elif what is _END:
            self._protocol.eof_received()
            self._lose(None)
        else:
            self._protocol.data_received(what)

    def _lose(self, error: OSError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._end.close()
            self._loop.call_soon(self._protocol.connection_lost, error)

    def write(self, data: Any) -> None:
        if not self.is_over:
            self._end.send(bytes(data))

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self.is_over

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0
