"""Workers and their queue, on real sockets: order, depth, back-pressure, coroutines, and responses that wait."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import perf_counter_ns
from typing import Any

import pytest
from bench.harness.certificates import Authority

from ottla.broker.metrics.request_metrics import SPANS
from ottla.broker.network.listener import ConnectionCounts, Listener
from ottla.broker.network.request import Request
from ottla.broker.network.request_channel import RequestChannel
from ottla.broker.requests.call import LATER, Call
from ottla.broker.requests.request_workers import RequestWorkers, WorkerThreads
from ottla.config.listeners import ConnectionLimits
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.replication.purgatory import Completions, Operation, WaitingList
from ottla.replication.runtime import Runtime
from tests.unit.broker.metrics.service import serving as serving_api
from tests.unit.broker.network.test_connections import echo, frame, receive, run, serving

VERSION = 4
SPAN = 'kafka_network_requestmetrics_{}_{}{{request="Heartbeat"}}'


def test_connections_get_room_in_the_order_in_which_they_asked() -> None:
    handled: list[bytes] = []

    async def test() -> None:
        def handle(request: Request) -> None:
            assert request.frame is not None
            handled.append(bytes(request.frame))
            if handled[-1] == b"slow":
                server.request_channel.hold()
            echo(request)

        async with serving(handle, workers=1, capacity=1) as server:
            _, first = await server.connect()
            first.write(frame(b"slow"))
            while not handled:
                await asyncio.sleep(0.001)
            streams = [await server.connect() for _ in range(10)]
            for number, (_, writer) in enumerate(streams):
                writer.write(b"".join(frame(b"%d.%d" % (turn, number)) for turn in range(3)))
                await asyncio.sleep(0.01)
            assert handled == [b"slow"]
            assert len(server.request_channel.queue) == 1
            assert len(server.request_channel.blocked) == 9
            server.request_channel.release()
            for turn in range(3):
                for number, (reader, _) in enumerate(streams):
                    assert await receive(reader) == b"%d.%d" % (turn, number)
            assert handled[1:] == [b"%d.%d" % (turn, number) for turn in range(3) for number in range(10)]
            assert not server.request_channel.blocked
            for _, writer in [*streams, (None, first)]:
                writer.close()

    run(test)


def test_a_connection_that_closes_while_it_waits_for_room_blocks_no_other() -> None:
    async def test() -> None:
        held = False

        def handle(request: Request) -> None:
            nonlocal held
            if not held:
                held = True
                server.request_channel.hold()
            echo(request)

        async with serving(handle, workers=1, capacity=1) as server:
            streams = [await server.connect() for _ in range(4)]
            for _, writer in streams:
                writer.write(frame(b"x"))
                await asyncio.sleep(0.01)
            assert len(server.request_channel.blocked) == 2
            (waiting, _) = [
                connection
                for connection in server.listener.connections
                if connection._take_room in server.request_channel.blocked
            ]
            waiting.close("the test ends it")
            assert len(server.request_channel.blocked) == 1
            server.request_channel.release()
            answers = await asyncio.gather(*(reader.read(5) for reader, _ in streams), return_exceptions=True)
            assert [answer for answer in answers if isinstance(answer, bytes)] == [frame(b"x")] * 3
            for _, writer in streams:
                writer.close()

    run(test)


def test_tls_connections_wait_for_room_without_losing_data(tmp_path: Path) -> None:
    """Decrypted bytes wait inside the connection, and the event loop does not report them."""
    authority = Authority(tmp_path)
    identity = tmp_path / "server.pem"
    identity.write_text(authority.sign("CN=server", "localhost").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    trusting = ssl.create_default_context(cafile=str(authority.trusted))
    handled: list[bytes] = []

    async def test() -> None:
        def handle(request: Request) -> None:
            assert request.frame is not None
            handled.append(bytes(request.frame[:4]))
            if handled[-1] == b"slow":
                request_channel.hold()
            echo(request)

        request_channel = RequestChannel(handle, workers=1, capacity=1)
        loop = asyncio.get_running_loop()
        listener = Listener(
            loop,
            "TLS",
            request_channel,
            limits=ConnectionLimits(),
            counts=ConnectionCounts(),
            on_sent=lambda _: None,
            tls=lambda: context,
        )
        port = listener.bind("127.0.0.1", 0)
        listener.start()
        streams = [
            await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
            for _ in range(6)
        ]
        (_, first), *others = streams
        first.write(frame(b"slow"))
        while not handled:
            await asyncio.sleep(0.001)
        bodies = [b"%03d " % number + bytes(30_000) for number in range(40)]
        for _, writer in others:
            writer.write(b"".join(map(frame, bodies)))
        await asyncio.sleep(0.1)
        assert (handled, len(request_channel.queue), len(request_channel.blocked)) == ([b"slow"], 1, 4)
        request_channel.release()

        async def receive_all(reader: asyncio.StreamReader) -> list[bytes]:
            return [await receive(reader) for _ in bodies]

        answers = await asyncio.gather(*(receive_all(reader) for reader, _ in others))
        assert all(answer == bodies for answer in answers)
        for _, writer in streams:
            writer.close()
        listener.close()
        await asyncio.sleep(0)

    run(test)


@pytest.mark.parametrize("workers", [1, 2, 1000])
def test_handlers_nest_to_a_limited_depth(workers: int) -> None:
    """Each handler answers a waiting connection, whose next request then runs inside that handler."""
    waiting: list[Request] = []
    depth = deepest = 0

    async def test() -> None:
        def handle(request: Request) -> None:
            nonlocal depth, deepest
            assert request.frame is not None
            if bytes(request.frame) == b"wait":
                waiting.append(request)
                return
            depth += 1
            deepest = max(deepest, depth)
            if waiting:
                waiting.pop().reply([frame(b"waited")])
            request.reply([frame(b"done")])
            depth -= 1

        async with serving(handle, workers=workers) as server:
            streams = [await server.connect() for _ in range(300)]
            for _, writer in streams:
                writer.write(frame(b"wait") + frame(b"go"))
            while len(waiting) < len(streams):
                await asyncio.sleep(0.01)
            _, last = await server.connect()
            last.write(frame(b"go"))
            for reader, writer in streams:
                assert await receive(reader) == b"waited"
                assert await receive(reader) == b"done"
                writer.close()
            last.close()
            assert (server.request_channel.busy, len(server.request_channel.queue)) == (0, 0)

    run(test)
    assert 1 <= deepest <= min(workers, 8)


def test_an_error_outside_the_dispatch_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def handle(request: Request) -> None:
            if request.frame is not None and bytes(request.frame) == b"bad":
                raise ValueError("broken")
            echo(request)

        async with serving(handle, workers=1) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"bad"))
            assert await reader.read() == b""
            writer.close()
            assert (server.request_channel.busy, server.request_channel.aborted) == (0, 1)
            assert len(server.sent) == 1
            reader, writer = await server.connect()
            writer.write(frame(b"good"))
            assert await receive(reader) == b"good"
            writer.close()

    run(test)
    assert "ValueError: broken" in caplog.text


def workers(size: int, handle: Callable[[Request], None] = echo) -> RequestWorkers:
    runtime = Runtime(asyncio.get_running_loop())
    return RequestWorkers(handle, role="test", workers=size, capacity=10, runtime=runtime)


def test_a_thread_occupies_a_worker_and_started_requests_go_ahead_of_the_queue() -> None:
    async def test() -> None:
        pool = workers(1)
        request_channel = pool.request_channel
        order: list[str] = []
        release = [asyncio.get_running_loop().create_future() for _ in range(2)]

        async def work(name: str, number: int) -> None:
            await pool.in_thread(order.append, f"{name} in a thread")
            request_channel.hold()
            order.append(f"{name} holds a worker")
            await release[number]
            request_channel.release()
            order.append(f"{name} is done")

        first = asyncio.create_task(work("first", 0))
        begun = ["first in a thread", "first holds a worker"]
        while order != begun:
            await asyncio.sleep(0.001)
        assert (request_channel.busy, request_channel.held) == (1, 1)
        second = asyncio.create_task(work("second", 1))
        cancelled = asyncio.create_task(pool.in_thread(order.append, "never"))
        await asyncio.sleep(0.05)
        assert order == begun
        cancelled.cancel()
        release[0].set_result(None)
        await first
        while len(order) < 5:
            await asyncio.sleep(0.001)
        assert order == [*begun, "first is done", "second in a thread", "second holds a worker"]
        release[1].set_result(None)
        await second
        assert (request_channel.busy, request_channel.held) == (0, 0)
        assert request_channel.held_ns() > 50_000_000
        pool.close()

    run(test)


def test_threads_follow_the_size_of_their_pool() -> None:
    async def test() -> None:
        pool = workers(1)
        started: list[int] = []
        gate = Event()

        def wait() -> None:
            started.append(1)
            assert gate.wait(10)

        tasks = [asyncio.create_task(pool.in_thread(wait)) for _ in range(4)]
        while len(started) < 1:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert (len(started), len(pool.threads), pool.request_channel.held) == (1, 1, 1)
        pool.resize(3)
        while len(started) < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert (len(started), len(pool.threads), pool.request_channel.held) == (3, 3, 3)
        pool.resize(2)
        gate.set()
        await asyncio.gather(*tasks)
        assert (len(started), pool.request_channel.busy) == (4, 0)
        while len(pool.threads) > 2:
            await asyncio.sleep(0.001)
        pool.close()
        with pytest.raises(RuntimeError, match="stopping"):
            await pool.in_thread(wait)
        assert pool.request_channel.busy == 0

    run(test)


def test_an_error_in_a_thread_is_raised_at_its_await() -> None:
    threads = WorkerThreads(2, "test")
    future = threads.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        future.result(5)
    assert threads.submit(int, "7").result(5) == 7
    threads.shutdown()


def spin(ms: int) -> None:
    end = perf_counter_ns() + ms * 1_000_000
    while perf_counter_ns() < end:
        pass


def test_steps_of_coroutines_are_busy_time_and_waiting_is_not() -> None:
    async def test() -> None:
        async def handle(call: Call[None], request: Any) -> HeartbeatResponse:
            spin(20)
            await asyncio.sleep(0.2)
            assert (service.request_channel.busy, service.request_channel.held) == (1, 0)
            spin(20)
            return HeartbeatResponse()

        async with serving_api({ApiKey.HEARTBEAT: handle}) as service:
            service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            await asyncio.sleep(0.1)
            assert service.request_channel.busy == 0
            await service.reader.readexactly(4)
            assert 40 <= service.request_channel.busy_ns / 1e6 < 80

    run(test)


def test_time_in_threads_is_a_share_of_the_pool() -> None:
    async def test() -> None:
        request_channel = RequestChannel(echo, workers=4)
        request_channel.hold()
        request_channel.hold()
        await asyncio.sleep(0.2)
        request_channel.release()
        request_channel.release()
        await asyncio.sleep(0.1)
        assert 400 <= request_channel.held_ns() / 1e6 < 480
        assert 100 <= request_channel.share_ns() / 1e6 < 120

    run(test)


def test_responses_wait_for_a_client_that_does_not_read() -> None:
    """Responses to pipelined requests are sent together; responses of which the socket takes nothing are queued."""

    async def test() -> None:
        async with serving_api({ApiKey.HEARTBEAT: lambda *_: HeartbeatResponse()}) as service:
            await service.ask(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            assert service.metrics()[SPAN.format("responsequeuetimems", "sum")] == 0
            transport = service.writer.transport
            assert isinstance(transport, asyncio.ReadTransport)
            transport.pause_reading()
            (connection,) = service.listener.connections
            connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            count = 0
            while not connection.waiting_answers:
                for _ in range(500):
                    service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
                count += 500
                await asyncio.sleep(0.02)
                assert count < 500_000
            await asyncio.sleep(0.1)
            transport.resume_reading()
            for _ in range(count):
                (size,) = struct.unpack(">i", await service.reader.readexactly(4))
                await service.reader.readexactly(size)
            await asyncio.sleep(0.01)
            assert connection.waiting_answers == 0
            metrics = service.metrics()
            assert metrics[SPAN.format("responsequeuetimems", "sum")] >= 100
            spans = [metrics[SPAN.format(name, "sum")] for name in SPANS if name != "throttletimems"]
            assert sum(spans[1:]) == pytest.approx(spans[0], rel=0.01)
            assert metrics[SPAN.format("responsequeuetimems", "count")] == count + 1

    run(test)


def test_a_request_that_waits_is_answered_when_its_operation_fails(caplog: pytest.LogCaptureFixture) -> None:
    """If one operation in the purgatory fails, its client gets an error and the other operations complete."""

    async def test() -> None:
        waiting, completions = WaitingList(), Completions()
        calls: list[Call[None]] = []

        class Waiting(Operation):
            def __init__(self, call: Call[None]) -> None:
                super().__init__()
                self.call = call
                self.is_broken = call.client_id is not None and not calls
                calls.append(call)

            def try_complete(self) -> bool:
                if self.is_broken:
                    raise ValueError("broken")
                self.call.answer(HeartbeatResponse())
                return True

            def expire(self) -> None:
                raise AssertionError

            def give_up(self, error: Exception) -> None:
                self.finish()
                self.call.fail(error)

        def wait(call: Call[None], request: Any) -> Any:
            waiting.add(Waiting(call))
            return LATER

        async with serving_api({ApiKey.HEARTBEAT: wait}) as service:
            streams = [(service.reader, service.writer)]
            service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            while not calls:
                await asyncio.sleep(0.001)
            service.reader, service.writer = await asyncio.open_connection(*service.address)
            streams.append((service.reader, service.writer))
            service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            while len(calls) < 2:
                await asyncio.sleep(0.001)
            completions.add(waiting)
            completions.run()
            errors = []
            for reader, writer in streams:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                errors.append(struct.unpack(">h", (await reader.readexactly(size))[9:11])[0])
                writer.close()
            assert errors == [-1, 0]
            assert not waiting.operations

    run(test)
    assert "Heartbeat v4 failed: HeartbeatRequest()" in caplog.text
