"""One node and one pipeline, with its running Spark server, for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.spark.clusters import Cluster, running
from tests.spark.pipelines.projects import Project
from tests.support.commands import run_ottla as command


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running("ottla", tmp_path_factory.mktemp("ottla")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("projects") / "shop", cluster)
    project.send(100)
    yield project
    done = command("pipeline", "stop", str(project.folder))
    assert done.returncode == 0, done.stderr
