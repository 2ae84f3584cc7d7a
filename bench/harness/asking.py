"""Plain sockets that ask a node a question, with no client library in between: which brokers there are, which APIs."""

import socket
import struct
from typing import Any

from ottla.protocol.messages.apis import BY_KEY
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of

METADATA_VERSION = 8
API_VERSIONS_VERSION = 2
TIMEOUT_S = 5.0
_length = struct.Struct(">i")


class Unanswered(Exception):
    """The node closed the connection instead of answering."""


def known_brokers(host: str, port: int) -> int:
    """How many brokers a node's Metadata answer names."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return ask_metadata(connection)


def ask_metadata(connection: socket.socket) -> int:
    """The same on an open connection."""
    return len(ask(connection, MetadataRequest(topics=[]), METADATA_VERSION).brokers)


def served_apis(host: str, port: int) -> frozenset[int]:
    """The keys of the APIs that a node serves."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return ask_versions(connection)


def ask_versions(connection: socket.socket) -> frozenset[int]:
    """The same on an open connection."""
    answer = ask(connection, ApiVersionsRequest(), API_VERSIONS_VERSION)
    return frozenset(each.api_key for each in answer.api_keys)


def ask(connection: socket.socket, request: Any, version: int, *, client_id: str = "bench") -> Any:
    """The answer to a request; raises Unanswered if the node closes the connection instead."""
    api = BY_KEY[schema_of(type(request)).key]
    connection.sendall(frame_of(request, version, client_id=client_id))
    (size,) = _length.unpack(_receive(connection, 4))
    data = _receive(connection, size)
    return decode(api.response, version, memoryview(data)[5 if is_flexible(api.response, version) else 4 :])


def frame_of(request: Any, version: int, *, client_id: str = "bench") -> bytes:
    """A request as it is sent."""
    api = BY_KEY[schema_of(type(request)).key]
    header = RequestHeader(request_api_key=api.key, request_api_version=version, correlation_id=1, client_id=client_id)
    frame = encode(header, 2 if is_flexible(api.request, version) else 1) + encode(request, version)
    return _length.pack(len(frame)) + frame


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = b""
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise Unanswered("the node closed the connection")
        chunks += chunk
    return chunks
