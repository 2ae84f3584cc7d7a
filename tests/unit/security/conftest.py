"""One secured node of Kafka and one of Ottla for all tests of security."""

from collections.abc import Iterator

import pytest

from tests.unit.security.secured_node import SecuredNode, secured_node


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node("kafka", tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def ottla_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node("ottla", tmp_path_factory.mktemp("ottla")) as running:
        yield running


@pytest.fixture(scope="session", params=["kafka", "ottla"])
def node(request: pytest.FixtureRequest) -> SecuredNode:
    """Kafka's node, then Ottla's."""
    secured: SecuredNode = request.getfixturevalue(f"{request.param}_node")
    return secured
