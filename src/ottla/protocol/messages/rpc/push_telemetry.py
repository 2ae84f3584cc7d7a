"""PushTelemetry (key 72): a client pushes its metrics to the broker."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Uuid


@request(key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid = since("0+", default=ZERO_UUID)
    subscription_id: Int32 = since("0+", default=0)
    terminating: bool = since("0+", default=False)
    compression_type: Int8 = since("0+", default=0)
    metrics: bytes = since("0+", default=b"")


@response(key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
