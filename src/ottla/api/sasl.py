"""SaslHandshake (key 17) and SaslAuthenticate (key 36), where there is nothing to authenticate.

A listener with SASL takes these requests before any other. Who sends one on a connection that is open for requests
already is told that it comes at the wrong time, as by Kafka.
"""

from __future__ import annotations

from typing import Any

from ottla.api.call import Call
from ottla.api.endpoint import Endpoint, endpoint
from ottla.errors import IllegalSaslState
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@endpoint(17)
def sasl_handshake(call: Call[Any], request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The connection needs no mechanism."""
    return SaslHandshakeResponse(error_code=IllegalSaslState.code)


@endpoint(36)
def sasl_authenticate(call: Call[Any], request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """The connection is as authenticated as it will be."""
    return SaslAuthenticateResponse(
        error_code=IllegalSaslState.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )


ENDPOINTS: tuple[Endpoint, ...] = (sasl_handshake, sasl_authenticate)
