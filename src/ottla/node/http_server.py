"""A small HTTP/1.1 server for metrics and health checks: `GET` of fixed paths, one request for each connection.

The size of a request's head, the time to send it and the number of connections are limited. Each path has a function
that returns the answer, called in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8192
MAX_CONNECTIONS: Final = 32
_TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _TEXT


Page = Callable[[], Answer]
Lookup = Callable[[Mapping[str, str]], Answer]
"""A page that depends on the request's query. If a name is given twice, the last value counts."""


class HttpServer:
    """An HTTP server on one address."""

    def __init__(
        self, pages: Mapping[str, Page], *, lookups: Mapping[str, Lookup] | None = None, timeout_s: float = 5.0
    ) -> None:
        self._pages = pages
        self._lookups = lookups or {}
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; port 0 lets the system choose. Raise OSError."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=MAX_HEAD_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(writer)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer, with_body = await self._answer(reader)
                writer.write(_encode(answer, with_body=with_body))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone or too slow
        except Exception:
            logger.exception("an HTTP request failed")
        finally:
            self._connections.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), True
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _error(HTTPStatus.BAD_REQUEST), True
        method, target, _ = parts
        if method not in ("GET", "HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED), True
        path, _, query = target.partition("?")
        page, lookup = self._pages.get(path), self._lookups.get(path)
        if lookup is not None:
            page = partial(lookup, dict(parse_qsl(query, keep_blank_values=True)))
        answer = _error(HTTPStatus.NOT_FOUND) if page is None else self._ask(page)
        return answer, method == "GET"

    def _ask(self, page: Page) -> Answer:
        try:
            return page()
        except Exception:
            logger.exception("an HTTP request failed")
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n", status)


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    body = answer.body.encode()
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        *(["Allow: GET, HEAD"] if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + (body if with_body else b"")
