"""CreateDelegationToken to DescribeDelegationToken (keys 38 to 41): tokens that authenticate as their owner (KIP-48).

Only clients that authenticated without a token may use these APIs. A broker checks the client and forwards changes to
the controller. It describes tokens itself, to their owners and renewers and to clients that may describe them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ottla.broker.authorization.access_checks import ask_authorizer, filter_allowed, is_allowed
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Client
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.envelope import Enclosed
from ottla.config.settings.values import Password
from ottla.metadata.image.values import DelegationToken
from ottla.protocol.errors import (
    ApiError,
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    NotController,
    UnknownServerError,
)
from ottla.protocol.messages.apis import BOTH, CONTROLLER, ApiKey
from ottla.protocol.messages.rpc.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.rpc.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.rpc.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.security.delegation_tokens import USER, token_hmac
from ottla.security.principal_mapping import ANONYMOUS

_NO_TIME: Final = -1
"""The timestamp of a refused token. A token on which the controller could not decide has 0."""


def _is_authenticated_without_token(call: Call[Any]) -> bool:
    """Return whether a client authenticated, and not with a token."""
    return call.client.principal != ANONYMOUS and not call.client.has_token


def create_token_failed(
    request: CreateDelegationTokenRequest, version: int, error: ApiError
) -> CreateDelegationTokenResponse:
    """Return the error, with the anonymous user as the owner."""
    return _refusal(error, ANONYMOUS, ANONYMOUS, _NO_TIME)


def renew_token_failed(
    request: RenewDelegationTokenRequest, version: int, error: ApiError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_time(error))


def expire_token_failed(
    request: ExpireDelegationTokenRequest, version: int, error: ApiError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_time(error))


@endpoint(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def describe_delegation_token(
    call: Call[BrokerNode], request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe tokens with their HMACs."""
    if not _is_authenticated_without_token(call):
        raise DelegationTokenRequestNotAllowed
    secret = call.node.setting("delegation.token.secret.key")
    if not isinstance(secret, Password):
        raise DelegationTokenAuthDisabled
    tokens = [token for _, token in sorted(call.node.image.tokens.items())]
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
        tokens = [token for token in tokens if any(map(token.concerns, owners))]
    return DescribeDelegationTokenResponse(tokens=[_described(token, secret.value) for token in _visible(call, tokens)])


def _visible(call: Call[Any], tokens: list[DelegationToken]) -> list[DelegationToken]:
    others = [token for token in tokens if not token.concerns(call.client.principal)]
    by_id = filter_allowed(
        call, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, (token.token_id for token in others)
    )
    hidden = [token for token in others if token.token_id not in by_id]
    by_owner = filter_allowed(call, Operation.DESCRIBE_TOKENS, ResourceType.USER, (token.owner for token in hidden))
    refused = {token.token_id for token in hidden if token.owner not in by_owner}
    return [token for token in tokens if token.token_id not in refused]


def _described(token: DelegationToken, secret: str) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = (renewer.partition(":") for renewer in token.renewers)
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, _, name in renewers
        ],
    )


def _may_have_tokens(call: Call[Any]) -> bool:
    """Return whether a client may create and change tokens.

    A broker that forwards a request has checked that its client is authenticated.
    """
    return not call.client.has_token if isinstance(call.exchange, Enclosed) else _is_authenticated_without_token(call)


@endpoint(ApiKey.CREATE_DELEGATION_TOKEN, on=BOTH, failed=create_token_failed)
async def create_delegation_token(
    call: Call[Any], request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Let the active controller create a token. A response with an error names the owner, too."""
    requester = call.client.principal
    owner = _owner(call.client, request)
    try:
        await ask_authorizer(call, partial(_check_creation, call, request, owner))
    except ApiError as error:
        return _refusal(error, owner, requester, _NO_TIME)
    try:
        response: CreateDelegationTokenResponse = await call.node.decide(call, request)
    except NotController:
        raise
    except ApiError as error:
        return _refusal(error, owner, requester, 0)
    return response


def _check_creation(call: Call[Any], request: CreateDelegationTokenRequest, owner: str) -> None:
    if not _may_have_tokens(call):
        raise DelegationTokenRequestNotAllowed
    if owner != call.client.principal and not is_allowed(call, Operation.CREATE_TOKENS, ResourceType.USER, owner):
        raise DelegationTokenAuthorizationFailed
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise InvalidPrincipalType


@endpoint(ApiKey.RENEW_DELEGATION_TOKEN, on=BOTH, failed=renew_token_failed)
@endpoint(ApiKey.EXPIRE_DELEGATION_TOKEN, on=BOTH, failed=expire_token_failed)
async def change_delegation_token(call: Call[Any], request: Any) -> Any:
    """Let the active controller renew or expire a token."""
    if not _may_have_tokens(call):
        raise DelegationTokenRequestNotAllowed
    return await call.node.decide(call, request)


@endpoint(ApiKey.DESCRIBE_DELEGATION_TOKEN, on=CONTROLLER)
def describe_no_token(call: Call[ControllerNode], request: Any) -> Any:
    """Fail as Kafka's controllers do: they advertise the API and have no handler for it."""
    raise UnknownServerError


def _time(error: ApiError) -> int:
    return _NO_TIME if isinstance(error, DelegationTokenRequestNotAllowed) else 0


def _owner(client: Client, request: CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return client.principal
    if request.owner_principal_type is None:
        raise UnknownServerError("an owner must have a principal type")
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def _refusal(error: ApiError, owner: str, requester: str, time_ms: int) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )
