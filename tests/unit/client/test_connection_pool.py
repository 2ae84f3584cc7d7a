"""A pool keeps one connection for each address and purpose, and replaces those that broke."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.connection import Connection
from ottla.client.connection_pool import ConnectionPool
from ottla.protocol.errors import NetworkFailed
from ottla.protocol.messages.rpc.api_versions import ApiVersionsResponse
from ottla.protocol.wire.codec import encode

ANSWER = encode(ApiVersionsResponse(), 3)


class Server:
    """A node that answers ApiVersions and nothing else."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.clients: list[str] = []
        self.port = 0
        self.is_silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                self.clients.append(request[10 : 10 + int.from_bytes(request[8:10], "big")].decode())
                if self.is_silent:
                    continue
                await asyncio.sleep(0.01)
                frame = request[4:8] + ANSWER
                writer.write(len(frame).to_bytes(4, "big") + frame)
        except asyncio.IncompleteReadError:
            writer.close()

    def connect(self, pool: ConnectionPool, purpose: str = "") -> Awaitable[Connection]:
        return pool.connection("127.0.0.1", self.port, purpose=purpose, timeout_s=5)


def with_server(scenario: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server()
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
            server.port = listening.sockets[0].getsockname()[1]
            await scenario(server)
            for writer in server.writers:
                writer.close()

    asyncio.run(main())


def test_concurrent_requests_share_one_connection_for_each_purpose() -> None:
    async def scenario(server: Server) -> None:
        pool = ConnectionPool("node-1")
        first, second, other = await asyncio.gather(
            server.connect(pool), server.connect(pool), server.connect(pool, "heartbeat")
        )
        assert first is second
        assert other is not first
        assert sorted(server.clients) == ["node-1", "node-1-heartbeat"]
        pool.close()
        assert not first.is_open
        assert not other.is_open

    with_server(scenario)


def test_a_broken_connection_is_reported_and_replaced() -> None:
    async def scenario(server: Server) -> None:
        broken: list[str] = []
        pool = ConnectionPool("node-1", on_broken=broken.append)
        first = await server.connect(pool, "heartbeat")
        server.writers[0].close()
        while not broken:
            await asyncio.sleep(0.01)
        second = await server.connect(pool, "heartbeat")
        assert not first.is_open
        assert second.is_open
        pool.drop("127.0.0.1", server.port)
        await asyncio.sleep(0)
        assert not second.is_open
        assert broken == ["heartbeat"], "the owner knows of connections that it drops"

    with_server(scenario)


def test_a_connection_that_is_dropped_while_it_opens_fails() -> None:
    async def scenario(server: Server) -> None:
        pool = ConnectionPool("node-1")
        opening = asyncio.ensure_future(server.connect(pool))
        while not server.writers:
            await asyncio.sleep(0)
        pool.close()
        with pytest.raises(NetworkFailed, match="is no longer needed"):
            await opening

    with_server(scenario)


def test_a_connection_to_a_silent_node_fails_as_soon_as_it_is_dropped() -> None:
    async def scenario(server: Server) -> None:
        server.is_silent = True
        pool = ConnectionPool("node-1")
        requests = [asyncio.ensure_future(server.connect(pool)) for _ in range(2)]
        while not server.clients:
            await asyncio.sleep(0)
        pool.drop("127.0.0.1", server.port)
        async with asyncio.timeout(1):
            for request in requests:
                with pytest.raises(NetworkFailed, match="is no longer needed"):
                    await request
        server.is_silent = False
        assert (await server.connect(pool)).is_open
        pool.close()

    with_server(scenario)


def test_a_request_that_is_cancelled_while_its_connection_opens_leaves_the_pool_usable() -> None:
    async def scenario(server: Server) -> None:
        server.is_silent = True
        pool = ConnectionPool("node-1")
        request = asyncio.ensure_future(server.connect(pool))
        while not server.clients:
            await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        server.is_silent = False
        assert (await server.connect(pool)).is_open
        pool.close()

    with_server(scenario)
