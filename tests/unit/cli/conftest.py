"""One Ottla node for all tests of the command line."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("cli"), SETTINGS)
    node.format()
    with node.running():
        yield node
    assert not node.logged_errors(), node.logged_errors()


@pytest.fixture
def server(node: OttlaNode) -> str:
    return node.address


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"
