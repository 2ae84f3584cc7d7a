"""Fixtures for tests of several folders."""

from collections.abc import Iterator

import pytest

from tests.support.mock_broker import MockBroker


@pytest.fixture(scope="session")
def mock_broker() -> Iterator[MockBroker]:
    """Return librdkafka's mock broker, with a connection to it; each test uses topics of its own."""
    broker = MockBroker()
    yield broker
    broker.close()
