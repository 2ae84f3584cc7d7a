"""Unstable API and feature versions are served if the settings enable them; these tests need only Ottla."""

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
def test_unstable_api_versions_are_advertised_and_answered(tmp_path: Path, listener: str, kind: Listeners) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.api.versions.enable": "true"})
    node.format()
    with node.running():
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = _ask_versions(node, request, 5, listener)
    latest: dict[int, int] = {api.key: api.latest for api in APIS if api.listeners & kind}
    advertised = {api.api_key: api.max_version for api in response.api_keys}
    assert response.error_code == 0
    assert (
        advertised.pop(ApiKey.API_VERSIONS) == BY_KEY[ApiKey.API_VERSIONS].latest_stable < latest[ApiKey.API_VERSIONS]
    )
    assert advertised.items() <= latest.items()


@pytest.mark.parametrize(
    ("setting", "listener"),
    [("unstable.feature.versions.enable", "PLAINTEXT"), ("unstable.api.versions.enable", "CONTROLLER")],
)
def test_unstable_features_are_advertised_as_in_kafka(tmp_path: Path, setting: str, listener: str) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, setting: "true"})
    node.format("--release-version", "4.3-IV0")
    with node.running():
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        for name in ("PLAINTEXT", "CONTROLLER"):
            response = _ask_versions(node, request, 4, name)
            most = {feature.name: feature.max_version for feature in response.supported_features}
            assert most["metadata.version"] == (max(METADATA_VERSIONS) if name == listener else LATEST)


def test_a_cluster_at_an_unstable_metadata_version_starts_and_serves(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.feature.versions.enable": "true"})
    node.format("--release-version", METADATA_VERSIONS[max(METADATA_VERSIONS)].name)
    with node.running():  # waits until the broker is registered
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        levels = {
            feature.name: feature.max_version_level
            for feature in _ask_versions(node, request, 4, "PLAINTEXT").finalized_features
        }
    assert levels["metadata.version"] == max(METADATA_VERSIONS)


def _ask_versions(node: OttlaNode, request: ApiVersionsRequest, version: int, listener: str) -> ApiVersionsResponse:
    side = Side("Ottla", node.ports, node.log_tail)
    response = side.ask(request, version, listener=listener)
    side.close_all()
    assert isinstance(response, ApiVersionsResponse)
    return response


def test_a_client_of_another_cluster_or_node_must_rebootstrap(tmp_path: Path) -> None:
    """Uses ApiVersions v5 (KIP-1242), which is not stable in Kafka 4.3.1, so there is no comparison."""
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.api.versions.enable": "true"})
    node.format()
    own_id = int(SETTINGS["node.id"])
    with node.running():
        for cluster_id, node_id, expected in (
            (None, -1, NONE),
            (None, own_id + 1, NONE),
            (CLUSTER_ID, -1, NONE),
            (CLUSTER_ID, own_id, NONE),
            (CLUSTER_ID, own_id + 1, RebootstrapRequired.code),
            ("another", own_id, RebootstrapRequired.code),
            ("another", -1, RebootstrapRequired.code),
        ):
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            request.cluster_id, request.node_id = cluster_id, node_id
            response = _ask_versions(node, request, 5, "PLAINTEXT")
            assert (response.error_code, bool(response.api_keys)) == (expected, not expected), (cluster_id, node_id)
