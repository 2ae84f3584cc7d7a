"""ApiVersions (key 18): the requests and versions that a node speaks, and its features.

v1 returns the throttle time (KIP-124) · v2 responds before it throttles (KIP-219) · v3 flexible; names the client's
software (KIP-511); features (KIP-584) · v4 a supported feature may start at level 0.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@request(key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = since("3+", default="")
    client_software_version: str = since("3+", default="")
    cluster_id: str | None = since("5+", default=None)
    node_id: Int32 = since("5+", default=-1)


@struct
class ApiVersion:
    api_key: Int16 = since("0+", default=0)
    min_version: Int16 = since("0+", default=0)
    max_version: Int16 = since("0+", default=0)


@struct
class SupportedFeatureKey:
    name: str = since("3+", default="")
    min_version: Int16 = since("3+", default=0)
    max_version: Int16 = since("3+", default=0)


@struct
class FinalizedFeatureKey:
    name: str = since("3+", default="")
    max_version_level: Int16 = since("3+", default=0)
    min_version_level: Int16 = since("3+", default=0)


@response(key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16 = since("0+", default=0)
    api_keys: list[ApiVersion] = since("0+", factory=list)
    throttle_time_ms: Int32 = since("1+", default=0)
    supported_features: list[SupportedFeatureKey] = since("3+", factory=list, tag=0)
    finalized_features_epoch: Int64 = since("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = since("3+", factory=list, tag=2)
    zk_migration_ready: bool = since("3+", default=False, tag=3)
