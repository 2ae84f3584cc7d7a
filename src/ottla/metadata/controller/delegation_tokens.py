"""CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken, and the removal of expired tokens.

Requests name a token by its HMAC, which its holder knows and the nodes derive from a shared secret.
"""

import hmac
from collections.abc import Callable

from ottla.config.settings.values import Password
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import DelegationToken
from ottla.protocol.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.protocol.messages.rpc.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.rpc.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.metadata_versions import DELEGATION_TOKENS
from ottla.security.delegation_tokens import USER, token_hmac

_FOREVER = (1 << 63) - 1


def create_delegation_token(
    view: ControllerView,
    request: CreateDelegationTokenRequest,
    *,
    principal: str,
    now_ms: int,
    new_token_id: Callable[[], str],
) -> Decision[CreateDelegationTokenResponse]:
    """Create a token for the client (`principal`, such as User:ann), or for another owner."""
    secret = _secret(view)
    owner = principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise InvalidPrincipalType
    max_lifetime_ms = view.options.number("delegation.token.max.lifetime.ms")
    lifetime_ms = min(max_lifetime_ms, request.max_lifetime_ms) if request.max_lifetime_ms > 0 else max_lifetime_ms
    max_timestamp = _later(now_ms, lifetime_ms)
    expires = min(max_timestamp, _later(now_ms, view.options.number("delegation.token.expiry.time.ms")))
    record = DelegationTokenRecord(
        token_id=new_token_id(),
        owner=owner,
        requester=principal,
        renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=expires,
    )
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = principal.partition(":")
    reply = CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=expires,
        max_timestamp_ms=max_timestamp,
        token_id=record.token_id,
        hmac=token_hmac(secret, record.token_id),
    )
    return Decision((record,), reply, atomic=True)


def renew_delegation_token(
    view: ControllerView, request: RenewDelegationTokenRequest, *, principal: str, now_ms: int
) -> Decision[RenewDelegationTokenResponse]:
    """Extend a token's expiry, at most to its maximum lifetime."""
    token = _find_token(view, request.hmac)
    if _is_expired(token, now_ms):
        raise DelegationTokenExpired
    _check_renewer(token, principal)
    max_period_ms = view.options.number("delegation.token.expiry.time.ms")
    period_ms = min(max_period_ms, request.renew_period_ms) if request.renew_period_ms > 0 else max_period_ms
    expires = min(token.max_timestamp, _later(now_ms, period_ms))
    return Decision((_record(token, expires),), RenewDelegationTokenResponse(expiry_timestamp_ms=expires), atomic=True)


def expire_delegation_token(
    view: ControllerView, request: ExpireDelegationTokenRequest, *, principal: str, now_ms: int
) -> Decision[ExpireDelegationTokenResponse]:
    """Set a token's expiry; a negative period removes it at once."""
    token = _find_token(view, request.hmac)
    _check_renewer(token, principal)
    if request.expiry_time_period_ms < 0:
        record = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision((record,), ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms), atomic=True)
    if _is_expired(token, now_ms):
        raise DelegationTokenExpired
    expires = min(token.max_timestamp, _later(now_ms, request.expiry_time_period_ms))
    return Decision((_record(token, expires),), ExpireDelegationTokenResponse(expiry_timestamp_ms=expires), atomic=True)


def remove_expired_tokens(view: ControllerView, *, now_ms: int) -> Decision[None]:
    """Remove expired tokens (every delegation.token.expiry.check.interval.ms)."""
    expired = (token_id for token_id, token in sorted(view.image.tokens.items()) if _is_expired(token, now_ms))
    return Decision(tuple(RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired), None, atomic=True)


def _secret(view: ControllerView) -> str:
    secret = view.options.setting("delegation.token.secret.key")
    if not isinstance(secret, Password):
        raise DelegationTokenAuthDisabled
    if view.metadata_version < DELEGATION_TOKENS:
        raise UnsupportedVersion
    return secret.value


def _find_token(view: ControllerView, requested_hmac: bytes) -> DelegationToken:
    secret = _secret(view)
    for token_id, token in sorted(view.image.tokens.items()):
        if hmac.compare_digest(token_hmac(secret, token_id), bytes(requested_hmac)):
            return token
    raise DelegationTokenNotFound


def _check_renewer(token: DelegationToken, principal: str) -> None:
    if not token.may_be_changed_by(principal):
        raise DelegationTokenOwnerMismatch


def _is_expired(token: DelegationToken, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _record(token: DelegationToken, expires: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        token_id=token.token_id,
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expires,
    )


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _FOREVER)
