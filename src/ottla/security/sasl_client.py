"""The client's side of SASL: the first message, and the answer to each challenge."""

import secrets
from collections.abc import Mapping
from typing import Protocol

from ottla.protocol.errors import SaslAuthenticationFailed
from ottla.security.scram import ScramClient

_SEPARATOR = "\x01"


class ClientExchange(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes:
        """Return the first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the answer to a challenge, or None if the exchange is complete. Raise SaslAuthenticationFailed."""
        ...


class PlainExchange:
    """PLAIN (RFC 4616): user and password in plain text, for encrypted connections."""

    def __init__(self, user: str, password: str) -> None:
        self._first = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a token from an issuer, with Kafka's extensions (KIP-342)."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions.items())
        self._first = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}".encode()
        self._failure: str | None = None

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if self._failure is not None:
            raise SaslAuthenticationFailed(f"the server rejected the token: {self._failure}")
        if not challenge:
            return None
        # The server has sent its error, and fails the exchange after the client confirms it.
        self._failure = challenge.decode(errors="replace")
        return _SEPARATOR.encode()


def scram_exchange(mechanism: str, user: str, password: str, *, is_token: bool) -> ScramClient:
    """Start SCRAM with a fresh nonce."""
    return ScramClient(mechanism, user, password, secrets.token_urlsafe(24), is_token=is_token)
