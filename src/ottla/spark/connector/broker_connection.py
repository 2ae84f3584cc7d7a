"""A connection to a broker without an event loop: send a request, do other work, then receive the response.

Fetch responses have megabytes. All are received into one reused buffer: the records of a response are a view of it,
valid until the next response is received.

TLS and SASL work as in `client/connection.py`.
"""

import socket
import struct
import time
from typing import Any, Final

from ottla import __version__
from ottla.client.addresses import Address
from ottla.client.authentication import HANDSHAKE_ERRORS, HANDSHAKE_VERSION, handshake_failure, sasl_requests
from ottla.client.framing import LENGTH, answer_size
from ottla.protocol.errors import NetworkFailed, RequestTimedOut, UnsupportedVersion, by_code
from ottla.protocol.messages.apis import BY_KEY, Api, ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.security.settings import Sasl, Security
from ottla.security.tls import client_context

_FIRST_BUFFER_BYTES: Final = 1 << 16
_head = struct.Struct(">hhih").pack


class BrokerConnection:
    """An open connection. `connect` opens one."""

    def __init__(self, opened: socket.socket, address: str, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._socket = opened
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._correlation = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._sent: tuple[Api, int] | None = None
        self._sasl: Sasl | None = None
        self._authenticate_at_s: float | None = None
        """When the client must authenticate again."""

    @classmethod
    def connect(
        cls, address: Address, client_id: str, connect_timeout_s: float, timeout_s: float, security: Security
    ) -> "BrokerConnection":
        """Open a connection, negotiate API versions and authenticate.

        Raises NetworkFailed, RequestTimedOut, AuthenticationError, or InvalidSecurity if keys cannot be loaded.
        """
        context = None if security.tls is None else client_context(security.tls)
        try:
            opened = socket.create_connection(address, connect_timeout_s)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                opened = context.wrap_socket(opened, server_hostname=address.host)
        except TimeoutError:
            raise RequestTimedOut(f"{address} did not answer within {connect_timeout_s:g} s") from None
        except HANDSHAKE_ERRORS as error:
            raise NetworkFailed(handshake_failure(str(address), error)) from error
        except OSError as error:
            raise NetworkFailed(f"{address} cannot be reached: {error.strerror or error}") from error
        connection = cls(opened, str(address), client_id, timeout_s)
        try:
            connection._negotiate()
            if security.sasl is not None:
                connection._sasl = security.sasl
                connection._authenticate(security.sasl)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return self._sent is None

    def version_of(self, key: int, *, at_most: int | None = None) -> int:
        """Return the highest common version of an API; raise UnsupportedVersion if they have none in common."""
        api = BY_KEY[key]
        least, most = self._versions.get(key, (0, -1))
        version = min(most, api.latest_stable if at_most is None else at_most)
        if version < max(least, api.oldest):
            raise UnsupportedVersion(
                f"{self.address} supports {api.name} v{least} to v{most}; this client requires v{api.oldest} or later"
            )
        return version

    def send(self, request: Any, version: int) -> None:
        """Send a request; its response must be received before the next request."""
        assert self._sent is None, "a response is outstanding"
        if self._authenticate_at_s is not None and time.monotonic() >= self._authenticate_at_s:
            assert self._sasl is not None
            self._authenticate(self._sasl)
        api = BY_KEY[schema_of(type(request)).key]
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        head = _head(api.key, version, self._correlation, len(self._client_id)) + self._client_id
        if is_flexible(type(request), version):
            head += b"\x00"
        body = encode(request, version)
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(LENGTH.pack(len(head) + len(body)) + head + body)
        except OSError as error:
            raise NetworkFailed(f"the connection to {self.address} failed: {error}") from error
        self._sent = api, version

    def receive(self, wait_s: float = 0.0) -> Any:
        """Return the outstanding response; after RequestTimedOut or NetworkFailed the connection must be closed."""
        assert self._sent is not None, "no request was sent"
        api, version = self._sent
        self._socket.settimeout(self._timeout_s + wait_s)
        try:
            frame = self._receive_frame()
            if LENGTH.unpack_from(frame)[0] != self._correlation:
                raise ProtocolError(f"the response is not for request {self._correlation}")
            answer = self._decode(api, version, frame[LENGTH.size :])
        except TimeoutError:
            raise RequestTimedOut(f"{self.address} did not answer {api.name} within {self._timeout_s:g} s") from None
        except (OSError, ProtocolError) as error:
            raise NetworkFailed(f"the connection to {self.address} failed: {error}") from error
        self._sent = None
        return answer

    def close(self) -> None:
        self._socket.close()

    def _decode(self, api: Api, version: int, body: memoryview) -> Any:
        if api.key is ApiKey.API_VERSIONS:
            # A node that does not support the version answers in version 0.
            is_oldest = int.from_bytes(body[:2], "big") == UnsupportedVersion.code
            return decode(ApiVersionsResponse, 0 if is_oldest else version, body)
        return decode(api.response, version, body[1:] if is_flexible(api.response, version) else body)

    def _negotiate(self) -> None:
        self.send(ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__), 3)
        answer: ApiVersionsResponse = self.receive()
        if answer.error_code == UnsupportedVersion.code:
            self.send(ApiVersionsRequest(), 0)
            answer = self.receive()
        if answer.error_code:
            raise by_code(answer.error_code)(f"{self.address} refused to list its API versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _authenticate(self, sasl: Sasl) -> None:
        self._authenticate_at_s = None
        steps = sasl_requests(sasl.mechanism, sasl.exchange(), self.address)
        request = next(steps)
        while True:
            is_handshake = type(request) is SaslHandshakeRequest
            self.send(request, HANDSHAKE_VERSION if is_handshake else self.version_of(ApiKey.SASL_AUTHENTICATE))
            try:
                request = steps.send(self.receive())
            except StopIteration as done:
                if done.value is not None:
                    self._authenticate_at_s = time.monotonic() + done.value
                return

    def _receive_frame(self) -> memoryview:
        return self._fill(answer_size(self._fill(LENGTH.size)))

    def _fill(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 4)
        view = memoryview(self._buffer)[:size]
        done = 0
        while done < size:
            received = self._socket.recv_into(view[done:])
            if not received:
                raise ConnectionError("the broker closed it")
            done += received
        return view
