"""Client requests in envelopes, and the enclosed answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.registry import BROKER_ENDPOINTS
from ottla.broker.requests.call import Client, CloseConnection
from ottla.broker.requests.dispatch import Route
from ottla.node.forwarding import enclose, open_answer
from ottla.protocol.errors import ClusterAuthorizationFailed, NotController, UnknownServerError, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.rpc.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.rpc.envelope import EnvelopeResponse
from ottla.protocol.wire.codec import decode, decode_from, encode


def call_of(version: int, client_id: str | None = "ann's laptop", address: str = "10.0.0.7") -> Any:
    client = Client(address, "PLAINTEXT")
    client.principal = "User:ann:with:colons"
    return SimpleNamespace(
        client=client,
        client_id=client_id,
        api_key=ApiKey.CREATE_TOPICS,
        version=version,
        correlation_id=77,
        route=Route(BROKER_ENDPOINTS[ApiKey.CREATE_TOPICS], version),
    )


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize("client_id", ["ann's laptop", None])
def test_an_envelope_holds_the_request_as_the_client_sent_it(version: int, client_id: str | None) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    envelope = enclose(call_of(version, client_id), request)
    header, pos = decode_from(RequestHeader, 2 if version >= 5 else 1, memoryview(envelope.request_data))
    assert (header.request_api_key, header.request_api_version) == (ApiKey.CREATE_TOPICS, version)
    assert (header.correlation_id, header.client_id) == (77, client_id)
    assert decode(CreateTopicsRequest, version, envelope.request_data[pos:]).topics[0].name == "t"


def test_an_envelope_holds_the_clients_principal_and_address() -> None:
    envelope = enclose(call_of(7), CreateTopicsRequest(topics=[]))
    assert envelope.request_principal is not None
    principal = decode(DefaultPrincipal, 0, envelope.request_principal[2:])
    assert (principal.type, principal.name) == ("User", "ann:with:colons")
    assert envelope.client_host_address == bytes([10, 0, 0, 7])
    of_ipv6 = enclose(call_of(7, address="::1"), CreateTopicsRequest(topics=[]))
    assert of_ipv6.client_host_address == bytes(15) + b"\x01"


@pytest.mark.parametrize("version", [4, 7])
def test_the_enclosed_answer_is_decoded_for_the_client(version: int) -> None:
    inside = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=36, error_message="there")])
    head = encode(ResponseHeader(correlation_id=77), 1 if version >= 5 else 0)
    answer = open_answer(call_of(version), EnvelopeResponse(response_data=head + encode(inside, version)))
    assert [(each.name, each.error_code) for each in answer.topics] == [("t", 36)]


@pytest.mark.parametrize(
    ("error_code", "raised"),
    [
        (NotController.code, NotController),
        (UnsupportedVersion.code, CloseConnection),
        (ClusterAuthorizationFailed.code, UnknownServerError),
    ],
)
def test_envelope_errors_are_not_passed_to_the_client(error_code: int, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        open_answer(call_of(7), EnvelopeResponse(error_code=error_code))


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x4e\x00\x00", b"\x00\x00\x00\x4d\x00\xff"])
def test_an_unreadable_answer_is_an_unknown_server_error(data: bytes) -> None:
    with pytest.raises(UnknownServerError):
        open_answer(call_of(7), EnvelopeResponse(response_data=data))
