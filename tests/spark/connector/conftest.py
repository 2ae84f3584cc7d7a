"""Nodes that the tests of a process share; each test has topics of its own."""

from collections.abc import Iterator

import pytest
from bench.harness.spark_session import start_session
from pyspark.sql import SparkSession

from ottla.spark.connector import columns, rows
from tests.spark.clusters import Cluster, running


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running("ottla", tmp_path_factory.mktemp("ottla")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running("kafka", tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(params=["ottla", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Either of them: whatever works with one works with the other."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["compiled", "python"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With compiled code, which an installed Ottla has, and without."""
    if request.param == "python":
        monkeypatch.setattr(columns, "compiled", None)
        monkeypatch.setattr(rows, "compiled", None)
    elif columns.compiled is None or rows.compiled is None:
        pytest.skip("the package was built without its compiled part")
    return str(request.param)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process, with Spark's own connector in it. A task may fail twice."""
    home = tmp_path_factory.mktemp("spark")
    # Tests are over before a better compiler and collector would pay.
    session = start_session(home, master="local[2,3]", java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    yield session
    session.stop()
