"""The APIs of delegation tokens (keys 38 to 41) for clients that may not have any.

Tokens are for clients that proved who they are, and not with a token. Nobody does so on a plaintext listener.
"""

from typing import Any, Final

from ottla.api.call import ANONYMOUS, Call
from ottla.api.endpoint import endpoint
from ottla.errors import ApiError, DelegationTokenRequestNotAllowed
from ottla.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_NO_TIME: Final = -1


def create_token_failed(
    request: CreateDelegationTokenRequest, version: int, error: ApiError
) -> CreateDelegationTokenResponse:
    """An answer about nobody's token."""
    kind, _, name = ANONYMOUS.partition(":")
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def renew_token_failed(
    request: RenewDelegationTokenRequest, version: int, error: ApiError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)


def expire_token_failed(
    request: ExpireDelegationTokenRequest, version: int, error: ApiError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)


@endpoint(38, failed=create_token_failed)
def create_delegation_token(call: Call[Any], request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """Refuse, naming whom the token would have been for."""
    response = create_token_failed(request, call.version, DelegationTokenRequestNotAllowed())
    asker_type, _, asker_name = call.client.principal.partition(":")
    response.token_requester_principal_type, response.token_requester_principal_name = asker_type, asker_name
    response.principal_type, response.principal_name = asker_type, asker_name
    if request.owner_principal_name:
        response.principal_type = request.owner_principal_type or ""
        response.principal_name = request.owner_principal_name
    return response


@endpoint(39, failed=renew_token_failed)
def renew_delegation_token(call: Call[Any], request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """Refuse."""
    raise DelegationTokenRequestNotAllowed


@endpoint(40, failed=expire_token_failed)
def expire_delegation_token(call: Call[Any], request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """Refuse."""
    raise DelegationTokenRequestNotAllowed


@endpoint(41)
def describe_delegation_token(
    call: Call[Any], request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    raise DelegationTokenRequestNotAllowed
