"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72): clients push metrics to this broker (KIP-714).

The subscription says which metrics, and how often. This node exposes them with its own metrics.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.telemetry.client_instances import ClientInstance
from ottla.broker.telemetry.otlp import Point, decode_points
from ottla.protocol.errors import ApiError, InvalidRecord
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.rpc.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.wire.compression import Compression, decompress
from ottla.protocol.wire.errors import ProtocolError

_COMPRESSIONS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The accepted compression types, in order of preference."""
_MAX_BYTES: Final = "telemetry.max.bytes"


@endpoint(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def get_telemetry_subscriptions(
    call: Call[BrokerNode], request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that a client should push."""
    node = call.node
    instance = node.telemetry.get_for_subscription(
        request.client_instance_id, _attributes(call), call.client, node.image, node.now_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in _COMPRESSIONS],
        push_interval_ms=instance.requested.interval_ms,
        telemetry_max_bytes=node.setting(_MAX_BYTES),
        delta_temporality=True,
        requested_metrics=list(instance.requested.metrics),
    )


@endpoint(ApiKey.PUSH_TELEMETRY)
async def push_telemetry(call: Call[BrokerNode], request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take a client's metrics. A thread decompresses and decodes them."""
    node = call.node
    instance = node.telemetry.get_for_push(
        request.client_instance_id, _attributes(call), call.client, node.image, node.now_ms()
    )
    try:
        _check(call, instance, request)
        data = bytes(request.metrics)
        if data:
            codec = Compression(request.compression_type)
            points = await node.in_thread(_points, codec, data, node.setting(_MAX_BYTES))
            node.pushed.store(instance.id, instance.attributes, points, instance.requested.interval_ms, node.now_ms())
    except ApiError as error:
        node.pushed.refused += 1
        instance.error = type(error)
        raise
    instance.error = None
    return PushTelemetryResponse()


def _check(call: Call[BrokerNode], instance: ClientInstance, request: PushTelemetryRequest) -> None:
    try:
        instance.check_push(
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            call.node.now_ms(),
            is_last=request.terminating,
            max_bytes=call.node.setting(_MAX_BYTES),
        )
    finally:
        instance.is_terminating = request.terminating


def _points(codec: Compression, data: bytes, max_bytes: int) -> list[Point]:
    try:
        return list(decode_points(decompress(codec, data, limit=max_bytes)))
    except ProtocolError as error:
        raise InvalidRecord(str(error)) from error


def _attributes(call: Call[BrokerNode]) -> dict[str, str | None]:
    """Return the attributes by which a subscription can match a client."""
    client = call.client
    return {
        "client_id": call.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.address,
        "client_source_port": None if client.port is None else str(client.port),
    }
