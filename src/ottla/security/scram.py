"""SCRAM (RFC 5802, RFC 7677): proof of a password that is never sent, and that the server does not store.

Kafka adds an extension: `tokenauth=true` after the client's nonce means that the user is the id of a delegation token,
and the password its HMAC.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final, NamedTuple

from ottla.protocol.errors import SaslAuthenticationFailed


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its number in records, and its hash function."""

    number: int
    hash: str


MECHANISMS: Final = {"SCRAM-SHA-256": Mechanism(1, "sha256"), "SCRAM-SHA-512": Mechanism(2, "sha512")}
MIN_ITERATIONS, MAX_ITERATIONS = 4_096, 16_384
_GS2_HEADER: Final = b"n,,"
_server_first = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})"
).match


class ScramKeys(NamedTuple):
    """The keys that a server stores for a password."""

    stored: bytes
    server: bytes


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def scram_keys(mechanism: Mechanism, salted: bytes) -> ScramKeys:
    """Derive the keys from a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    return ScramKeys(
        hashlib.new(mechanism.hash, client_key).digest(), hmac.digest(salted, b"Server Key", mechanism.hash)
    )


class ScramClient:
    """The client's side of one exchange. `nonce` must be random printable characters without commas."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self._mechanism = MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{',tokenauth=true' if is_token else ''}".encode()
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return _GS2_HEADER + self._bare

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the proof, and then None if the server's signature is valid. Raise if it is not."""
        if self._expected is None:
            return self._prove(challenge)
        if not hmac.compare_digest(challenge, b"v=" + base64.b64encode(self._expected)):
            raise SaslAuthenticationFailed(
                "the server's signature is invalid, so it does not know the user's credential"
            )
        return None

    def _prove(self, challenge: bytes) -> bytes:
        match = _server_first(challenge.decode("ascii", "replace"))
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SaslAuthenticationFailed("the server's first message is not a valid SCRAM message")
        try:
            salt = base64.b64decode(match["salt"], validate=True)
        except binascii.Error:
            raise SaslAuthenticationFailed("the server's salt is not base64") from None
        iterations = int(match["iterations"])
        if iterations < MIN_ITERATIONS:
            raise SaslAuthenticationFailed(
                f"the server requests {iterations} iterations, but at least {MIN_ITERATIONS} are required"
            )
        hash_name = self._mechanism.hash
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        keys = scram_keys(self._mechanism, salted)
        final = b"c=%b,r=%b" % (base64.b64encode(_GS2_HEADER), match["nonce"].encode())
        signed = b",".join((self._bare, challenge, final))
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        self._expected = hmac.digest(keys.server, signed, hash_name)
        return final + b",p=" + base64.b64encode(xor(client_key, hmac.digest(keys.stored, signed, hash_name)))


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
