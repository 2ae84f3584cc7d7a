"""Errors of requests in general: form, names, limits, and unreachable brokers."""

from ottla.protocol.errors.base import ApiError


class RequestError(ApiError):
    """The request is not valid."""


class RequestTimedOut(RequestError, code=7, retriable=True, name="REQUEST_TIMED_OUT"):
    """The request was not completed within its time limit; it may still take effect later."""


class UnsupportedVersion(RequestError, code=35, name="UNSUPPORTED_VERSION"):
    """This broker does not support this version of the request; the client should ask for its versions."""


class InvalidConfig(RequestError, code=40, name="INVALID_CONFIG"):
    """A setting is unknown, or its value is not allowed."""


class InvalidRequest(RequestError, code=42, name="INVALID_REQUEST"):
    """The request contradicts itself, or lacks a field that its version needs."""


class PolicyViolation(RequestError, code=44, name="POLICY_VIOLATION"):
    """The request is well-formed, but violates a policy of the operator."""


class OperationNotAttempted(RequestError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    """This item was not attempted because another item of the same request failed."""


class ThrottlingQuotaExceeded(RequestError, code=89, retriable=True, name="THROTTLING_QUOTA_EXCEEDED"):
    """The client exceeded its quota; it should try again after the throttle time."""


class ResourceNotFound(RequestError, code=91, name="RESOURCE_NOT_FOUND"):
    """The request names something that does not exist."""


class DuplicateResource(RequestError, code=92, name="DUPLICATE_RESOURCE"):
    """The request names the same thing more than once."""


class EndpointTypeError(RequestError):
    """The request asks for brokers or controllers at an endpoint that cannot answer for them."""


class MismatchedEndpointType(EndpointTypeError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    """The request was sent to a broker but is for controllers, or vice versa."""


class UnsupportedEndpointType(EndpointTypeError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    """The request asks for a type of endpoint that this node does not support."""


class TelemetryError(RequestError):
    """The metrics that a client pushed were rejected."""


class UnknownSubscriptionId(TelemetryError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    """The client pushed metrics for an outdated subscription; it should fetch its telemetry subscription again."""


class TelemetryTooLarge(TelemetryError, code=118, name="TELEMETRY_TOO_LARGE"):
    """The pushed metrics are larger than this broker allows; the client should send fewer at a time."""


class UnreachableError(ApiError):
    """No broker that can serve the request was reachable."""


class BrokerNotAvailable(UnreachableError, code=8, name="BROKER_NOT_AVAILABLE"):
    """The required broker is not running, or is unknown."""


class NetworkFailed(UnreachableError, code=13, retriable=True, name="NETWORK_EXCEPTION"):
    """The connection broke before the response arrived; the request may or may not have taken effect."""


class ListenerNotFound(UnreachableError, code=72, retriable=True, name="LISTENER_NOT_FOUND"):
    """The leader has no listener with the name of the client's listener."""


class RebootstrapRequired(UnreachableError, code=129, name="REBOOTSTRAP_REQUIRED"):
    """The client's metadata is unusable; it should start again from its bootstrap servers."""
