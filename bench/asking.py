"""Plain sockets that ask a node a question, with no client library in between: which brokers there are, which APIs."""

import socket
import struct
from typing import TypeVar

from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.codec import decode, encode

M = TypeVar("M")

METADATA, METADATA_VERSION = 3, 8  # the last version with a plain header
API_VERSIONS, API_VERSIONS_VERSION = 18, 2
TIMEOUT_S = 5.0
_head = struct.Struct(">ihhih")
_CLIENT = b"bench"


class Unanswered(Exception):
    """The node closed the connection instead of answering."""


def known_brokers(host: str, port: int) -> int:
    """How many brokers a node's Metadata answer names."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return ask_metadata(connection)


def ask_metadata(connection: socket.socket) -> int:
    """The same on an open connection."""
    request = encode(MetadataRequest(topics=[]), METADATA_VERSION)
    answer = _ask(connection, METADATA, METADATA_VERSION, request)
    return len(decode(MetadataResponse, METADATA_VERSION, answer).brokers)


def served_apis(host: str, port: int) -> frozenset[int]:
    """The keys of the APIs that a node serves."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        return ask_versions(connection)


def ask_versions(connection: socket.socket) -> frozenset[int]:
    """The same on an open connection."""
    request = encode(ApiVersionsRequest(), API_VERSIONS_VERSION)
    answer = _ask(connection, API_VERSIONS, API_VERSIONS_VERSION, request)
    return frozenset(each.api_key for each in decode(ApiVersionsResponse, API_VERSIONS_VERSION, answer).api_keys)


def _ask(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    length = _head.size - 4 + len(_CLIENT) + len(body)
    connection.sendall(_head.pack(length, key, version, 0, len(_CLIENT)) + _CLIENT + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]  # behind the correlation id


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = b""
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise Unanswered("the node closed the connection")
        chunks += chunk
    return chunks
