"""One node, and one program of each client, for the tests of a module."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients.running import Programs
from tests.differential.ottla_node import OttlaNode
from tests.interop.kafka_broker import SETTINGS
from tests.interop.test_consumer_group_clients import FAST


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    made = OttlaNode(tmp_path_factory.mktemp("clients"), {**SETTINGS, **FAST})
    made.format()
    with made.running(end=signal.SIGKILL):  # a stop in order would sync a thousand partitions for nobody
        yield made
    assert not made.complaints()


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with ExitStack() as ending:
        yield Programs(ending)
