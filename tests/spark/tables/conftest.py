"""One Ottla node for all tests of tables."""

from collections.abc import Iterator

import pytest

from ottla.spark.tables.definition import FORMATS
from tests.spark.clusters import Cluster, running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running("ottla", tmp_path_factory.mktemp("tables")) as cluster:
        yield cluster


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> str:
    """Each of the formats: what holds for one holds for all."""
    return str(request.param)
