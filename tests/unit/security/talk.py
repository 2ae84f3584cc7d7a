"""A connection that speaks bytes of the protocol, before and after it is known who is at its end."""

import base64
import json
import socket
import struct
from typing import Any

from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.harness import decode_response, frame_of
from tests.unit.security.secured import PASSWORDS, Secured

CLOSED = "closed"
BOB = b"\0bob\0" + PASSWORDS["bob"].encode()
"""What bob says by PLAIN."""
_length = struct.Struct(">i")


def encoded(part: object) -> str:
    """A part of a token of OAuth."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class Talk:
    """A connection to one node, and what was heard on it."""

    def __init__(self, node: Secured, listener: str) -> None:
        host, _, port = node.addresses[listener].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self.heard: list[Any] = []

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """The answer, without what differs from one node to another."""
        answer = self.whole(request, version)
        if answer != CLOSED:
            answer = self.heard[-1] = _told(answer)
        return answer

    def whole(self, request: Any, version: int) -> Any:
        """The answer as it came, or that the connection was closed."""
        answer = self.say(frame_of(request, version, 1, "test"))
        if isinstance(answer, bytes):
            answer = self.heard[-1] = decode_response(schema_of(type(request)).key, version, answer)[1]
        return answer

    def say(self, frame: bytes) -> bytes | str:
        """The bytes of an answer, or that the connection was closed."""
        try:
            self._socket.sendall(_length.pack(len(frame)) + frame)
            answer = self._take(_length.unpack(self._take(4))[0])
        except ConnectionError:
            self.heard.append(CLOSED)
            return CLOSED
        self.heard.append(answer)
        return answer

    def shake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def prove(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def said_to(self, token: bytes) -> bytes | None:
        """What the node says to a token; None if it refuses it."""
        answer = self.whole(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer == CLOSED:
            return None
        self.heard[-1] = _told(answer)
        return None if answer.error_code else bytes(answer.auth_bytes)

    def is_let_in(self) -> None:
        """Notes whether a request is answered that only those may make who are known."""
        self.ask(MetadataRequest(topics=[]), 12)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            if not got:
                raise ConnectionError
            data += got
        return data


def _told(response: Any) -> Any:
    if hasattr(response, "brokers"):
        return "metadata"
    if hasattr(response, "api_keys"):
        return ("versions", response.error_code)
    found = {
        name: getattr(response, name)
        for name in ("error_code", "error_message", "mechanisms")
        if hasattr(response, name)
    }
    if hasattr(response, "session_lifetime_ms"):
        found["session_lifetime_ms"] = response.session_lifetime_ms
    if hasattr(response, "auth_bytes") and not bytes(response.auth_bytes).startswith((b"r=", b"v=")):
        found["auth_bytes"] = bytes(response.auth_bytes)
    return found
