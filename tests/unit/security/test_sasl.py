"""What is said before it is known who a client is: the same to Kafka and to Ottla, and the same by both."""

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
from tests.unit.security.secured import BRIEF_MS, PASSWORDS, Secured
from tests.unit.security.talk import BOB, CLOSED, Talk, encoded

Script = Callable[[Talk], None]


def same(kafka: Secured, ottla: Secured, script: Script, listener: str = "SASL_PLAINTEXT") -> list[Any]:
    """Go through a script with both; what they said, which must be the same."""
    heard = []
    for node in (kafka, ottla):
        talk = Talk(node, listener)
        try:
            script(talk)
        finally:
            talk.close()
        heard.append(talk.heard)
    assert heard[0] == heard[1], "\n".join(
        f"{name}: {said}" for name, said in zip(("Kafka", "Ottla"), heard, strict=True)
    )
    return heard[0]


Both = Callable[..., list[Any]]


@pytest.fixture
def both(kafka_node: Secured, ottla_node: Secured) -> Both:
    return lambda script, listener="SASL_PLAINTEXT": same(kafka_node, ottla_node, script, listener)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "BRIEF"])
def test_a_client_proves_who_it_is(both: Both, version: int, listener: str) -> None:
    def script(talk: Talk) -> None:
        talk.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        talk.shake("PLAIN")
        talk.prove(BOB, version)
        talk.is_let_in()

    assert both(script, listener)[-1] == "metadata"


def test_versions_may_be_asked_for_again_after_one_that_is_not_known(both: Both) -> None:
    def script(talk: Talk) -> None:
        talk.say(header_of(ApiKey.API_VERSIONS, 99, 1))
        talk.heard[-1] = talk.heard[-1][4:6]
        talk.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        talk.shake("PLAIN")
        talk.prove(BOB)
        talk.is_let_in()

    assert both(script)[-1] == "metadata"


def test_tokens_may_come_without_headers(both: Both) -> None:
    def script(talk: Talk) -> None:
        talk.shake("PLAIN", 0)
        talk.say(BOB)
        talk.is_let_in()

    assert both(script)[-2:] == [b"", "metadata"]


def test_a_wrong_token_without_a_header_ends_the_connection(both: Both) -> None:
    def script(talk: Talk) -> None:
        talk.shake("PLAIN", 0)
        talk.say(BOB + b"x")

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
    ids=lambda frames: " ".join(type(each).__name__.removesuffix("Request") for each in frames),
)
def test_what_comes_at_the_wrong_time(both: Both, frames: list[Any]) -> None:
    def script(talk: Talk) -> None:
        for frame in frames:
            if talk.heard and talk.heard[-1] == CLOSED:
                return
            key = schema_of(type(frame)).key
            talk.ask(frame, VERSIONS[ApiKey(key)])

    both(script)


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11", bytes(600_000)], ids=["empty", "one", "two", "huge"])
def test_bytes_that_are_no_request(both: Both, frame: bytes) -> None:
    assert both(lambda talk: talk.say(frame)) == [CLOSED]


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
    def script(talk: Talk) -> None:
        talk.shake("PLAIN")
        talk.prove(token)
        talk.is_let_in()

    both(script)


def scram(user: str, password: str, talk: Talk, *, change: Callable[[bytes], bytes] = bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", user, password, "nonce")
    talk.shake("SCRAM-SHA-256")
    first = talk.said_to(client.first())
    if first is None:
        return
    proof = client.answer(first)
    assert proof is not None
    final = talk.said_to(change(proof))
    if final is not None:
        assert client.answer(final) is None
        talk.is_let_in()


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
    both(lambda talk: scram(user, password, talk, change=change))


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
    def script(talk: Talk) -> None:
        talk.shake("SCRAM-SHA-256")
        talk.prove(first)

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
    def script(talk: Talk) -> None:
        talk.shake("OAUTHBEARER")
        answer = talk.prove(BEARER_MESSAGES[name]().encode())
        if isinstance(answer, dict):
            # How long a token has to live depends on when it was made.
            lasts = answer.pop("session_lifetime_ms")
            answer["lasts"] = lasts > 3_590_000
        if isinstance(answer, dict) and answer["auth_bytes"]:
            talk.prove(b"\x01")
        talk.is_let_in()

    both(script)


def test_who_is_known_is_not_asked_again(both: Both) -> None:
    def script(talk: Talk) -> None:
        talk.shake("PLAIN")
        talk.prove(BOB)
        talk.shake("PLAIN")
        talk.prove(BOB)
        talk.is_let_in()

    assert both(script)[-1] == "metadata"


@pytest.mark.parametrize(
    ("mechanism", "proof"),
    [("PLAIN", BOB), ("PLAIN", BOB + b"x"), ("PLAIN", b"\0ann\0" + PASSWORDS["ann"].encode())],
    ids=["the same", "wrong", "another user"],
)
def test_a_session_begins_anew(both: Both, mechanism: str, proof: bytes) -> None:
    def script(talk: Talk) -> None:
        talk.shake("PLAIN")
        talk.prove(BOB)
        talk.shake("PLAIN")  # at once, for the first time
        talk.prove(BOB)
        talk.shake("PLAIN")  # too soon after that
        time.sleep(1.1)
        talk.shake(mechanism)
        talk.prove(proof)
        talk.is_let_in()

    both(script, "BRIEF")


@pytest.mark.parametrize("version", [0, 2])
def test_a_session_that_is_over_ends_the_connection(both: Both, version: int) -> None:
    def script(talk: Talk) -> None:
        talk.shake("PLAIN")
        talk.prove(BOB, version)
        time.sleep(BRIEF_MS / 1000 + 0.1)
        talk.is_let_in()

    assert both(script, "BRIEF")[-1] == CLOSED


def refused(node: Secured, script: Script, listener: str = "SASL_PLAINTEXT") -> str:
    """What a client is told at the end."""
    talk = Talk(node, listener)
    try:
        script(talk)
    finally:
        talk.close()
    assert talk.heard[-1]["error_code"] == 58
    return str(talk.heard[-1]["error_message"])


def test_ottla_says_why_where_kafka_hangs_up_or_lets_anybody_in(ottla_node: Secured) -> None:
    def bearer(message: str) -> Script:
        def script(talk: Talk) -> None:
            talk.shake("OAUTHBEARER")
            if talk.prove(message.encode())["auth_bytes"]:
                talk.prove(b"\x01")

        return script

    def other_mechanism(talk: Talk) -> None:
        talk.shake("PLAIN")
        talk.prove(BOB)
        talk.shake("OAUTHBEARER")
        talk.prove(f"n,,\x01auth=Bearer {token()}\x01\x01".encode())

    assert "invalid credentials" in refused(ottla_node, bearer(f"n,,\x01auth=Basic {token()}\x01\x01"))
    assert "invalid_token" in refused(ottla_node, bearer(f"n,,\x01auth=Bearer {token(sub=None)}\x01\x01"))
    cut = refused(ottla_node, lambda talk: scram("bob", PASSWORDS["bob"], talk, change=lambda proof: proof[:-4]))
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in cut
    assert "re-authentication of mechanism 'PLAIN'" in refused(ottla_node, other_mechanism, "BRIEF")
