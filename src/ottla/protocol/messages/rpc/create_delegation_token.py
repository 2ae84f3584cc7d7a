"""CreateDelegationToken (key 38): create a token with which its holder acts as a user.

v2 flexible · v3 on behalf of another owner (KIP-373).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class CreatableRenewers:
    principal_type: str = since("1+", default="")
    principal_name: str = since("1+", default="")


@request(key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = since("3+", default="")
    owner_principal_name: str | None = since("3+", default="")
    renewers: list[CreatableRenewers] = since("1+", factory=list)
    max_lifetime_ms: Int64 = since("1+", default=0)


@response(key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = since("1+", default=0)
    principal_type: str = since("1+", default="")
    principal_name: str = since("1+", default="")
    token_requester_principal_type: str = since("3+", default="")
    token_requester_principal_name: str = since("3+", default="")
    issue_timestamp_ms: Int64 = since("1+", default=0)
    expiry_timestamp_ms: Int64 = since("1+", default=0)
    max_timestamp_ms: Int64 = since("1+", default=0)
    token_id: str = since("1+", default="")
    hmac: bytes = since("1+", default=b"")
    throttle_time_ms: Int32 = since("1+", default=0)
