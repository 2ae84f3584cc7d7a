"""The requests with which a client authenticates, independent of the transport."""

import random
import ssl
from collections.abc import Generator
from typing import Any, Final

from ottla.protocol.errors import UnsupportedSaslMechanism, by_code
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl_client import ClientExchange

HANDSHAKE_VERSION: Final = 1
"""With version 0, tokens would follow without request headers."""

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING")

SaslRequests = Generator[SaslHandshakeRequest | SaslAuthenticateRequest, Any, float | None]


def sasl_requests(mechanism: str, exchange: ClientExchange, where: str) -> SaslRequests:
    """Yield the requests of a SASL authentication. The caller sends each response back into the generator.

    Returns the number of seconds after which the client must authenticate again (KIP-368), or None. Raises
    AuthenticationError.
    """
    offered: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism=mechanism)
    if offered.error_code == UnsupportedSaslMechanism.code:
        supported = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanism(
            f"{where} does not support sasl.mechanism={mechanism}; set it to one that it supports: {supported}"
        )
    if offered.error_code:
        raise by_code(offered.error_code)(f"{where} does not support SASL on this listener: check security.protocol")
    token: bytes | None = exchange.first()
    lifetime_ms = 0
    while token is not None:
        answer: SaslAuthenticateResponse = yield SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code:
            error = by_code(answer.error_code)
            raise error(f"{where} rejected the credentials: {answer.error_message or error().message}")
        lifetime_ms = answer.session_lifetime_ms
        token = exchange.answer(bytes(answer.auth_bytes))
    # Early enough, and at different times for many clients.
    return lifetime_ms / 1000 * random.uniform(0.85, 0.95) if lifetime_ms > 0 else None  # noqa: S311


HANDSHAKE_ERRORS: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
"""The exceptions of a failed handshake, besides a timeout."""


def handshake_failure(address: str, error: OSError) -> str:
    """Return the message for a failed TLS handshake, with advice where the cause is clear."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if "match" in why:
            hint = "set ssl.endpoint.identification.algorithm to empty to skip this check"
        else:
            hint = "set ssl.truststore.location or ssl.truststore.certificates to trust its issuer"
        return f"the certificate of {address} is not trusted: {why}; {hint}"
    if not isinstance(error, ssl.SSLError) or error.reason in (*_NO_TLS, None):
        return f"{address} does not speak TLS: check security.protocol"
    return f"the TLS handshake with {address} failed: {error.reason.lower().replace('_', ' ')}"
