"""One node, and one program of each client, for the tests of a module."""

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
    made = OttlaNode(tmp_path_factory.mktemp("clients"), {**SETTINGS, **FAST})
    made.format()
    with made.running(end=signal.SIGKILL):  # a stop in order would sync a thousand partitions for nobody
        yield made
    assert not made.logged_errors()


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with ExitStack() as ending:
        yield Programs(ending)
