"""Errors of security: authentication, authorization and delegation tokens."""

from ottla.protocol.errors.base import ApiError


class SecurityError(ApiError):
    """The client's identity or its rights do not allow the request."""


class SecurityDisabled(SecurityError, code=54, name="SECURITY_DISABLED"):
    """The security feature that the request needs is disabled."""


class UnacceptableCredential(SecurityError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    """The new credential is not acceptable; it may have too few SCRAM iterations or an empty user name."""


class PrincipalDeserializationFailure(SecurityError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    """The controller could not read the principal that a broker forwarded with a request."""


class AuthenticationError(SecurityError):
    """Authentication failed; the connection is closed."""


class UnsupportedSaslMechanism(AuthenticationError, code=33, name="UNSUPPORTED_SASL_MECHANISM"):
    """The listener does not support this SASL mechanism; the response lists the ones that it supports."""


class IllegalSaslState(AuthenticationError, code=34, name="ILLEGAL_SASL_STATE"):
    """The request does not fit the state of the SASL exchange."""


class SaslAuthenticationFailed(AuthenticationError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    """The credentials are wrong."""


class AuthorizationError(SecurityError):
    """The client is authenticated but not authorized."""


class TopicAuthorizationFailed(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    """The client is not authorized for the topic."""


class GroupAuthorizationFailed(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    """The client is not authorized for the group."""


class ClusterAuthorizationFailed(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    """The client is not authorized for the cluster."""


class TransactionalIdAuthorizationFailed(AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
    """The client is not authorized for the transactional id."""


class DelegationTokenError(SecurityError):
    """A delegation token cannot be created, used, renewed or described."""


class DelegationTokenAuthDisabled(DelegationTokenError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    """Delegation tokens are disabled, because the cluster has no secret key for them."""


class DelegationTokenNotFound(DelegationTokenError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatch(DelegationTokenError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"):
    """The client is neither the owner of the token nor one of its renewers."""


class DelegationTokenRequestNotAllowed(DelegationTokenError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
    """Requests about tokens need a connection that was authenticated, and not by a token."""


class DelegationTokenAuthorizationFailed(
    DelegationTokenError, AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """The client is not authorized for the delegation token."""


class DelegationTokenExpired(DelegationTokenError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    """The delegation token has expired; the client needs a new one."""


class InvalidPrincipalType(DelegationTokenError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    """Owners and renewers of tokens must be users; the request names another kind of principal."""
