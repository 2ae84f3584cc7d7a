"""SaslHandshake (key 17) and SaslAuthenticate (key 36): a client authenticates.

A listener with SASL takes these requests before any other (`broker/requests/authentication.py`). A listener without
SASL, and a connection whose client is authenticated, answers ILLEGAL_SASL_STATE, as Kafka's do.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.requests.authentication import SaslState
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import ApiError, IllegalSaslState, UnsupportedSaslMechanism
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@endpoint(ApiKey.SASL_HANDSHAKE, on=BOTH)
def sasl_handshake(call: Call[Any], request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agree on a mechanism."""
    authentication = call.client.authentication
    if authentication is None or authentication.state is SaslState.AUTHENTICATED:
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    is_offered = authentication.begin_exchange(request.mechanism, bare=call.version == 0)
    return SaslHandshakeResponse(
        error_code=0 if is_offered else UnsupportedSaslMechanism.code, mechanisms=authentication.rules.mechanisms
    )


def authentication_failed(request: SaslAuthenticateRequest, version: int, error: ApiError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)


@endpoint(ApiKey.SASL_AUTHENTICATE, on=BOTH, failed=authentication_failed)
def sasl_authenticate(call: Call[Any], request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Answer one token of the exchange."""
    authentication = call.client.authentication
    if authentication is None:
        raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
    answer, lifetime_ms = authentication.respond(call.client, bytes(request.auth_bytes))
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
