"""A connection to a node, with several requests in flight.

The first request asks for the node's API versions. Later requests use the highest version that both sides support. With
SASL, the client then authenticates, and authenticates again before its session expires. Responses arrive in the order
of their requests. If the connection breaks, all requests in flight fail.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla import __version__
from ottla.client.authentication import HANDSHAKE_ERRORS, HANDSHAKE_VERSION, handshake_failure, sasl_requests
from ottla.client.framing import LENGTH, answer_size
from ottla.protocol.errors import ApiError, NetworkFailed, RequestTimedOut, UnsupportedVersion, by_code
from ottla.protocol.messages.apis import BY_KEY, Api, ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.security.settings import PLAINTEXT, Sasl, Security
from ottla.security.tls import client_context

_HUNG_UP: Final[int] = getattr(select, "POLLRDHUP", getattr(select, "POLLHUP", 0))  # not every system can tell
_head = struct.Struct(">hhih").pack


class Connection:
    """An open connection, created by `connect`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str, address: str = "the node"
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._client_id = client_id.encode()
        self._versions: dict[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[int, Api, int, asyncio.Future[Any]]] = deque()
        self._correlation = 0
        self._failure: ApiError | None = None
        self._sasl: Sasl | None = None
        self._authenticate_at_s: float | None = None
        """The time of the loop's clock at which the client must authenticate again."""
        self._authenticating = asyncio.Lock()
        self._receiving = asyncio.ensure_future(self._receive())
        self.on_broken: Callable[[], None] | None = None
        """Called once when the connection has ended, whichever side ended it."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "ottla",
        timeout_s: float = 10.0,
        security: Security = PLAINTEXT,
    ) -> Connection:
        """Open a connection, negotiate the API versions, and authenticate.

        Raises NetworkFailed, RequestTimedOut, AuthenticationError, or InvalidSecurity for keys that cannot be loaded.
        """
        context = None if security.tls is None else client_context(security.tls)
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port, limit=1 << 20, ssl=context)
        except TimeoutError:
            raise RequestTimedOut(f"{host}:{port} did not answer within {timeout_s:g} s") from None
        except HANDSHAKE_ERRORS as error:
            raise NetworkFailed(handshake_failure(f"{host}:{port}", error)) from error
        except OSError as error:
            raise NetworkFailed(f"{host}:{port} cannot be reached: {_reason(error)}") from error
        connection = cls(reader, writer, client_id, f"{host}:{port}")
        try:
            await connection._negotiate(timeout_s)
            if security.sasl is not None:
                connection._sasl = security.sasl
                await connection._authenticate(security.sasl, timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the node has closed its end, even if this side has not read that yet."""
        sock = self._writer.get_extra_info("socket")
        if self._failure is not None or sock is None or sock.fileno() < 0 or not _HUNG_UP:
            return self._failure is not None
        poll = select.poll()
        poll.register(sock.fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version that the node serves, by API key."""
        return self._versions

    def version_of(self, key: int, *, at_most: int | None = None) -> int:
        """Return the version to use for an API. Raise UnsupportedVersion if no version fits."""
        api = BY_KEY[key]
        if key not in self._versions:
            raise UnsupportedVersion(f"{self.address} does not serve {api.name}")
        least, most = self._versions[key]
        version = min(most, api.latest_stable if at_most is None else at_most)
        if version < max(least, api.oldest):
            raise UnsupportedVersion(
                f"{self.address} supports {api.name} v{least} to v{most}, but v{api.oldest} or later is needed"
            )
        return version

    async def send(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        """Send a request and return the response. Raise RequestTimedOut, NetworkFailed or UnsupportedVersion."""
        if self._authenticate_at_s is not None:
            await self._stay_authenticated(timeout_s)
        return await self._ask(request, version, timeout_s)

    async def _ask(self, request: Any, version: int | None, timeout_s: float) -> Any:
        api = BY_KEY[schema_of(type(request)).key]
        if version is None:
            version = self.version_of(api.key)
        future = self._write(api, request, version)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            # Close the connection: a late response would be taken for the response to the next request.
            late = RequestTimedOut(f"{self.address} did not answer {api.name} within {timeout_s:g} s")
            self._fail(late)
            raise late from None

    async def post(self, request: Any, *, version: int) -> None:
        """Send a request that has no response, a Produce with acks=0. Return when it has been handed to the socket."""
        if self._authenticate_at_s is not None:
            await self._stay_authenticated()
        self._transmit(BY_KEY[schema_of(type(request)).key], request, version)
        try:
            await self._writer.drain()
        except OSError as error:
            raise NetworkFailed(f"the connection to {self.address} failed: {error}") from error

    def close(self) -> None:
        """Close the connection. Requests in flight fail."""
        self._receiving.cancel()
        self._fail(NetworkFailed(f"the connection to {self.address} was closed"))

    async def _negotiate(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer: ApiVersionsResponse = await self._ask(request, 3, timeout_s)
        if answer.error_code == UnsupportedVersion.code:
            answer = await self._ask(ApiVersionsRequest(), 0, timeout_s)
        if answer.error_code:
            raise by_code(answer.error_code)(f"{self.address} did not return its API versions: is it a Kafka broker?")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def _authenticate(self, sasl: Sasl, timeout_s: float) -> None:
        exchange = await asyncio.to_thread(sasl.exchange)  # it may request a token from another server
        steps = sasl_requests(sasl.mechanism, exchange, self.address)
        request = next(steps)
        while True:
            version = HANDSHAKE_VERSION if type(request) is SaslHandshakeRequest else None
            answer = await self._ask(request, version, timeout_s)
            try:
                request = steps.send(answer)
            except StopIteration as done:
                lifetime_s = done.value
                break
        self._authenticate_at_s = None if lifetime_s is None else asyncio.get_running_loop().time() + lifetime_s

    async def _stay_authenticated(self, timeout_s: float = 30.0) -> None:
        """Authenticate again if the session is about to expire. Other requests wait for it."""
        async with self._authenticating:
            due_s = self._authenticate_at_s
            if due_s is not None and asyncio.get_running_loop().time() >= due_s:
                assert self._sasl is not None
                try:
                    await self._authenticate(self._sasl, timeout_s)
                except ApiError as error:
                    self._fail(error)
                    raise

    def _write(self, api: Api, request: Any, version: int) -> asyncio.Future[Any]:
        correlation = self._transmit(api, request, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((correlation, api, version, future))
        return future

    def _transmit(self, api: Api, request: Any, version: int) -> int:
        if self._failure is None and self._writer.is_closing():
            # The loop has closed a socket that was reset, and `_receive` notices only in the next iteration.
            self._fail(NetworkFailed(f"the connection to {self.address} was reset"))
        if self._failure is not None:
            raise self._failure
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        head = _head(api.key, version, self._correlation, len(self._client_id)) + self._client_id
        if is_flexible(type(request), version):
            head += b"\x00"
        body = encode(request, version)
        self._writer.write(LENGTH.pack(len(head) + len(body)) + head + body)
        return self._correlation

    async def _receive(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(LENGTH.size)
                self._take(await self._reader.readexactly(answer_size(head)))
        except asyncio.IncompleteReadError:
            self._fail(NetworkFailed(f"{self.address} closed the connection"))
        except (OSError, ProtocolError) as error:
            self._fail(NetworkFailed(f"the connection to {self.address} failed: {error}"))

    def _take(self, frame: bytes) -> None:
        if not self._waiting:
            raise ProtocolError("a response without a request")
        correlation, api, version, future = self._waiting[
            0
        ]  # stays in the queue, so that it fails too if the response is malformed
        (answered,) = LENGTH.unpack_from(frame)
        if answered != correlation:
            raise ProtocolError(f"a response to request {answered}, but {correlation} is next")
        start = LENGTH.size
        # The header of this response is not flexible, because the client does not know the node's versions yet.
        if api.key is ApiKey.API_VERSIONS:
            response = self._take_versions(frame[start:], version)
        else:
            if is_flexible(api.response, version):
                start += 1
            response = decode(api.response, version, memoryview(frame)[start:])
        self._waiting.popleft()
        if not future.done():
            future.set_result(response)

    def _take_versions(self, body: bytes, version: int) -> ApiVersionsResponse:
        if version and int.from_bytes(body[:2], "big") == UnsupportedVersion.code:
            version = 0
        return decode(ApiVersionsResponse, version, body)

    def _fail(self, error: ApiError) -> None:
        if self._failure is None:
            self._failure = error
            self._hang_up()
            if self.on_broken is not None:
                asyncio.get_running_loop().call_soon(self.on_broken)
        while self._waiting:
            *_, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # the waiting task may have been cancelled

    def _hang_up(self) -> None:
        transport = self._writer.transport
        if transport.get_extra_info("ssl_object") is None or transport.get_write_buffer_size():
            transport.close()
        else:
            transport.abort()  # TLS waits for close_notify, perhaps longer than the event loop runs


def _reason(error: OSError) -> str:
    """Return the system's message without numbers and addresses: that of the first address if several failed."""
    if error.errno is None and (number := re.search(r"\[Errno (\d+)\]", str(error))):
        return os.strerror(int(number[1])).lower()
    if error.errno is not None and error.errno > 0 and type(error) is not socket.gaierror:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()
