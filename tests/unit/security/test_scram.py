"""The client's side of SCRAM, with the exchange of RFC 7677 and with dishonest servers."""

import base64

import pytest

from ottla.protocol.errors import SaslAuthenticationFailed
from ottla.security.scram import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={SERVER_NONCE},s={SALT},i=4096".encode()
PROOF = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_the_rfc() -> None:
    exchange = client()
    assert exchange.first() == f"n,,n=user,r={NONCE}".encode()
    assert exchange.answer(SERVER_FIRST) == PROOF
    assert exchange.answer(SERVER_FINAL) is None


def test_names_are_escaped_and_tokens_are_marked() -> None:
    exchange = ScramClient("SCRAM-SHA-512", "a=b,c", "x", "nonce", is_token=True)
    assert exchange.first() == b"n,,n=a=3Db=2Cc,r=nonce,tokenauth=true"


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=unknown-user",
        f"r={NONCE},s={SALT},i=4096".encode(),  # the server adds nothing to the nonce
        f"r=another{SERVER_NONCE},s={SALT},i=4096".encode(),
        f"r={SERVER_NONCE},s=?,i=4096".encode(),
        f"r={SERVER_NONCE},s=abc,i=4096".encode(),
        f"r={SERVER_NONCE},s={SALT},i=4095".encode(),  # so few that passwords could be tried out
        b"\xff\xfe",
    ],
)
def test_an_invalid_first_message_is_rejected(challenge: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        client().answer(challenge)


@pytest.mark.parametrize("final", [b"", b"e=invalid-proof", b"v=", b"v=" + base64.b64encode(bytes(32))])
def test_an_invalid_server_signature_is_rejected(final: bytes) -> None:
    exchange = client()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match="signature is invalid"):
        exchange.answer(final)
