"""SaslHandshake (key 17) and SaslAuthenticate (key 36): who the client is.

A listener with SASL takes these requests before any other (`broker/requests/authentication.py` sees to that). On one
without, and on a connection whose client is known already, they come at the wrong time, as with Kafka.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.requests.authentication import State
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import ApiError, IllegalSaslState, UnsupportedSaslMechanism
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.rpc.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@endpoint(ApiKey.SASL_HANDSHAKE, on=BOTH)
def sasl_handshake(call: Call[Any], request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agree on a mechanism."""
    known = call.client.authentication
    if known is None or known.state is State.KNOWN:
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    offered = known.rules.mechanisms
    is_there = known.begin(request.mechanism, bare=call.version == 0)
    return SaslHandshakeResponse(error_code=0 if is_there else UnsupportedSaslMechanism.code, mechanisms=offered)


def authentication_failed(request: SaslAuthenticateRequest, version: int, error: ApiError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)


@endpoint(ApiKey.SASL_AUTHENTICATE, on=BOTH, failed=authentication_failed)
def sasl_authenticate(call: Call[Any], request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Take one token of the exchange."""
    known = call.client.authentication
    if known is None:
        raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
    answer, lifetime_ms = known.take(call.client, bytes(request.auth_bytes))
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
