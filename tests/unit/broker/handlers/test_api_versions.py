"""ApiVersions: the versions of APIs that a broker serves, and of those that it forwards."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.api_versions import api_versions
from ottla.metadata.image.image import EMPTY
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest


def advertised_versions(controller: dict[int, tuple[int, int]] | None) -> dict[int, tuple[int, int]]:
    node = SimpleNamespace(
        node_id=1,
        cluster_id="a-cluster",
        image=EMPTY,
        kraft_version=lambda: 0,
        unstable_versions=False,
        supported_features={},
        advertised=[
            BY_KEY[key] for key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)
        ],
        controller_versions=lambda: controller,
    )
    call: Any = SimpleNamespace(node=node, version=0, client=SimpleNamespace())
    answer = api_versions(call, ApiVersionsRequest())
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def own(key: int) -> tuple[int, int]:
    return BY_KEY[key].oldest, BY_KEY[key].latest_stable


def test_without_controller_versions_all_apis_are_advertised() -> None:
    advertised = advertised_versions(None)
    assert advertised[ApiKey.PRODUCE] == (0, BY_KEY[ApiKey.PRODUCE].latest_stable)
    assert (advertised[ApiKey.METADATA], advertised[ApiKey.CREATE_TOPICS], advertised[ApiKey.DELETE_TOPICS]) == tuple(
        map(own, (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS))
    )


@pytest.mark.parametrize(
    ("of_controller", "expected"),
    [
        ((2, 5), (2, 5)),
        ((0, 99), own(ApiKey.CREATE_TOPICS)),
        ((4, 99), (4, own(ApiKey.CREATE_TOPICS)[1])),
        ((90, 99), None),
    ],
)
def test_forwarded_apis_are_advertised_in_versions_that_the_controller_serves(
    of_controller: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    advertised = advertised_versions({ApiKey.CREATE_TOPICS: of_controller})
    assert advertised.get(ApiKey.CREATE_TOPICS) == expected
    assert advertised[ApiKey.METADATA] == own(ApiKey.METADATA), "this the broker answers itself"
    assert ApiKey.DELETE_TOPICS not in advertised, "the controller does not serve it at all"
