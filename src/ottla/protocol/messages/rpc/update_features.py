"""UpdateFeatures (key 57): raise or lower the finalized level of features.

v1 dry runs, safe and unsafe downgrades (KIP-778) · v2 one result for all features.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@struct
class FeatureUpdateKey:
    feature: str = since("0+", default="")
    max_version_level: Int16 = since("0+", default=0)
    allow_downgrade: bool = since("0", default=False)
    upgrade_type: Int8 = since("1+", default=1)


@request(key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = since("0+", default=60_000)
    feature_updates: list[FeatureUpdateKey] = since("0+", factory=list)
    validate_only: bool = since("1+", default=False)


@struct
class UpdatableFeatureResult:
    feature: str = since("0-1", default="")
    error_code: Int16 = since("0-1", default=0)
    error_message: str | None = since("0-1", default="")


@response(key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
    results: list[UpdatableFeatureResult] = since("0-1", factory=list)
