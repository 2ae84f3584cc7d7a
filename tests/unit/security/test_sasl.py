"""The authentication exchange of a connection, with the same responses as Apache Kafka's."""

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.wire.declare import schema_of
from ottla.security.scram import ScramClient
from tests.conformance.differential.harness import header_of
from tests.unit.security.raw_connection import BOB, CLOSED, RawConnection, encoded
from tests.unit.security.secured_node import BRIEF_MS, PASSWORDS, SecuredNode

Script = Callable[[RawConnection], None]


def assert_same(kafka: SecuredNode, ottla: SecuredNode, script: Script, listener: str = "SASL_PLAINTEXT") -> list[Any]:
    """Run a script on both nodes, and return the responses, which must be the same."""
    responses = []
    for node in (kafka, ottla):
        connection = RawConnection(node, listener)
        try:
            script(connection)
        finally:
            connection.close()
        responses.append(connection.responses)
    assert responses[0] == responses[1], "\n".join(
        f"{name}: {answers}" for name, answers in zip(("Kafka", "Ottla"), responses, strict=True)
    )
    return responses[0]


Both = Callable[..., list[Any]]


@pytest.fixture
def both(kafka_node: SecuredNode, ottla_node: SecuredNode) -> Both:
    return lambda script, listener="SASL_PLAINTEXT": assert_same(kafka_node, ottla_node, script, listener)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "BRIEF"])
def test_a_client_authenticates(both: Both, version: int, listener: str) -> None:
    def script(connection: RawConnection) -> None:
        connection.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        connection.handshake("PLAIN")
        connection.authenticate(BOB, version)
        connection.request_metadata()

    assert both(script, listener)[-1] == "metadata"


def test_api_versions_may_be_repeated_after_an_unknown_version(both: Both) -> None:
    def script(connection: RawConnection) -> None:
        connection.send_frame(header_of(ApiKey.API_VERSIONS, 99, 1))
        connection.responses[-1] = connection.responses[-1][4:6]
        connection.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        connection.handshake("PLAIN")
        connection.authenticate(BOB)
        connection.request_metadata()

    assert both(script)[-1] == "metadata"


def test_tokens_may_arrive_without_headers(both: Both) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN", 0)
        connection.send_frame(BOB)
        connection.request_metadata()

    assert both(script)[-2:] == [b"", "metadata"]


def test_a_wrong_token_without_a_header_ends_the_connection(both: Both) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN", 0)
        connection.send_frame(BOB + b"x")

    assert both(script)[-1] == CLOSED


VERSIONS = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.METADATA: 12,
}


@pytest.mark.parametrize(
    "frames",
    [
        [MetadataRequest(topics=[])],
        [SaslAuthenticateRequest(auth_bytes=BOB)],
        [ApiVersionsRequest(), ApiVersionsRequest()],
        [ApiVersionsRequest(), MetadataRequest(topics=[])],
        [SaslHandshakeRequest(mechanism="PLAIN"), ApiVersionsRequest()],
        [SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeRequest(mechanism="PLAIN")],
        [SaslHandshakeRequest(mechanism="PLAIN"), MetadataRequest(topics=[])],
        [SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeRequest(mechanism="PLAIN")],
        [SaslHandshakeRequest(mechanism="plain")],
        [SaslHandshakeRequest(mechanism="")],
    ],
    ids=lambda frames: " ".join(type(frame).__name__.removesuffix("Request") for frame in frames),
)
def test_messages_out_of_order(both: Both, frames: list[Any]) -> None:
    def script(connection: RawConnection) -> None:
        for frame in frames:
            if connection.responses and connection.responses[-1] == CLOSED:
                return
            key = schema_of(type(frame)).key
            connection.ask(frame, VERSIONS[ApiKey(key)])

    both(script)


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11", bytes(600_000)], ids=["empty", "one", "two", "huge"])
def test_malformed_requests(both: Both, frame: bytes) -> None:
    assert both(lambda connection: connection.send_frame(frame)) == [CLOSED]


PLAIN_TOKENS = {
    "empty": b"",
    "no separators": b"bob",
    "one separator": b"bob\0secret",
    "too many": BOB + b"\0",
    "no user": b"\0\0secret",
    "no password": b"\0bob\0",
    "unknown": b"\0eve\0secret",
    "wrong": b"\0bob\0secret",
    "for itself": b"bob" + BOB,
    "for another": b"ann" + BOB,
    "not text": b"\0\xff\0\xff",
}


@pytest.mark.parametrize("token", PLAIN_TOKENS.values(), ids=PLAIN_TOKENS)
def test_tokens_of_plain(both: Both, token: bytes) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN")
        connection.authenticate(token)
        connection.request_metadata()

    both(script)


def scram(user: str, password: str, connection: RawConnection, *, change: Callable[[bytes], bytes] = bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", user, password, "nonce")
    connection.handshake("SCRAM-SHA-256")
    first = connection.send_token(client.first())
    if first is None:
        return
    proof = client.answer(first)
    assert proof is not None
    final = connection.send_token(change(proof))
    if final is not None:
        assert client.answer(final) is None
        connection.request_metadata()


@pytest.mark.parametrize(
    ("user", "password", "change"),
    [
        ("bob", PASSWORDS["bob"], bytes),
        ("bob", "wrong", bytes),
        ("eve", "wrong", bytes),
        ("bob", PASSWORDS["bob"], lambda proof: proof.replace(b"nonce", b"other")),
        ("bob", PASSWORDS["bob"], lambda proof: b""),
        ("bob", PASSWORDS["bob"], lambda proof: proof.replace(b"c=biws", b"c=AAAA")),
    ],
    ids=["right", "wrong", "unknown", "other nonce", "empty", "other binding"],
)
def test_proofs_of_scram(both: Both, user: str, password: str, change: Callable[[bytes], bytes]) -> None:
    both(lambda connection: scram(user, password, connection, change=change))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=bob",
        b"n,,n=,r=x",
        b"n,,r=x,n=bob",
        b"y,,n=bob,r=nonce",
        b"p=tls-unique,,n=bob,r=nonce",
        b"n,a=bob,n=bob,r=nonce",
        b"n,a=ann,n=bob,r=nonce",
        b"n,a=ann,n=eve,r=nonce",
        b"n,,n=eve,r=nonce,tokenauth=true",
        b"n,a=eve,n=bob,r=nonce,tokenauth=true",
        b"n,,n=bob,r=nonce,tokenauth=false",
        b"n,,n=bob,r=nonce,tokenauth=TRUE",
        b"n,,n=b=3Dob,r=nonce",
        b"n,,n=b=ob,r=nonce",
        b"n,,n=bob,r=nonce,tokenauth=true",
        b"n,,n=bob,r=nonce,other=x",
        b"\xff\xff",
    ],
)
def test_first_messages_of_scram(both: Both, first: bytes) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("SCRAM-SHA-256")
        connection.authenticate(first)

    both(script)


def token(header: Any = None, **claims: Any) -> str:
    now = time.time()
    parts = ({"alg": "none"} if header is None else header, {"sub": "bob", "iat": now - 1, "exp": now + 3600} | claims)
    return ".".join(map(encoded, parts)) + "."


NESTED = base64.urlsafe_b64encode(b"[" * 150_000).decode()


BEARER_MESSAGES: dict[str, Callable[[], str]] = {
    "right": lambda: f"n,,\x01auth=Bearer {token()}\x01\x01",
    "lower case": lambda: f"n,,\x01auth=bearer {token()}\x01\x01",
    "for itself": lambda: f"n,a=bob,\x01auth=Bearer {token()}\x01\x01",
    "for another": lambda: f"n,a=ann,\x01auth=Bearer {token()}\x01\x01",
    "expired": lambda: f"n,,\x01auth=Bearer {token(exp=1)}\x01\x01",
    "of the future": lambda: f"n,,\x01auth=Bearer {token(iat=time.time() + 600)}\x01\x01",
    "without an end": lambda: f"n,,\x01auth=Bearer {token(exp=None)}\x01\x01",
    "a number for a user": lambda: f"n,,\x01auth=Bearer {token(sub=7)}\x01\x01",
    "signed": lambda: f"n,,\x01auth=Bearer {token({'alg': 'RS256'})}AAAA\x01\x01",
    "nested without end": lambda: f"n,,\x01auth=Bearer {token().partition('.')[0]}.{NESTED}.\x01\x01",
    "no token": lambda: "n,,\x01auth=Bearer x\x01\x01",
    "nothing": lambda: "",
    "no end": lambda: f"n,,\x01auth=Bearer {token()}\x01",
    "no auth": lambda: "n,,\x01\x01",
}


@pytest.mark.parametrize("name", BEARER_MESSAGES)
def test_tokens_of_oauthbearer(both: Both, name: str) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("OAUTHBEARER")
        answer = connection.authenticate(BEARER_MESSAGES[name]().encode())
        if isinstance(answer, dict):
            # How long a token has to live depends on when it was made.
            lasts = answer.pop("session_lifetime_ms")
            answer["lasts"] = lasts > 3_590_000
        if isinstance(answer, dict) and answer["auth_bytes"]:
            connection.authenticate(b"\x01")
        connection.request_metadata()

    both(script)


def test_an_authenticated_client_is_not_asked_again(both: Both) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN")
        connection.authenticate(BOB)
        connection.handshake("PLAIN")
        connection.authenticate(BOB)
        connection.request_metadata()

    assert both(script)[-1] == "metadata"


@pytest.mark.parametrize(
    ("mechanism", "proof"),
    [("PLAIN", BOB), ("PLAIN", BOB + b"x"), ("PLAIN", b"\0ann\0" + PASSWORDS["ann"].encode())],
    ids=["the same", "wrong", "another user"],
)
def test_a_session_is_renewed(both: Both, mechanism: str, proof: bytes) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN")
        connection.authenticate(BOB)
        connection.handshake("PLAIN")  # at once, for the first time
        connection.authenticate(BOB)
        connection.handshake("PLAIN")  # too soon after that
        time.sleep(1.1)
        connection.handshake(mechanism)
        connection.authenticate(proof)
        connection.request_metadata()

    both(script, "BRIEF")


@pytest.mark.parametrize("version", [0, 2])
def test_an_expired_session_ends_the_connection(both: Both, version: int) -> None:
    def script(connection: RawConnection) -> None:
        connection.handshake("PLAIN")
        connection.authenticate(BOB, version)
        time.sleep(BRIEF_MS / 1000 + 0.1)
        connection.request_metadata()

    assert both(script, "BRIEF")[-1] == CLOSED


def refused(node: SecuredNode, script: Script, listener: str = "SASL_PLAINTEXT") -> str:
    """Return the error message of a rejected client."""
    connection = RawConnection(node, listener)
    try:
        script(connection)
    finally:
        connection.close()
    assert connection.responses[-1]["error_code"] == 58
    return str(connection.responses[-1]["error_message"])


def test_ottla_gives_a_reason_where_kafka_closes_the_connection_or_accepts(ottla_node: SecuredNode) -> None:
    def bearer(message: str) -> Script:
        def script(connection: RawConnection) -> None:
            connection.handshake("OAUTHBEARER")
            if connection.authenticate(message.encode())["auth_bytes"]:
                connection.authenticate(b"\x01")

        return script

    def other_mechanism(connection: RawConnection) -> None:
        connection.handshake("PLAIN")
        connection.authenticate(BOB)
        connection.handshake("OAUTHBEARER")
        connection.authenticate(f"n,,\x01auth=Bearer {token()}\x01\x01".encode())

    assert "invalid credentials" in refused(ottla_node, bearer(f"n,,\x01auth=Basic {token()}\x01\x01"))
    assert "invalid_token" in refused(ottla_node, bearer(f"n,,\x01auth=Bearer {token(sub=None)}\x01\x01"))
    cut = refused(
        ottla_node, lambda connection: scram("bob", PASSWORDS["bob"], connection, change=lambda proof: proof[:-4])
    )
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in cut
    assert "re-authentication of mechanism 'PLAIN'" in refused(ottla_node, other_mechanism, "BRIEF")
