"""Requests to a node over plain sockets, without a client library."""

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


class NoResponse(Exception):
    """The node closed the connection instead of responding."""


def count_known_brokers(host: str, port: int) -> int:
    """Return the number of brokers in the Metadata response of a node."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return request_broker_count(connection)


def request_broker_count(connection: socket.socket) -> int:
    """Return the number of brokers in the Metadata response, over an open connection."""
    return len(send_request(connection, MetadataRequest(topics=[]), METADATA_VERSION).brokers)


def fetch_served_apis(host: str, port: int) -> frozenset[int]:
    """Return the keys of the APIs that a node serves."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return fetch_api_keys(connection)


def fetch_api_keys(connection: socket.socket) -> frozenset[int]:
    """Return the keys of the served APIs, over an open connection."""
    answer = send_request(connection, ApiVersionsRequest(), API_VERSIONS_VERSION)
    return frozenset(api.api_key for api in answer.api_keys)


def send_request(connection: socket.socket, request: Any, version: int, *, client_id: str = "bench") -> Any:
    """Send a request and return the response. Raise NoResponse if the node closes the connection instead."""
    api = BY_KEY[schema_of(type(request)).key]
    connection.sendall(encode_frame(request, version, client_id=client_id))
    (size,) = _length.unpack(_receive(connection, 4))
    data = _receive(connection, size)
    return decode(api.response, version, memoryview(data)[5 if is_flexible(api.response, version) else 4 :])


def encode_frame(request: Any, version: int, *, client_id: str = "bench") -> bytes:
    """Encode a request with its header and length."""
    api = BY_KEY[schema_of(type(request)).key]
    header = RequestHeader(request_api_key=api.key, request_api_version=version, correlation_id=1, client_id=client_id)
    frame = encode(header, 2 if is_flexible(api.request, version) else 1) + encode(request, version)
    return _length.pack(len(frame)) + frame


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = b""
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise NoResponse("the node closed the connection")
        chunks += chunk
    return chunks
