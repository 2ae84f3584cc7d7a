"""ApiVersions (key 18): what this node speaks. The first request of every client, on every connection.

Of an API that brokers hand on, the client is told the versions that both this broker and the active controller serve.
Produce is told from version 0 on although it is served from 3 on: some clients look for that (KAFKA-18659). Up to v3
features that may be at level 0 are left out, because a client of that time takes 0 for an error (KIP-1022). v5, in
which a client says which cluster and node it means (KIP-1242), is of the release after 4.3: where unstable versions are
served it is answered, but not told; clients send the latest that they know without having asked.
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
    """The error alone: a client that did something wrong learns nothing more."""
    return ApiVersionsResponse(error_code=error.code)


@endpoint(ApiKey.API_VERSIONS, on=BOTH, failed=api_versions_failed)
def api_versions(call: Call[BrokerNode], request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell the client what it may ask for."""
    node, version = call.node, call.version
    if version >= 3:
        if not _software(request.client_software_name) or not _software(request.client_software_version):
            raise InvalidRequest("names and versions of client software are letters, digits, '-' and '.'")
        call.client.software_name = request.client_software_name
        call.client.software_version = request.client_software_version
    is_meant = request.cluster_id in (None, node.cluster_id) and request.node_id in (-1, node.node_id)
    if version >= 5 and request.cluster_id is not None and not is_meant:
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
    """The versions of each API. What is handed on to the controller is only told as far as the controller serves it."""
    of_controller = node.controller_versions()
    for api in node.served:
        least = 0 if api.key == ApiKey.PRODUCE else api.oldest
        most = api.latest if node.unstable_versions and api.key != ApiKey.API_VERSIONS else api.latest_stable
        if api.forwardable and of_controller is not None:
            its_least, its_most = of_controller.get(api.key, (most + 1, most))
            least, most = max(least, its_least), min(most, its_most)
        if least <= most:
            yield ApiVersion(api_key=api.key, min_version=least, max_version=most)
