"""A Kafka node and an Ottla node for all tests of a process; an error in Ottla's log fails the test."""

from collections.abc import Iterator

import pytest

from tests.conformance.differential.harness import NodePair, running_node_pair
from tests.support.ottla_node import OttlaNode


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodePair, OttlaNode]]:
    with running_node_pair(tmp_path_factory.mktemp("differential")) as nodes:
        yield nodes


@pytest.fixture
def both(two_nodes: tuple[NodePair, OttlaNode]) -> Iterator[NodePair]:
    """Return the two nodes, with new connections for each test."""
    both, node = two_nodes
    log_start = node.log_path.stat().st_size
    yield both
    both.reconnect()
    errors = node.logged_errors(log_start)
    assert not errors, errors
