"""The HTTP server for metrics and health checks: its answers and its limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from ottla.node import http_server
from ottla.node.http_server import Answer, HttpServer


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


def broken() -> Answer:
    raise ValueError("no idea")


PAGES = {
    "/livez": lambda: Answer("ok\n"),
    "/large": lambda: Answer("ä" * 1_000_000),
    "/healthz": lambda: Answer("not yet\n", HTTPStatus.SERVICE_UNAVAILABLE),
    "/broken": broken,
}


LOOKUPS = {"/lookup": lambda query: Answer("&".join(f"{name}={value}" for name, value in query.items()))}


@asynccontextmanager
async def serving(timeout_s: float = 5.0) -> AsyncIterator[int]:
    server = HttpServer(PAGES, lookups=LOOKUPS, timeout_s=timeout_s)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def exchange(port: int, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes and read the answer up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *headers = head.decode().split("\r\n")
    version, code, _ = status.split(" ", 2)
    assert version == "HTTP/1.1"
    return int(code), dict(line.split(": ", 1) for line in headers), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_a_page_is_answered_completely() -> None:
    async def test() -> None:
        async with serving() as port:
            code, headers, body = await exchange(port, get("/livez?verbose"))
            assert (code, body) == (200, b"ok\n")
            assert headers["Content-Length"] == "3"
            assert headers["Connection"] == "close"
            code, headers, body = await exchange(port, get("/large"))
            assert (code, len(body), headers["Content-Length"]) == (200, 2_000_000, "2000000")
            assert (await exchange(port, get("/healthz")))[::2] == (503, b"not yet\n")

    run(test)


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", b""),
        ("?name=a.b-c&from=5", b"name=a.b-c&from=5"),
        ("?name=%C3%A4+b&name=c&empty=", b"name=c&empty="),
        ("?name=%ff", "name=\ufffd".encode()),
    ],
)
def test_a_lookup_receives_the_query(query: str, body: bytes) -> None:
    async def test() -> None:
        async with serving() as port:
            assert (await exchange(port, get(f"/lookup{query}")))[::2] == (200, body)

    run(test)


def test_an_answer_to_head_has_a_length_and_no_body() -> None:
    async def test() -> None:
        async with serving() as port:
            code, headers, body = await exchange(port, get("/livez", "HEAD"))
            assert (code, headers["Content-Length"], body) == (200, "3", b"")

    run(test)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (get("/"), 404),
        (get("/livez/x"), 404),
        (get("/../etc/passwd"), 404),
        (get("/livez", "POST"), 405),
        (get("/livez", "DELETE"), 405),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /livez SPDY/3\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"x" * 20_000, 431),
        (get("/broken"), 500),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else None,
)
def test_bad_requests_get_an_error_status(data: bytes, code: int) -> None:
    async def test() -> None:
        async with serving() as port:
            assert (await exchange(port, data))[0] == code
            assert (await exchange(port, get("/livez")))[0] == 200

    run(test)


def test_a_client_that_sends_nothing_is_disconnected() -> None:
    async def test() -> None:
        async with serving(timeout_s=0.1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /livez HT")
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    async def test() -> None:
        async with serving(timeout_s=0.2) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            for _ in range(3):
                writer.write(get("/large"))
            await asyncio.sleep(0.4)
            assert (await exchange(port, get("/livez")))[0] == 200
            writer.transport.abort()

    run(test)


def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)

    async def test() -> None:
        async with serving() as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()
            idle[0][1].close()
            await asyncio.sleep(0.05)
            assert (await exchange(port, get("/livez")))[0] == 200
            idle[1][1].close()

    run(test)


def test_stopping_closes_open_connections() -> None:
    async def test() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.05)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(test)
