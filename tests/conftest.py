"""What tests of several folders share."""

from collections.abc import Iterator

import pytest

from tests.support.mock_broker import MockBroker


@pytest.fixture(scope="session")
def mock_broker() -> Iterator[MockBroker]:
    """librdkafka's own broker, with a connection to it; topics of one test are not another's."""
    broker = MockBroker()
    yield broker
    broker.close()
