"""Versions that Kafka has not released are served where the settings say so. Needs Ottla alone."""

from pathlib import Path

import pytest

from ottla.protocol.errors import NONE, RebootstrapRequired
from ottla.protocol.messages.apis import APIS, BY_KEY, ApiKey, Listeners
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSIONS
from tests.conformance.differential.harness import Side
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import CLUSTER_ID, OttlaNode


@pytest.mark.parametrize(("listener", "kind"), [("PLAINTEXT", Listeners.BROKER), ("CONTROLLER", Listeners.CONTROLLER)])
def test_unstable_versions_are_told_and_answered(tmp_path: Path, listener: str, kind: Listeners) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.api.versions.enable": "true"})
    node.format()
    with node.running():
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = _asked(node, request, 5, listener)
    latest: dict[int, int] = {api.key: api.latest for api in APIS if api.listeners & kind}
    told = {api.api_key: api.max_version for api in response.api_keys}
    assert response.error_code == 0
    assert told.pop(ApiKey.API_VERSIONS) == BY_KEY[ApiKey.API_VERSIONS].latest_stable < latest[ApiKey.API_VERSIONS]
    assert told.items() <= latest.items()


@pytest.mark.parametrize(
    ("setting", "listener"),
    [("unstable.feature.versions.enable", "PLAINTEXT"), ("unstable.api.versions.enable", "CONTROLLER")],
)
def test_unstable_features_are_told_where_kafka_tells_them(tmp_path: Path, setting: str, listener: str) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, setting: "true"})
    node.format("--release-version", "4.3-IV0")
    with node.running():
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        for name in ("PLAINTEXT", "CONTROLLER"):
            response = _asked(node, request, 4, name)
            most = {each.name: each.max_version for each in response.supported_features}
            assert most["metadata.version"] == (max(METADATA_VERSIONS) if name == listener else LATEST)


def test_a_cluster_of_a_release_to_come_starts_and_serves(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.feature.versions.enable": "true"})
    node.format("--release-version", METADATA_VERSIONS[max(METADATA_VERSIONS)].name)
    with node.running():  # which waits until the broker is registered
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        levels = {
            each.name: each.max_version_level for each in _asked(node, request, 4, "PLAINTEXT").finalized_features
        }
    assert levels["metadata.version"] == max(METADATA_VERSIONS)


def _asked(node: OttlaNode, request: ApiVersionsRequest, version: int, listener: str) -> ApiVersionsResponse:
    side = Side("Ottla", node.ports, node.log_tail)
    response = side.ask(request, version, listener=listener)
    side.close_all()
    assert isinstance(response, ApiVersionsResponse)
    return response


def test_a_client_of_another_cluster_or_node_is_told_to_bootstrap_again(tmp_path: Path) -> None:
    """ApiVersions v5 (KIP-1242). Kafka 4.3.1 has no stable version of it to compare with."""
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.api.versions.enable": "true"})
    node.format()
    own = int(SETTINGS["node.id"])
    with node.running():
        for cluster_id, node_id, expected in (
            (None, -1, NONE),
            (None, own + 1, NONE),
            (CLUSTER_ID, -1, NONE),
            (CLUSTER_ID, own, NONE),
            (CLUSTER_ID, own + 1, RebootstrapRequired.code),
            ("another", own, RebootstrapRequired.code),
            ("another", -1, RebootstrapRequired.code),
        ):
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            request.cluster_id, request.node_id = cluster_id, node_id
            response = _asked(node, request, 5, "PLAINTEXT")
            assert (response.error_code, bool(response.api_keys)) == (expected, not expected), (cluster_id, node_id)
