"""One node of Kafka and one of Ottla for all tests of the client. Most tests run against both."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"))
    node.format()
    with node.running():
        yield node.address


@pytest.fixture(scope="session")
def ottla_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = OttlaNode(tmp_path_factory.mktemp("ottla"), SETTINGS)
    node.format()
    with node.running():
        yield node.address
    assert not node.logged_errors(), node.logged_errors()


@pytest.fixture(params=["kafka", "ottla"])
def address(request: pytest.FixtureRequest) -> str:
    """The address of Kafka's node, then of Ottla's."""
    address: str = request.getfixturevalue(f"{request.param}_address")
    return address


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"topic-{next(_numbers)}"
