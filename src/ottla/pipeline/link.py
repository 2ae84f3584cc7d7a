"""A connection without an event loop: one request goes out, its answer is taken later, with other work in between.

Fetches bring megabytes. They are received into one buffer that is used again: what an answer holds of records is a view
of it, and good until the next answer is taken.
"""

import socket
import struct
from typing import Any, Final

from ottla import __version__
from ottla.client.addresses import Address
from ottla.errors import NetworkFailed, RequestTimedOut, UnsupportedVersion, by_code
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.apis import BY_KEY, Api
from ottla.wire.codec import decode, encode, is_flexible
from ottla.wire.declare import schema_of
from ottla.wire.errors import ProtocolError

_API_VERSIONS: Final = 18
_FIRST_BUFFER_BYTES: Final = 1 << 16
_head = struct.Struct(">hhih").pack
_length = struct.Struct(">i")


class Link:
    """An open connection. `connect` makes one."""

    def __init__(self, opened: socket.socket, address: str, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._socket = opened
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._correlation = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._sent: tuple[Api, int] | None = None

    @classmethod
    def connect(cls, address: Address, client_id: str, connect_timeout_s: float, timeout_s: float) -> "Link":
        """Open a connection and learn what the node speaks; raises NetworkFailed or RequestTimedOut."""
        try:
            opened = socket.create_connection(address, connect_timeout_s)
        except TimeoutError:
            raise RequestTimedOut(f"{address} did not answer within {connect_timeout_s:g} s") from None
        except OSError as error:
            raise NetworkFailed(f"{address} cannot be reached: {error.strerror or error}") from error
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(opened, str(address), client_id, timeout_s)
        try:
            link._negotiate()
        except BaseException:
            link.close()
            raise
        return link

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due."""
        return self._sent is None

    def version_of(self, key: int, *, at_most: int | None = None) -> int:
        """The version in which an API is spoken here; raises UnsupportedVersion if there is none."""
        api = BY_KEY[key]
        least, most = self._versions.get(key, (0, -1))
        version = min(most, api.latest_stable if at_most is None else at_most)
        if version < max(least, api.oldest):
            raise UnsupportedVersion(f"{self.address} speaks {api.name} v{least} to v{most}, and not v{api.oldest}")
        return version

    def send(self, request: Any, version: int) -> None:
        """Send a request; its answer must be taken before the next one."""
        assert self._sent is None, "an answer is due"
        api = BY_KEY[schema_of(type(request)).key]
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        head = _head(api.key, version, self._correlation, len(self._client_id)) + self._client_id
        if is_flexible(type(request), version):
            head += b"\x00"
        body = encode(request, version)
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(_length.pack(len(head) + len(body)) + head + body)
        except OSError as error:
            raise NetworkFailed(f"the connection to {self.address} failed: {error}") from error
        self._sent = api, version

    def take(self, wait_s: float = 0.0) -> Any:
        """The answer that is due; raises RequestTimedOut or NetworkFailed, after which the link is of no more use."""
        assert self._sent is not None, "nothing was asked"
        api, version = self._sent
        self._socket.settimeout(self._timeout_s + wait_s)
        try:
            frame = self._receive()
            if _length.unpack_from(frame)[0] != self._correlation:
                raise ProtocolError(f"an answer to another request than {self._correlation}")
            answer = self._decode(api, version, frame[_length.size :])
        except TimeoutError:
            raise RequestTimedOut(f"{self.address} did not answer {api.name} within {self._timeout_s:g} s") from None
        except (OSError, ProtocolError) as error:
            raise NetworkFailed(f"the connection to {self.address} failed: {error}") from error
        self._sent = None
        return answer

    def close(self) -> None:
        self._socket.close()

    def _decode(self, api: Api, version: int, body: memoryview) -> Any:
        if api.key == _API_VERSIONS:
            # A node that does not know the version answers in the oldest.
            unknown = int.from_bytes(body[:2], "big") == UnsupportedVersion.code
            return decode(ApiVersionsResponse, 0 if unknown else version, body)
        return decode(api.response, version, body[1:] if is_flexible(api.response, version) else body)

    def _negotiate(self) -> None:
        self.send(ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__), 3)
        answer: ApiVersionsResponse = self.take()
        if answer.error_code == UnsupportedVersion.code:
            self.send(ApiVersionsRequest(), 0)
            answer = self.take()
        if answer.error_code:
            raise by_code(answer.error_code)(f"{self.address} does not tell which versions it speaks")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _receive(self) -> memoryview:
        (size,) = _length.unpack(self._fill(_length.size))
        if size < _length.size:
            raise ProtocolError(f"an answer of {size} bytes")
        return self._fill(size)

    def _fill(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 4)
        view = memoryview(self._buffer)[:size]
        done = 0
        while done < size:
            got = self._socket.recv_into(view[done:])
            if not got:
                raise ConnectionError("it was closed by the node")
            done += got
        return view
