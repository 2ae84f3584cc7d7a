"""All endpoints of a broker, and those of them that clients are told of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.handlers import (
    admin_table,
    api_versions,
    fetch,
    group_table,
    metadata,
    produce,
    reading_table,
    sasl,
    share_table,
    transaction_table,
)
from ottla.broker.requests.endpoint import Endpoint
from ottla.protocol.messages.apis import Api, ApiKey

BROKER_ENDPOINTS: tuple[Endpoint, ...] = (
    produce.produce,
    fetch.fetch,
    metadata.metadata,
    api_versions.api_versions,
    *reading_table.ENDPOINTS,
    *sasl.ENDPOINTS,
    *admin_table.ENDPOINTS,
    *group_table.ENDPOINTS,
    *share_table.ENDPOINTS,
    *transaction_table.ENDPOINTS,
)
_TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def advertised_apis(*, with_telemetry: bool) -> Sequence[Api]:
    """What ApiVersions tells. Who is told of telemetry asks for it; where nobody would see it, nobody is told."""
    apis = sorted((endpoint.api for endpoint in BROKER_ENDPOINTS), key=lambda api: api.key)
    return [api for api in apis if with_telemetry or api.key not in _TELEMETRY]
