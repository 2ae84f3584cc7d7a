"""An event loop on simulated time: it never waits, but advances the clock to the next event.

Every callback belongs to a process on a simulated machine, which may end at any moment. Callbacks of an ended process
do not run. The context of a callback identifies its process, so that tasks, timers and everything they start belong to
the same process.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

_START_S = 1_000.0


class SimulatedProcess:
    """A process on a simulated machine, from its start to its end."""

    def __init__(self, host: int) -> None:
        self.host = host
        self.is_alive = True
        self.context = copy_context()
        self.context.run(_current.set, self)


_current: ContextVar[SimulatedProcess | None] = ContextVar("current", default=None)


def current_process() -> SimulatedProcess | None:
    """Return the process whose code is running."""
    return _current.get()


class _SimulatedSelector:
    """Advances the clock instead of waiting."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "deadlock: all tasks wait and no timer is set"
        self._loop.now_s += timeout
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """One thread, one clock, one source of randomness."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now_s = _START_S
        self.random = random
        self.network: Any = None
        self.readers: dict[int, Callable[[], None]] = {}
        self._selector = _SimulatedSelector(self)
        self.set_exception_handler(self._record_failure)
        self.failures: list[str] = []

    def time(self) -> float:
        return self.now_s

    # -- callbacks of ended processes do not run --

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        process = _process_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(_if_alive, process, callback, args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        process = _process_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, _if_alive, process, callback, args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    # -- simulated threads and sockets --

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 (the future passes it on)
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
        self.call_soon(self.network.notify_reader, fd)  # data may have arrived before

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no I/O events."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    def _check_closed(self) -> None:
        """Do nothing: tasks of ended processes may end after the loop is closed."""

    def _record_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception in a callback, which is a bug of a running node."""
        error = context.get("exception")
        if error is not None:
            self.failures.append(f"{context['message']}: {error!r}")


def _process_of(context: Context | None) -> SimulatedProcess | None:
    return _current.get() if context is None else context.get(_current)


def _if_alive(process: SimulatedProcess, callback: Any, args: tuple[Any, ...]) -> None:
    if process.is_alive:
        callback(*args)
