"""Errors of security: who the client is (authentication), what it may do (authorization), and its tokens."""

from ottla.protocol.errors.base import ApiError


class SecurityError(ApiError):
    """The client's identity or its rights do not allow the request."""


class SecurityDisabled(SecurityError, code=54, name="SECURITY_DISABLED"):
    """The cluster runs without the security feature that the request is about."""


class UnacceptableCredential(SecurityError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    """The new credential breaks a rule, such as too few SCRAM iterations or an empty user name."""


class PrincipalDeserializationFailure(SecurityError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    """The controller could not read the principal that a broker forwarded with a request."""


class AuthenticationError(SecurityError):
    """The client did not prove who it is; the connection ends."""


class UnsupportedSaslMechanism(AuthenticationError, code=33, name="UNSUPPORTED_SASL_MECHANISM"):
    """The listener does not offer that SASL mechanism; the answer lists those that it offers."""


class IllegalSaslState(AuthenticationError, code=34, name="ILLEGAL_SASL_STATE"):
    """The request does not fit the point that the SASL exchange has reached."""


class SaslAuthenticationFailed(AuthenticationError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    """The credentials are wrong."""


class AuthorizationError(SecurityError):
    """The client is known but may not do this."""


class TopicAuthorizationFailed(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    """The client may not do this with the topic."""


class GroupAuthorizationFailed(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    """The client may not do this with the group."""


class ClusterAuthorizationFailed(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    """The client may not do this with the cluster."""


class TransactionalIdAuthorizationFailed(AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
    """The client may not do this with the transactional id."""


class DelegationTokenError(SecurityError):
    """A delegation token cannot be made, used, renewed or shown."""


class DelegationTokenAuthDisabled(DelegationTokenError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    """The cluster has no secret key for delegation tokens, so it has none."""


class DelegationTokenNotFound(DelegationTokenError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    """There is no such delegation token."""


class DelegationTokenOwnerMismatch(DelegationTokenError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"):
    """The client is neither the owner of the token nor one of its renewers."""


class DelegationTokenRequestNotAllowed(DelegationTokenError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
    """Requests about tokens need an authenticated connection that does not itself rest on a token."""


class DelegationTokenAuthorizationFailed(
    DelegationTokenError, AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """The client may not do this with the delegation token."""


class DelegationTokenExpired(DelegationTokenError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    """The delegation token has run out; the client needs a new one."""


class InvalidPrincipalType(DelegationTokenError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    """Owners and renewers of tokens must be users; the request names another kind of principal."""
