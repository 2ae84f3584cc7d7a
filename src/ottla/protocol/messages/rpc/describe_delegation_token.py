"""DescribeDelegationToken (key 41): the delegation tokens of some owners, or all that the client may describe.

v2 flexible · v3 returns who requested a token (KIP-373).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = since("1+", default="")
    principal_name: str = since("1+", default="")


@request(key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = since("1+", factory=list)


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = since("1+", default="")
    principal_name: str = since("1+", default="")


@struct
class DescribedDelegationToken:
    principal_type: str = since("1+", default="")
    principal_name: str = since("1+", default="")
    token_requester_principal_type: str = since("3+", default="")
    token_requester_principal_name: str = since("3+", default="")
    issue_timestamp: Int64 = since("1+", default=0)
    expiry_timestamp: Int64 = since("1+", default=0)
    max_timestamp: Int64 = since("1+", default=0)
    token_id: str = since("1+", default="")
    hmac: bytes = since("1+", default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = since("1+", factory=list)


@response(key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = since("1+", default=0)
    tokens: list[DescribedDelegationToken] = since("1+", factory=list)
    throttle_time_ms: Int32 = since("1+", default=0)
