"""GetTelemetrySubscriptions (key 71): the metrics that a client should push, and the interval."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Uuid


@request(key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid = since("0+", default=ZERO_UUID)


@response(key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    client_instance_id: Uuid = since("0+", default=ZERO_UUID)
    subscription_id: Int32 = since("0+", default=0)
    accepted_compression_types: list[Int8] = since("0+", factory=list)
    push_interval_ms: Int32 = since("0+", default=0)
    telemetry_max_bytes: Int32 = since("0+", default=0)
    delta_temporality: bool = since("0+", default=False)
    requested_metrics: list[str] = since("0+", factory=list)
