"""One node of each kind for all tests of security."""

from collections.abc import Iterator

import pytest

from tests.unit.security.secured import Secured, secured


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured("kafka", tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def ottla_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured("ottla", tmp_path_factory.mktemp("ottla")) as running:
        yield running


@pytest.fixture(scope="session", params=["kafka", "ottla"])
def node(request: pytest.FixtureRequest) -> Secured:
    """Either of them: whatever works with one works with the other."""
    found: Secured = request.getfixturevalue(f"{request.param}_node")
    return found
