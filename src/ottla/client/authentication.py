"""The requests by which a client proves who it is, whatever carries them: with an event loop and without."""

import random
import ssl
from collections.abc import Generator
from typing import Any, Final

from ottla.protocol.errors import UnsupportedSaslMechanism, by_code
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl_client import ClientExchange

HANDSHAKE_VERSION: Final = 1
"""After version 0 tokens would go without the headers of requests."""

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING")

SaslRequests = Generator[SaslHandshakeRequest | SaslAuthenticateRequest, Any, float | None]


def sasl_requests(mechanism: str, exchange: ClientExchange, where: str) -> SaslRequests:
    """One request after the other, each to be sent the answer to the last.

    Returns after how many seconds it has to be done again (KIP-368), None if never; raises AuthenticationError.
    """
    offered: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism=mechanism)
    if offered.error_code == UnsupportedSaslMechanism.code:
        there = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanism(f"{where} does not take sasl.mechanism={mechanism}; it takes {there}")
    if offered.error_code:
        raise by_code(offered.error_code)(f"{where} takes no SASL here; is security.protocol right?")
    token: bytes | None = exchange.first()
    lifetime_ms = 0
    while token is not None:
        answer: SaslAuthenticateResponse = yield SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code:
            kind = by_code(answer.error_code)
            raise kind(f"{where} does not let this client in: {answer.error_message or kind().message}")
        lifetime_ms = answer.session_lifetime_ms
        token = exchange.answer(bytes(answer.auth_bytes))
    # Early enough, and not by all clients at once.
    return lifetime_ms / 1000 * random.uniform(0.85, 0.95) if lifetime_ms > 0 else None  # noqa: S311


HANDSHAKE_ERRORS: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
"""What a handshake may end with, besides running out of time."""


def handshake_failure(address: str, error: OSError) -> str:
    """What is said of a TLS handshake that failed, with what to do where that is clear."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if "match" in why:
            hint = "ssl.endpoint.identification.algorithm= (empty) does without this check"
        else:
            hint = "ssl.truststore.location or ssl.truststore.certificates says whom to believe"
        return f"the certificate of {address} is not believed: {why}; {hint}"
    if not isinstance(error, ssl.SSLError) or error.reason in (*_NO_TLS, None):
        return f"{address} does not answer in TLS; is security.protocol right?"
    return f"{address} and this client do not agree on TLS: {error.reason.lower().replace('_', ' ')}"
