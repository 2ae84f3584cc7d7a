"""One Kafka and one Ottla for all tests of a process; an error that Ottla logs fails the test that caused it."""

from collections.abc import Iterator

import pytest

from tests.conformance.differential.harness import Both, both_running
from tests.support.ottla_node import OttlaNode


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Both, OttlaNode]]:
    with both_running(tmp_path_factory.mktemp("differential")) as nodes:
        yield nodes


@pytest.fixture
def both(two_nodes: tuple[Both, OttlaNode]) -> Iterator[Both]:
    """The two nodes, with new connections for each test."""
    both, node = two_nodes
    before = node.log_path.stat().st_size
    yield both
    both.reconnect()
    complaints = node.logged_errors(before)
    assert not complaints, complaints
