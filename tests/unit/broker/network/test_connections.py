"""Connections on real sockets: framing, order, back-pressure, limits, throttling, and clients that misbehave."""

import asyncio
import contextlib
import logging
import os
import random
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.listener import ConnectionCounts, Listener
from ottla.broker.network.request import Request
from ottla.broker.network.request_channel import RequestChannel
from ottla.config.listeners import ConnectionLimits
from ottla.protocol.wire.types import Chunk
from ottla.storage.disk import FileRange, LogFile, SystemDisk

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def echo(request: Request) -> None:
    assert request.frame is not None
    request.reply([struct.pack(">i", len(request.frame)), bytes(request.frame)])


class Server:
    """A listener on a free port of this machine."""

    def __init__(
        self,
        handle: Callable[[Request], None],
        limits: ConnectionLimits,
        *,
        workers: int,
        capacity: int,
        counts: ConnectionCounts | None,
    ) -> None:
        self.sent: list[Request] = []
        self.request_channel = RequestChannel(handle, workers=workers, capacity=capacity)
        self.counts = counts or ConnectionCounts()
        self.listener = Listener(
            asyncio.get_running_loop(),
            "TEST",
            self.request_channel,
            limits=limits,
            counts=self.counts,
            on_sent=self.sent.append,
        )
        self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.start()

    async def connect(self) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving(
    handle: Callable[[Request], None] = echo,
    limits: ConnectionLimits | None = None,
    *,
    workers: int = 8,
    capacity: int = 500,
    counts: ConnectionCounts | None = None,
) -> AsyncIterator[Server]:
    server = Server(handle, limits or ConnectionLimits(), workers=workers, capacity=capacity, counts=counts)
    try:
        yield server
    finally:
        server.listener.close()
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(limited())


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def receive(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return await reader.read(1) == b""
    return True


@pytest.fixture
def some_file() -> Iterator[LogFile]:
    disk = SystemDisk()
    with tempfile.TemporaryDirectory() as folder:
        file = disk.create(f"{folder}/f")
        os.pwrite(file, bytes(range(256)) * 40_000, 0)
        yield LogFile(disk, f"{folder}/f", file)


@pytest.mark.parametrize("size", [1, 100, 5000, 70_000, 300_000, 3_000_000])
def test_requests_of_every_size_are_answered_in_order(size: int) -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await server.connect()
            bodies = [bytes([number]) * size for number in range(5)]
            writer.write(b"".join(map(frame, bodies)))
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    run(test)


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_an_answered_request_releases_its_bytes(size: int) -> None:
    requests: list[Request] = []

    def handle(request: Request) -> None:
        requests.append(request)
        request.reply([frame(b"answer")])

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            writer.write(frame(bytes(size)))
            assert await receive(reader) == b"answer"
            assert [request.frame for request in requests] == [None]
            assert [connection._buffer for connection in server.listener.connections] == [None]
            writer.close()

    run(test)


def test_a_waiting_request_occupies_no_worker() -> None:
    waiting: list[Request] = []

    def handle(request: Request) -> None:
        assert request.frame is not None
        if bytes(request.frame) == b"wait":
            waiting.append(request)
        else:
            echo(request)

    async def test() -> None:
        async with serving(handle, workers=1, capacity=1) as server:
            streams = [await server.connect() for _ in range(20)]
            for _, writer in streams:
                writer.write(frame(b"wait"))
            reader, writer = await server.connect()
            writer.write(frame(b"hello"))
            assert await receive(reader) == b"hello"
            assert len(waiting) == 20
            for request in waiting:
                request.reply([frame(b"at last")])
            assert [await receive(reader) for reader, _ in streams] == [b"at last"] * 20
            for _, other in streams:
                other.close()
            writer.close()

    run(test)


def test_connections_before_listen_are_refused() -> None:
    async def scenario() -> None:
        async with serving() as server:
            loop, counts = asyncio.get_running_loop(), server.counts
            other = Listener(
                loop,
                "OTHER",
                server.request_channel,
                limits=ConnectionLimits(),
                counts=counts,
                on_sent=server.sent.append,
            )
            port = other.bind("127.0.0.1", 0)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            other.listen()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            other.start()
            await asyncio.sleep(0.01)
            assert other.accepted == 1
            writer.close()
            other.close()

    asyncio.run(scenario())


def test_a_request_may_arrive_byte_by_byte() -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await server.connect()
            for byte in frame(b"hello") + frame(b"world"):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            assert [await receive(reader), await receive(reader)] == [b"hello", b"world"]
            writer.close()

    run(test)


def test_pipelined_requests_leave_other_connections_their_turn() -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await server.connect()
            other_reader, other_writer = await server.connect()
            bodies = [b"%d" % number for number in range(1000)]
            writer.write(b"".join(map(frame, bodies)))
            other_writer.write(frame(b"me too"))
            assert await receive(other_reader) == b"me too"
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()
            other_writer.close()

    run(test)


def test_more_requests_than_the_buffer_holds_are_all_answered() -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await server.connect()
            bodies = [b"%016d" % number for number in range(60_000)]
            writer.write(b"".join(map(frame, bodies)))
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    run(test)


def test_a_connection_has_one_request_in_flight() -> None:
    waiting: list[Request] = []

    async def test() -> None:
        async with serving(waiting.append) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"one") + frame(b"two"))
            await asyncio.sleep(0.05)
            assert len(waiting) == 1
            waiting[0].reply([frame(b"1")])
            assert await receive(reader) == b"1"
            await asyncio.sleep(0.05)
            assert len(waiting) == 2
            waiting[1].reply([frame(b"2")])
            assert await receive(reader) == b"2"
            writer.close()

    run(test)


def test_a_request_has_one_outcome() -> None:
    errors: list[AssertionError] = []

    def twice(request: Request) -> None:
        request.reply([frame(b"first")])
        with pytest.raises(AssertionError, match="one outcome") as caught:
            request.reply([frame(b"second")])
        errors.append(caught.value)

    async def test() -> None:
        async with serving(twice) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"x"))
            assert await receive(reader) == b"first"
            writer.close()
            assert errors

    run(test)


def test_a_request_without_an_answer_is_followed_by_the_next() -> None:
    def handle(request: Request) -> None:
        assert request.frame is not None
        if bytes(request.frame) == b"quiet":
            request.skip()
        else:
            echo(request)

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"quiet") + frame(b"loud"))
            assert await receive(reader) == b"loud"
            writer.close()

    run(test)


def test_file_ranges_are_sent_between_buffers(some_file: LogFile) -> None:
    parts: list[Chunk] = [b"head", FileRange(some_file, 10, 5_000_000), b"middle", FileRange(some_file, 0, 3), b"tail"]

    async def test() -> None:
        async with serving(lambda request: request.reply([struct.pack(">i", sum(map(len, parts))), *parts])) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"x"))
            whole = bytes(range(256)) * 40_000
            assert await receive(reader) == b"head" + whole[10:5_000_010] + b"middle" + whole[:3] + b"tail"
            writer.close()
            await asyncio.sleep(0.01)
            assert server.sent[0].sent_bytes == sum(map(len, parts)) + 4
            assert server.sent[0].arrived_ns <= server.sent[0].started_ns <= server.sent[0].sent_ns

    run(test)


def test_a_truncated_file_closes_the_connection(some_file: LogFile) -> None:
    async def test() -> None:
        answer: list[Chunk] = [struct.pack(">i", 1 << 30), FileRange(some_file, 0, 1 << 30)]
        async with serving(lambda request: request.reply(answer)) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"x"))
            assert len(await reader.read(-1)) < 1 << 30
            writer.close()

    run(test)


def test_throttling_delays_the_next_request() -> None:
    def handle(request: Request) -> None:
        request.reply([frame(b"answer")], mute_ms=200)

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"one") + frame(b"two"))
            await receive(reader)
            start = monotonic()
            await receive(reader)
            assert monotonic() - start > 0.15
            writer.close()

    run(test)


def test_a_closing_connection_takes_no_request_after_its_throttle_time() -> None:
    handled: list[bytes] = []

    def handle(request: Request) -> None:
        assert request.frame is not None
        handled.append(bytes(request.frame))
        request.reply([frame(b"answer")], mute_ms=10)
        request.hang_up(100, "the test closes it")

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"one") + frame(b"two"))
            assert await receive(reader) == b"answer"
            assert await is_closed(reader)
            writer.close()
        assert handled == [b"one"]

    run(test)


def test_requests_queue_while_all_workers_are_held_and_a_full_queue_stops_reading() -> None:
    handled: list[bytes] = []

    async def test() -> None:
        def handle(request: Request) -> None:
            assert request.frame is not None
            handled.append(bytes(request.frame))
            if handled[-1] == b"slow":
                server.request_channel.hold()
            echo(request)

        async with serving(handle, workers=2, capacity=3) as server:
            streams = [await server.connect() for _ in range(8)]
            for _, writer in streams[:2]:
                writer.write(frame(b"slow"))
            await asyncio.sleep(0.05)
            for number, (_, writer) in enumerate(streams[2:]):
                writer.write(frame(b"%d" % number))
            await asyncio.sleep(0.05)
            assert len(handled) == 2
            assert len(server.request_channel.queue) == 3
            server.request_channel.release()
            answers = [await receive(reader) for reader, _ in streams]
            assert sorted(answers) == sorted([b"slow"] * 2 + [b"%d" % number for number in range(6)])
            for _, writer in streams:
                writer.close()

    run(test)


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 1_000_001, -(2**31)])
def test_an_invalid_length_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(limits=ConnectionLimits(max_request_bytes=1_000_000)) as server:
            reader, writer = await server.connect()
            writer.write(struct.pack(">i", size))
            assert await is_closed(reader)
            writer.close()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert f"a request of {size} bytes" in caplog.text


@pytest.mark.parametrize("bytes_sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_other_protocols_are_rejected(bytes_sent: bytes) -> None:
    async def test() -> None:
        async with serving() as server:
            reader, writer = await server.connect()
            writer.write(bytes_sent)
            assert await is_closed(reader)
            writer.close()

    run(test)


def test_an_announced_size_reserves_no_memory() -> None:
    async def test() -> None:
        async with serving() as server:
            streams = [await server.connect() for _ in range(50)]
            for _, writer in streams:
                writer.write(struct.pack(">i", 100 * 1024 * 1024) + b"x" * 1000)
            await asyncio.sleep(0.1)
            held = [connection._buffer for connection in server.listener.connections]
            assert sum(len(buffer) for buffer in held if buffer) <= 50 * 64 * 1024
            for _, writer in streams:
                writer.close()

    run(test)


def test_a_client_that_never_reads_holds_one_answer(some_file: LogFile) -> None:
    async def test() -> None:
        handled = 0

        def handle(request: Request) -> None:
            nonlocal handled
            handled += 1
            request.reply([struct.pack(">i", 10_000_000), FileRange(some_file, 0, 10_000_000)])

        async with serving(handle) as server:
            _, writer = await server.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(frame(b"x") * 100)
            reader2, writer2 = await server.connect()
            await asyncio.sleep(0.1)
            assert handled == 1
            writer2.write(frame(b"y"))
            assert len(await receive(reader2)) == 10_000_000
            writer.close()
            writer2.close()

    run(test)


def unbound(name: str) -> Listener:
    request_channel = RequestChannel(echo, workers=1, capacity=1)
    loop = asyncio.get_running_loop()
    return Listener(
        loop, name, request_channel, limits=ConnectionLimits(), counts=ConnectionCounts(), on_sent=lambda _: None
    )


def test_an_address_in_use_is_named_in_the_error() -> None:
    async def test() -> None:
        one, other = unbound("ONE"), unbound("OTHER")
        port = one.bind("127.0.0.1", 0)
        one.listen()
        with pytest.raises(OSError, match=rf"listener OTHER cannot bind 127\.0\.0\.1:{port}: .*another port"):
            other.bind("127.0.0.1", port)
        one.close()

    run(test)


def test_an_address_taken_between_bind_and_listen_is_named_in_the_error() -> None:
    """Two listeners can bind the same address, as two nodes that start together; the second fails to listen."""

    async def test() -> None:
        one, other = unbound("ONE"), unbound("OTHER")
        port = one.bind("127.0.0.1", 0)
        other.bind("127.0.0.1", port)
        one.listen()
        with pytest.raises(OSError, match=rf"listener OTHER cannot bind 127\.0\.0\.1:{port}: .*another port"):
            other.listen()
        one.close()
        other.close()

    run(test)


def test_an_unknown_host_is_named_in_the_error() -> None:
    async def test() -> None:
        with pytest.raises(OSError, match=r"listener ONE cannot bind nobody\.invalid:9092: "):
            unbound("ONE").bind("nobody.invalid", 9092)

    run(test)


def test_connections_beyond_the_limit_of_an_address_are_refused() -> None:
    async def test() -> None:
        async with serving(limits=ConnectionLimits(max_connections_per_ip=2)) as server:
            first, second, third = [await server.connect() for _ in range(3)]
            assert await is_closed(third[0])
            first[1].write(frame(b"x"))
            assert await receive(first[0]) == b"x"
            second[1].close()
            await asyncio.sleep(0.05)
            fourth = await server.connect()
            fourth[1].write(frame(b"y"))
            assert await receive(fourth[0]) == b"y"
            for _, writer in (first, third, fourth):
                writer.close()

    run(test)


def test_connections_beyond_the_limit_wait_until_one_closes() -> None:
    async def test() -> None:
        async with serving(limits=ConnectionLimits(max_connections=2)) as server:
            first, second, third = [await server.connect() for _ in range(3)]
            third[1].write(frame(b"x"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(third[0]), 0.1)
            first[1].close()
            assert await receive(third[0]) == b"x"
            second[1].close()
            third[1].close()

    run(test)


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async def test() -> None:
        async with serving(limits=ConnectionLimits(max_connections=10, max_listener_connections=1)) as server:
            first, second = [await server.connect() for _ in range(2)]
            second[1].write(frame(b"x"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(second[0]), 0.1)
            first[1].close()
            assert await receive(second[0]) == b"x"
            second[1].close()

    run(test)


def test_a_full_listener_accepts_again_when_a_connection_of_another_listener_closes() -> None:
    async def test() -> None:
        counts = ConnectionCounts()
        limits = ConnectionLimits(max_connections=1)
        async with serving(limits=limits, counts=counts) as one, serving(limits=limits, counts=counts) as other:
            first, second = await one.connect(), await other.connect()
            second[1].write(frame(b"x"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(second[0]), 0.1)
            first[1].close()
            assert await receive(second[0]) == b"x"
            second[1].close()

    run(test)


def test_an_address_beyond_its_rate_is_delayed_and_closed() -> None:
    async def test() -> None:
        counts = ConnectionCounts()
        counts.throttle_ms = lambda address: 50 if address == "127.0.0.1" else 0
        async with serving(limits=ConnectionLimits(), counts=counts) as server:
            reader, writer = await server.connect()
            writer.write(frame(b"x"))
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert server.listener.refused == 1
            # Closing the listener closes the delayed connections.
            counts.throttle_ms = lambda _: 100_000
            reader, writer = await server.connect()
            while server.listener.refused < 2:
                await asyncio.sleep(0.01)
        assert await reader.read() == b""
        writer.close()

    run(test)


def test_the_rate_of_new_connections_is_limited() -> None:
    async def test() -> None:
        async with serving(limits=ConnectionLimits(max_creation_rate=5)) as server:
            start = monotonic()
            streams = [await server.connect() for _ in range(12)]
            for reader, writer in streams:
                writer.write(frame(b"x"))
                assert await receive(reader) == b"x"
            assert monotonic() - start > 1.5
            for _, writer in streams:
                writer.close()

    run(test)


def test_idle_connections_are_closed_unless_they_wait_for_an_answer() -> None:
    waiting: list[Request] = []

    async def test() -> None:
        async with serving(waiting.append, limits=ConnectionLimits(max_idle_ms=50)) as server:
            idle, busy, half = [await server.connect() for _ in range(3)]
            busy[1].write(frame(b"x"))
            half[1].write(b"\x00\x00")
            await asyncio.sleep(0.1)
            server.listener.close_idle()
            assert await is_closed(idle[0])
            assert await is_closed(half[0])
            waiting[0].reply([frame(b"late")])
            assert await receive(busy[0]) == b"late"
            assert server.counts.count == 1
            for _, writer in (idle, busy, half):
                writer.close()

    run(test)


def test_a_closed_connection_is_no_longer_counted() -> None:
    async def test() -> None:
        async with serving() as server:
            for _ in range(20):
                _, writer = await server.connect()
                writer.write(frame(b"x") + b"\x00\x00\x00")
                writer.close()
            await asyncio.sleep(0.1)
            assert server.counts.count == 0
            assert not server.counts.by_ip
            assert not server.listener.connections

    run(test)


@pytest.mark.parametrize("seed", range(5))
def test_pipelined_requests_of_all_kinds_are_answered_in_order(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(("now", "later", "large", "nothing", "throttled")) for _ in range(400)]

    def handle(request: Request) -> None:
        assert request.frame is not None
        body = bytes(request.frame)
        kind = kinds[int(body)]
        answer: list[Chunk] = [struct.pack(">i", len(body)), body]
        if kind == "later":
            asyncio.get_running_loop().call_later(chance.random() / 1000, request.reply, answer)
        elif kind == "nothing":
            request.skip()
        elif kind == "throttled":
            request.reply(answer, mute_ms=1)
        elif kind == "large":
            padded = body + bytes(100_000)
            request.reply([struct.pack(">i", len(padded)), padded])
        else:
            request.reply(answer)

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            writer.write(b"".join(frame(str(number).encode()) for number in range(len(kinds))))
            await asyncio.sleep(0.05)  # the socket fills up
            for number, kind in enumerate(kinds):
                if kind != "nothing":
                    body = await receive(reader)
                    assert body.rstrip(b"\0") == str(number).encode()
            while len(server.sent) < len(kinds):
                await asyncio.sleep(0.01)
            assert [request.sent_ns > 0 for request in server.sent] == [True] * len(kinds)
            writer.close()

    run(test)


class Spy:
    """The socket of a connection, and the number of buffers in each call."""

    def __init__(self, connection: Connection) -> None:
        self.sock = connection._socket
        self.sizes: list[int] = []
        connection._socket = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return getattr(self.sock, name)

    def send(self, buffer: bytes) -> int:
        self.sizes.append(1)
        return self.sock.send(buffer)

    def sendmsg(self, buffers: list[bytes], *rest: object) -> int:
        self.sizes.append(len(buffers))
        return self.sock.sendmsg(buffers, *rest)  # type: ignore[arg-type]


async def only_connection(server: Server) -> Connection:
    while not server.listener.connections:
        await asyncio.sleep(0.01)
    return next(iter(server.listener.connections))


@pytest.mark.parametrize("pieces", [1, 12])
def test_answers_to_pipelined_requests_are_sent_together(pieces: int) -> None:
    def handle(request: Request) -> None:
        request.reply([struct.pack(">i", pieces), *([b"x"] * pieces)])

    async def test() -> None:
        async with serving(handle) as server:
            _, writer = await server.connect()
            spy = Spy(await only_connection(server))
            writer.write(frame(b"a") * 10)
            while len(server.sent) < 10:
                await asyncio.sleep(0.01)
            writer.close()
            assert sum(spy.sizes) == 10
            assert len(spy.sizes) < 5

    run(test)


def test_an_answer_of_many_small_pieces_is_sent_in_few_calls() -> None:
    pieces = [b"%06d" % number for number in range(100_000)]

    def handle(request: Request) -> None:
        request.reply([struct.pack(">i", 600_000), *pieces])

    async def test() -> None:
        async with serving(handle) as server:
            reader, writer = await server.connect()
            spy = Spy(await only_connection(server))
            writer.write(frame(b"a"))
            assert await receive(reader) == b"".join(pieces)
            writer.close()
            assert len(spy.sizes) < 100, "the reader takes some of it at a time"

    run(test)


def test_each_held_answer_is_finished_once_if_the_client_disconnects() -> None:
    async def test() -> None:
        async with serving() as server:
            _, writer = await server.connect()
            writer.write(frame(b"x" * 10_000) * 2_000)
            await asyncio.sleep(0.02)
            writer.transport.abort()
            while server.listener.connections:
                await asyncio.sleep(0.01)
            assert len(server.sent) == len({id(request) for request in server.sent})

    run(test)
