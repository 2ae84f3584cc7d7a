"""An event loop on simulated time: nothing is waited for, the clock jumps to what comes next.

Everything that runs belongs to a life: that of a process on a simulated machine, which may end at any moment. What a
dead one had planned does not happen any more. Whose a callback is, is kept in its context, so that tasks, timers and
whatever they start belong to the same life without knowing of it.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

_START_S = 1_000.0


class Life:
    """A process, from its start to its end."""

    def __init__(self, host: int) -> None:
        self.host = host
        self.is_alive = True
        self.context = copy_context()
        self.context.run(_owner.set, self)


_owner: ContextVar[Life | None] = ContextVar("owner", default=None)


def current_life() -> Life | None:
    """Whose code is running."""
    return _owner.get()


class _Jump:
    """In the place of a selector: to wait is to let time pass."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits, and nothing will ever happen"
        self._loop.now_s += timeout
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """One thread, one clock, one source of chance."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now_s = _START_S
        self.random = random
        self.network: Any = None
        self.readers: dict[int, Callable[[], None]] = {}
        self._selector = _Jump(self)
        self.set_exception_handler(self._failed)
        self.failures: list[str] = []

    def time(self) -> float:
        return self.now_s

    # -- what is dead does nothing --

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        life = _life_of(context)
        if life is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(_if_alive, life, callback, args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        life = _life_of(context)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, _if_alive, life, callback, args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    # -- threads and sockets, which are simulated, too --

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 (whoever waits for it gets it)
                future.set_exception(error)

        self.call_later(self.random.random() / 500, run)
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = protocol_factory()
        transport: asyncio.Transport = await self.network.connect(protocol, host, port)
        return transport, protocol

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        assert not args
        self.readers[fd] = callback
        self.call_soon(self.network.ready, fd)  # what came while nobody read

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def _check_closed(self) -> None:
        """What is left of dead processes may end after the world has."""

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A bug in a node that runs; what ended with its process does not count."""
        error = context.get("exception")
        if error is not None:
            self.failures.append(f"{context['message']}: {error!r}")


def _life_of(context: Context | None) -> Life | None:
    return _owner.get() if context is None else context.get(_owner)


def _if_alive(life: Life, callback: Any, args: tuple[Any, ...]) -> None:
    if life.is_alive:
        callback(*args)
