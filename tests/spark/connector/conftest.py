"""Nodes that all tests of a process share. Each test uses its own topics."""

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
    """Run the test with each of them."""
    chosen: Cluster = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(params=["compiled", "python"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with the compiled code and without it."""
    if request.param == "python":
        monkeypatch.setattr(columns, "compiled", None)
        monkeypatch.setattr(rows, "compiled", None)
    elif columns.compiled is None or rows.compiled is None:
        pytest.skip("the package was built without its compiled part")
    return str(request.param)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process, with Spark's own connector. A task may fail twice."""
    home = tmp_path_factory.mktemp("spark")
    # The tests are too short for the optimizing compiler and a concurrent collector to pay off.
    session = start_session(home, master="local[2,3]", java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    yield session
    session.stop()
