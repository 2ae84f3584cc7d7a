"""ApiVersions (key 18): the APIs and features of this node. It is the first request on every connection.

For an API that brokers forward, the answer has the versions that both this broker and the active controller serve.
Produce is advertised from version 0 on although it is served from version 3 on, because some clients require it
(KAFKA-18659). Up to v3, features whose level may be 0 are left out, because old clients take 0 for an error (KIP-1022).
v5, in which a client names the cluster and node that it expects (KIP-1242), belongs to the release after 4.3: where
unstable versions are enabled it is served, but not advertised, because clients send the latest version unasked.
"""

import re
from collections.abc import Iterator

from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import ApiError, InvalidRequest, RebootstrapRequired
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.metadata_versions import KRAFT_VERSION, METADATA_VERSION

_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?").fullmatch


def api_versions_failed(request: ApiVersionsRequest | None, version: int, error: ApiError) -> ApiVersionsResponse:
    """Return the error alone, without APIs."""
    return ApiVersionsResponse(error_code=error.code)


@endpoint(ApiKey.API_VERSIONS, on=BOTH, failed=api_versions_failed)
def api_versions(call: Call[BrokerNode], request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the APIs and features of this node."""
    node, version = call.node, call.version
    if version >= 3:
        if not _software(request.client_software_name) or not _software(request.client_software_version):
            raise InvalidRequest("the client software's name and version may have letters, digits, '-' and '.' only")
        call.client.software_name = request.client_software_name
        call.client.software_version = request.client_software_version
    is_expected = request.cluster_id in (None, node.cluster_id) and request.node_id in (-1, node.node_id)
    if version >= 5 and request.cluster_id is not None and not is_expected:
        raise RebootstrapRequired(f"this is node {node.node_id} of cluster {node.cluster_id}")
    features = node.image.features
    levels = {**features.levels, METADATA_VERSION: features.metadata_version, KRAFT_VERSION: node.kraft_version()}
    return ApiVersionsResponse(
        api_keys=list(_served(node)),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in node.supported_features.items()
            if version >= 4 or least > 0
        ],
        finalized_features_epoch=node.image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level > 0
        ],
    )


def _served(node: BrokerNode) -> Iterator[ApiVersion]:
    """Return the versions of each API; of forwarded APIs, only the versions that the controller serves too."""
    controller_versions = node.controller_versions()
    for api in node.advertised:
        least = 0 if api.key == ApiKey.PRODUCE else api.oldest
        most = api.latest if node.unstable_versions and api.key != ApiKey.API_VERSIONS else api.latest_stable
        if api.forwardable and controller_versions is not None:
            controller_least, controller_most = controller_versions.get(api.key, (most + 1, most))
            least, most = max(least, controller_least), min(most, controller_most)
        if least <= most:
            yield ApiVersion(api_key=api.key, min_version=least, max_version=most)
