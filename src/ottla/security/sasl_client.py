"""The client's side of SASL: what is sent first, and what to each challenge, until there is nothing more to say."""

import secrets
from collections.abc import Mapping
from typing import Protocol

from ottla.protocol.errors import SaslAuthenticationFailed
from ottla.security.scram import ScramClient

_SEPARATOR = "\x01"


class ClientExchange(Protocol):
    """One authentication of a connection."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What is said to a challenge; None when all is said. Raises SaslAuthenticationFailed."""
        ...


class PlainExchange:
    """PLAIN (RFC 4616): user and password as they are; for connections that nobody listens to."""

    def __init__(self, user: str, password: str) -> None:
        self._first = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a token that another has issued, with Kafka's extensions (KIP-342)."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions.items())
        self._first = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}".encode()
        self._failure: str | None = None

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if self._failure is not None:
            raise SaslAuthenticationFailed(f"the token was refused: {self._failure}")
        if not challenge:
            return None
        # The server tells what is wrong, and fails the exchange once that is confirmed.
        self._failure = challenge.decode(errors="replace")
        return _SEPARATOR.encode()


def scram_exchange(mechanism: str, user: str, password: str, *, is_token: bool) -> ScramClient:
    """SCRAM with a nonce that was never used before."""
    return ScramClient(mechanism, user, password, secrets.token_urlsafe(24), is_token=is_token)
