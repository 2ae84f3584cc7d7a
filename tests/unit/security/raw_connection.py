"""A connection that sends raw requests, before and after authentication."""

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
from tests.unit.security.secured_node import PASSWORDS, SecuredNode

CLOSED = "closed"
BOB = b"\0bob\0" + PASSWORDS["bob"].encode()
"""Bob's credentials for PLAIN."""
_length = struct.Struct(">i")


def encoded(part: object) -> str:
    """Encode a part of an OAuth token."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class RawConnection:
    """A connection to a node, with the responses so far."""

    def __init__(self, node: SecuredNode, listener: str) -> None:
        host, _, port = node.addresses[listener].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self.responses: list[Any] = []

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request, and return the response without values that differ between nodes."""
        answer = self.send_unfiltered(request, version)
        if answer != CLOSED:
            answer = self.responses[-1] = _comparable(answer)
        return answer

    def send_unfiltered(self, request: Any, version: int) -> Any:
        """Send a request, and return the unfiltered response, or CLOSED."""
        answer = self.send_frame(frame_of(request, version, 1, "test"))
        if isinstance(answer, bytes):
            answer = self.responses[-1] = decode_response(schema_of(type(request)).key, version, answer)[1]
        return answer

    def send_frame(self, frame: bytes) -> bytes | str:
        """Send a frame, and return the bytes of the response, or CLOSED."""
        try:
            self._socket.sendall(_length.pack(len(frame)) + frame)
            answer = self._take(_length.unpack(self._take(4))[0])
        except ConnectionError:
            self.responses.append(CLOSED)
            return CLOSED
        self.responses.append(answer)
        return answer

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def send_token(self, token: bytes) -> bytes | None:
        """Send a SASL token, and return the node's answer, or None if it rejects the token."""
        answer = self.send_unfiltered(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer == CLOSED:
            return None
        self.responses[-1] = _comparable(answer)
        return None if answer.error_code else bytes(answer.auth_bytes)

    def request_metadata(self) -> None:
        """Send a request that needs an authenticated client."""
        self.ask(MetadataRequest(topics=[]), 12)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            if not got:
                raise ConnectionError
            data += got
        return data


def _comparable(response: Any) -> Any:
    if hasattr(response, "brokers"):
        return "metadata"
    if hasattr(response, "api_keys"):
        return ("versions", response.error_code)
    values = {
        name: getattr(response, name)
        for name in ("error_code", "error_message", "mechanisms")
        if hasattr(response, name)
    }
    if hasattr(response, "session_lifetime_ms"):
        values["session_lifetime_ms"] = response.session_lifetime_ms
    if hasattr(response, "auth_bytes") and not bytes(response.auth_bytes).startswith((b"r=", b"v=")):
        values["auth_bytes"] = bytes(response.auth_bytes)
    return values
