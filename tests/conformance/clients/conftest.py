"""A node, and a program of each client, for the tests of a module."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.clients.running import Programs
from tests.conformance.interop.test_consumer_group_clients import FAST
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path_factory.mktemp("clients"), {**SETTINGS, **FAST})
    node.format()
    with node.running(end=signal.SIGKILL):  # a clean stop would sync a thousand partitions for nothing
        yield node
    assert not node.logged_errors()


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with ExitStack() as ending:
        yield Programs(ending)
