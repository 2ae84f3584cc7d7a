"""A Java peer for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.support.java_peer import JavaPeer


@pytest.fixture(scope="session")
def java_peer() -> Iterator[JavaPeer]:
    with JavaPeer() as peer:
        yield peer
