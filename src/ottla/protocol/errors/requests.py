"""Errors of a request as such: its form, what it names, its limits, and the way to a broker that can serve it."""

from ottla.protocol.errors.base import ApiError


class RequestError(ApiError):
    """The request cannot be served as it stands."""


class RequestTimedOut(RequestError, code=7, retriable=True, name="REQUEST_TIMED_OUT"):
    """The work did not finish within the request's time limit; it may still happen later."""


class UnsupportedVersion(RequestError, code=35, name="UNSUPPORTED_VERSION"):
    """This broker does not speak that version of the request; the client should ask for the versions it speaks."""


class InvalidConfig(RequestError, code=40, name="INVALID_CONFIG"):
    """A setting is unknown, or its value is not allowed."""


class InvalidRequest(RequestError, code=42, name="INVALID_REQUEST"):
    """The request contradicts itself or lacks something that its version needs."""


class PolicyViolation(RequestError, code=44, name="POLICY_VIOLATION"):
    """The request is well formed, but a policy set by the operator forbids it."""


class OperationNotAttempted(RequestError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    """This item was left alone because another item of the same request failed."""


class ThrottlingQuotaExceeded(RequestError, code=89, retriable=True, name="THROTTLING_QUOTA_EXCEEDED"):
    """The client used up its quota; it should wait for the throttle time and ask again."""


class ResourceNotFound(RequestError, code=91, name="RESOURCE_NOT_FOUND"):
    """The request names something that does not exist."""


class DuplicateResource(RequestError, code=92, name="DUPLICATE_RESOURCE"):
    """The request names the same thing more than once."""


class EndpointTypeError(RequestError):
    """The request asked for brokers or controllers in a place that cannot answer for them."""


class MismatchedEndpointType(EndpointTypeError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    """The request came to a broker but was meant for a controller, or the other way round."""


class UnsupportedEndpointType(EndpointTypeError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    """The request asks for a kind of endpoint that this node does not know."""


class TelemetryError(RequestError):
    """The metrics that a client pushed cannot be taken."""


class UnknownSubscriptionId(TelemetryError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    """The client pushed metrics for an outdated subscription; it should fetch its telemetry subscription again."""


class TelemetryTooLarge(TelemetryError, code=118, name="TELEMETRY_TOO_LARGE"):
    """The pushed metrics are larger than this broker takes; the client should send fewer at a time."""


class UnreachableError(ApiError):
    """No broker that can serve the request was reached."""


class BrokerNotAvailable(UnreachableError, code=8, name="BROKER_NOT_AVAILABLE"):
    """The broker that is needed is not running or not known."""


class NetworkFailed(UnreachableError, code=13, retriable=True, name="NETWORK_EXCEPTION"):
    """The connection broke before an answer came; whether the request took effect is not known."""


class ListenerNotFound(UnreachableError, code=72, retriable=True, name="LISTENER_NOT_FOUND"):
    """The leader has no listener of the name through which the client came."""


class RebootstrapRequired(UnreachableError, code=129, name="REBOOTSTRAP_REQUIRED"):
    """What the client knows of the cluster is of no more use; it should start again from its bootstrap servers."""
