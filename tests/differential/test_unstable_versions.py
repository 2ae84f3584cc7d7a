"""Versions that Kafka has not released are served where the settings say so. Needs Ottla alone."""

import struct
from pathlib import Path

import pytest

from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.apis import APIS, Listeners
from tests.differential.harness import Side, decode_response, frame_of
from tests.differential.ottla_node import OttlaNode
from tests.interop.kafka_broker import SETTINGS


@pytest.mark.parametrize(("listener", "kind"), [("PLAINTEXT", Listeners.BROKER), ("CONTROLLER", Listeners.CONTROLLER)])
def test_unstable_versions_are_told_and_answered(tmp_path: Path, listener: str, kind: Listeners) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "unstable.api.versions.enable": "true"})
    node.format()
    with node.running():
        side = Side("Ottla", node.ports)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        side.send(frame_of(request, 5, 7, None), listener)
        got = side.receive(listener, 5)
        side.close_all()
    assert isinstance(got, bytes)
    assert struct.unpack_from(">i", got)[0] == 7
    _, response = decode_response(18, 5, got)
    latest = {api.key: api.latest for api in APIS if api.listeners & kind}
    assert response.error_code == 0
    assert {api.api_key: api.max_version for api in response.api_keys}.items() <= latest.items()
