"""A broker for each test."""

from collections.abc import Iterator

import pytest

from tests.support.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()
